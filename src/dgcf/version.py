"""The version, apart from the public names, so that any room may ask for it."""

__version__ = "0.1.0"
