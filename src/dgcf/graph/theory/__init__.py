"""The oscillation theory in numbers: walks, limits, reports and plots."""
