"""The experiments room: many trainings at once, and what they say together."""
