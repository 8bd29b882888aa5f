"""The daemon: its loop, one cycle of it, the kills and evictions in progress, and where a finished cycle goes."""
