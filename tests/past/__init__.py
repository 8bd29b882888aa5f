"""The past: recorded compactly, read again, and judged by other policies."""
