"""The processes of the service and what protects them: supervisor, workers, limits, tokens, logs and metrics."""
