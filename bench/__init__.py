"""Benchmarks: what a cycle costs beside the driver calls that it is made of, and what the daemon takes for ever."""
