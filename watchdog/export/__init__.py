"""What leaves the daemon: metrics, the log, HTTP and the status page."""
