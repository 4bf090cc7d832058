"""Engines take the steps of an epoch; ``pick_engine`` chooses one."""
