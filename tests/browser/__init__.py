"""The status page in a real Chromium."""
