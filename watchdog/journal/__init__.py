"""The journal: what the daemon intended and did, and a recording of what each cycle changed, on disk."""
