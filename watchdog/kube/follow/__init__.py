"""What is followed: one list and one watch a kind, each on a thread of its own."""
