"""The policy file as it is written, turned into core.policy."""
