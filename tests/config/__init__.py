"""The policy file: read, checked, compiled, printed."""
