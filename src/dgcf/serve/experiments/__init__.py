"""A/B tests and shadow models: who gets which arm, what came of it, and how sure that is."""
