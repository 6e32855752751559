"""A comparative benchmark harness for methods that train centrally and act alone (CTDE)."""

__version__ = "0.1.0"
