"""Tests of `gpu-watchdog top` and of what a shell completes."""
