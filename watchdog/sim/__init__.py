"""A node without a GPU: real processes, a made-up card. For the demo."""
