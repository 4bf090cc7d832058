"""The HTTP service: recommendations that take events at once, explain themselves and swap models without downtime."""
