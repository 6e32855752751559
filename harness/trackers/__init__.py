"""Trackers outside the harness, fed from the store; ``harness.tracking`` is their door."""
