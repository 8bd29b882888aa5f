"""`stop` and `resume`."""
