"""Tests of `explain`: from the daemon, from the journal, and for unknown pods."""
