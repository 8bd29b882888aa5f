"""What is made for readers at most once a second, however many ask: it is kept until it would tell something else."""

import gzip
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from watchdog.export.page import StatusPage, page
from watchdog.export.page.sight import Sight

_KEPT_S: Final = 1.0
Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class _One(Generic[Made]):
    made_s: float
    state: object
    made: Made


class LastMade(Generic[Key, Made]):
    """Keeps the last one that was made under each key, of which there have to be few; to be asked from any thread."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._kept: dict[Key, _One[Made]] = {}

    def get(self, key: Key, state: object, make: Callable[[], Made]) -> Made:
        """What was made under a key less than a second ago while things were in the same state, or is made now.

        `state` is compared by `==` and kept: it has to be small. Whoever asks meanwhile waits; one is made at a time.
        """
        with self._lock:
            now_s, kept = self._now_s(), self._kept.get(key)
            if kept is not None and kept.state == state and 0 <= now_s - kept.made_s < _KEPT_S:
                return kept.made
            made = make()
            self._kept[key] = _One(made_s=now_s, state=state, made=made)
            return made


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPage:
    """A page packed with gzip, which is some 10 KiB for a full node, and when it is worth to be loaded again."""

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
        self._kept: LastMade[bool, PackedPage] = LastMade(now_s)

    def get(self, state: object, *, is_still: bool) -> PackedPage:
        """The page while things are in a state; who asks while it is made waits for it, which takes milliseconds."""
        return self._kept.get(is_still, state, lambda: _pack(page(self._see(is_still))))


def _pack(made: StatusPage) -> PackedPage:
    return PackedPage(packed=gzip.compress(made.html.encode(), compresslevel=1, mtime=0), refresh_s=made.refresh_s)
