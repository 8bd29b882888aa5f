"""Actions: what a plan's entry begins, and what continues from wake-up to wake-up until its memory is free."""
