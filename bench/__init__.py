"""Benchmarks: what the daemon takes and how fast it is, beside other programs that run at the same time."""
