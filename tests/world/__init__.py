"""Worlds: the real command on real processes in real cgroups, with the stub of NVML."""
