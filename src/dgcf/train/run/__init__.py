"""The run folder: records, checkpoints, observers and tracking."""
