"""One pass, from the scan to the act."""
