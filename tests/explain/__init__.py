"""Tests of `explain`: the daemon asked, the journal read, and pods that nobody knows."""
