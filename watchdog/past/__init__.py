"""The node's past: what each pass changed, kept in the journal, read again, and judged by another policy."""
