"""The evaluate room: scores in; exact rankings, metrics with their uncertainty, and paired tests out."""
