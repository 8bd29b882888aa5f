"""The wording, by subject: each fact is worded once, for every surface."""
