"""Tests of the commands: `check`, `history`, `scan`, `stop`, `top`, and shell completion."""
