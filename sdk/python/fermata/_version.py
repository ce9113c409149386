"""The version of the package. A release sets it."""

__version__ = "0.0.0.dev0"
