"""Objects from files, for a daemon that does not ask the API."""
