"""Benchmarks: what the daemon costs and how fast it is, compared with other programs running at the same time."""
