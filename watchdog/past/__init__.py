"""The node's past: what each cycle changed, kept in the journal, read again, and judged by another policy."""
