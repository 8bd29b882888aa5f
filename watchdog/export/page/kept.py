"""The page as it goes out, made at most once a second however many ask for it, and kept packed."""

import gzip
from collections.abc import Callable
from dataclasses import dataclass

from watchdog.export.kept import Kept
from watchdog.export.page import StatusPage, page
from watchdog.export.page.sight import Sight


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPage:
    """A page packed with gzip, which is some 10 KiB for a full node, and when it is worth to be loaded anew."""

    packed: bytes
    refresh_s: int

    @property
    def html(self) -> bytes:
        """The page for a client that takes no gzip."""
        return gzip.decompress(self.packed)


class Pages:
    """Makes the page from a sight that it is given by `see`; to be asked from any thread."""

    def __init__(self, see: Callable[[bool], Sight], now_s: Callable[[], float]) -> None:
        self._see = see
        self._kept: Kept[bool, PackedPage] = Kept(now_s)

    def get(self, state: object, *, is_still: bool) -> PackedPage:
        """The page while things are in a state; who asks while it is made waits for it, which takes milliseconds."""
        return self._kept.get(is_still, state, lambda: _pack(page(self._see(is_still))))


def _pack(made: StatusPage) -> PackedPage:
    return PackedPage(packed=gzip.compress(made.html.encode(), compresslevel=1, mtime=0), refresh_s=made.refresh_s)
