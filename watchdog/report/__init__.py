"""What is reported: the status, what is new in it, and the sentences that people read about it."""
