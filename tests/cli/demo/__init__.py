"""Tests of the simulated node and of the demo on it."""
