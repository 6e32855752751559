"""Methods, one a file; found through the entry points ``harness.algorithms``."""
