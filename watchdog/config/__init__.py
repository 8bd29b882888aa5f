"""The policy file: read, checked and compiled into core.policy."""
