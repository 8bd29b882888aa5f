"""What the daemon does by the API: evictions, Events, the capacity of its node."""
