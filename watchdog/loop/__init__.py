"""What the daemon's loop is made of."""
