"""Bridges from other environment interfaces to ``harness.suite.VecEnv``."""
