"""Tests of the drivers, on the stub of NVML."""
