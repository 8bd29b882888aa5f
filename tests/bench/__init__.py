"""The benchmarks work."""
