"""Everything that leaves the daemon: metrics, journal, HTTP, logs, texts."""
