"""The page as it goes out, made at most once a second however many ask for it, and kept packed."""

import gzip
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from watchdog.export.page import StatusPage, page
from watchdog.export.page.sight import Sight

_KEPT_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPage:
    """A page packed with gzip, which is some 10 KiB for a full node, and when it is worth to be loaded anew."""

    packed: bytes
    refresh_s: int

    @property
    def html(self) -> bytes:
        """The page for a client that takes no gzip."""
        return gzip.decompress(self.packed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    made_s: float
    passes: int
    page: PackedPage


class Pages:
    """Makes the page from a sight that it is given by `see`; to be asked from any thread."""

    def __init__(self, see: Callable[[bool], Sight], now_s: Callable[[], float]) -> None:
        self._see = see
        self._now_s = now_s
        self._lock = threading.Lock()
        self._kept: dict[bool, _Kept] = {}

    def get(self, passes: int, *, is_still: bool) -> PackedPage:
        """The page after so many passes; whoever asks while it is made waits for it, which takes milliseconds."""
        with self._lock:
            now_s, kept = self._now_s(), self._kept.get(is_still)
            if kept is not None and kept.passes == passes and 0 <= now_s - kept.made_s < _KEPT_S:
                return kept.page
            packed = _pack(page(self._see(is_still)))
            self._kept[is_still] = _Kept(made_s=now_s, passes=passes, page=packed)
            return packed


def _pack(made: StatusPage) -> PackedPage:
    return PackedPage(packed=gzip.compress(made.html.encode(), compresslevel=1, mtime=0), refresh_s=made.refresh_s)
