"""Tests on a machine with a real NVIDIA GPU; elsewhere they are skipped with the reason."""
