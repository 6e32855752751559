"""Suites of tasks, one a file or folder; found through the entry points ``harness.suites``."""
