"""The endpoints of a daemon before its first cycle: the health is read as of the moment of an answer."""

from tests.export.conftest import clock, endpoints  # noqa: F401 - pytest finds fixtures by their names in here
