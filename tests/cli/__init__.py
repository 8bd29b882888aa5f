"""Tests of the commands: `check`, `explain`, `history`, `scan`, `stop`, `top`, and shell completion."""
