"""The errors that cross from one room into another."""


class WatchdogError(Exception):
    """Something that the daemon expects to fail at times; its text names the place and the remedy."""


class RecordError(WatchdogError):
    """The journal can't be written. Nothing may be signalled of which no intention is on disk."""
