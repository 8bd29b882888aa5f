"""The journal: what the daemon intended and did, on disk; its file, what is written to it and what is read from it."""
