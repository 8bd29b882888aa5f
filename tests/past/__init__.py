"""Recorded cycles: written compactly, read again, and replayed under other policies."""
