"""The version of this package, for everything that has to name it."""

__version__ = "0.1.0.dev0"
