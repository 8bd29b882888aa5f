"""What the daemon may do by the API: the rights that a policy needs, and which of them are there."""
