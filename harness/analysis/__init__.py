"""Statistics of results: numpy, scipy and pandas only. What each number means is in docs/statistics.md."""
