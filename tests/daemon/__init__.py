"""The daemon: its loop and its parts, with real processes, real signals, and an in-memory record of actions."""
