"""The processes of one kill: held from the beginning or found later, and the signals that each of them got."""

import math
import signal
from collections.abc import Callable, Collection, Iterable
from typing import Final

from watchdog.core.model import ProcessKey
from watchdog.node.process import Handle

_SEARCH_EVERY_S: Final = 1.0  # a search for new processes reads the cgroup of every process on the node
_MOST_JOINED: Final = 10_000  # tracked in one grace period; processes of a fork bomb beyond that get only SIGKILL

# Finds the living processes of a victim, each held, and says whether these are certainly all.
FindMembers = Callable[[], tuple[list[Handle], bool]]


class Victims:
    """The processes of one kill; `find_members` is None if no others than those held at its beginning belong to it."""

    def __init__(
        self, handles: Iterable[Handle], find_members: FindMembers | None, described: tuple[str, ...] = ()
    ) -> None:
        self._handles = {handle.key: handle for handle in handles}
        self._find_members = find_members
        self._searched_s: float | None = None
        self._found_s: dict[ProcessKey, float] = {}  # those that joined and got no signal yet
        self._killed: set[ProcessKey] = set()
        self._denied: set[ProcessKey] = set()
        self.refusal = ""  # of the last signal that was denied, in words
        self.described = described  # for people

    @property
    def keys(self) -> Collection[ProcessKey]:
        """All of them, ended ones too."""
        return self._handles.keys()

    @property
    def are_fixed(self) -> bool:
        """Whether no others can join."""
        return self._find_members is None

    @property
    def joined(self) -> list[ProcessKey]:
        """Those that joined and got no signal yet."""
        return list(self._found_s)

    @property
    def living(self) -> list[ProcessKey]:
        """Those that have not ended."""
        return [key for key, handle in self._handles.items() if handle.alive()]

    def found_s(self, key: ProcessKey) -> float:
        """CLOCK_BOOTTIME at which one was found that got no signal yet; minus infinity for the others."""
        return self._found_s.get(key, -math.inf)

    def may_live(self, key: ProcessKey) -> bool:
        """Whether a process, of these or not, may not have ended."""
        handle = self._handles.get(key)
        return handle is None or handle.alive()

    def was_killed(self, key: ProcessKey) -> bool:
        """Whether SIGKILL was sent to it."""
        return key in self._killed

    def all_denied(self, keys: Collection[ProcessKey]) -> bool:
        """Whether there are any of these, and SIGKILL to each was denied."""
        return bool(keys) and self._denied.issuperset(keys)

    def release_ended(self) -> bool:
        """Let go of those that have ended; whether any is alive."""
        is_any_alive = False
        for handle in self._handles.values():
            if handle.alive():
                is_any_alive = True
            else:
                handle.close()
        return is_any_alive

    def have_ended(self) -> bool:
        """Whether all have ended for certain, those included that would be found now."""
        if self.release_ended():
            return False
        others, are_all = self._find_others()
        close_all(others)
        return are_all and not others

    def join(self, found_s: float) -> tuple[bool, bool]:
        """Add the processes that have joined: whether there were any, and whether these are certainly all."""
        others, are_all = self._find_others()
        self._handles |= {handle.key: handle for handle in others}
        self._found_s |= {handle.key: found_s for handle in others}
        return bool(others), are_all

    def join_in_turn(self, now_s: float, first_s: float, *, was_alive: bool) -> tuple[bool, bool]:
        """Add those that have joined, at most once a second and up to a limit; a search that is left out finds nothing.

        The first search is due at `first_s` or, if all others have ended, at once.
        """
        due_s = first_s if self._searched_s is None else self._searched_s + _SEARCH_EVERY_S
        is_due = now_s >= due_s or (self._searched_s is None and not was_alive)
        if not is_due or len(self._handles) > _MOST_JOINED:
            return False, False
        self._searched_s = now_s
        return self.join(now_s)

    def _find_others(self) -> tuple[list[Handle], bool]:
        if self._find_members is None:
            return [], True
        members, are_all = self._find_members()
        others = []
        for handle in members:
            if handle.key in self._handles:
                handle.close()
            else:
                others.append(handle)
        return others, are_all

    def send(self, number: signal.Signals, keys: Iterable[ProcessKey]) -> list[ProcessKey]:
        """Send a signal to these of them; those that it reached."""
        reached = []
        for key in tuple(keys):
            self._found_s.pop(key, None)
            self._killed |= {key} if number is signal.SIGKILL else set()
            try:
                self._handles[key].signal(number)
            except ProcessLookupError:
                continue
            except BlockingIOError:  # no descriptor is left for it now, so it is tried again with the next SIGKILL
                self._killed.discard(key)
                continue
            except PermissionError as error:
                # It has changed its user since signal 0, or AppArmor permits only signal 0; the others still have to
                # be ended.
                self.refusal = f"{number.name} to process {key.pid} was denied: {error.strerror}"
                self._denied |= {key} if number is signal.SIGKILL else set()
                continue
            reached.append(key)
        return reached

    def close(self) -> None:
        """Let go of all of them."""
        close_all(self._handles.values())


def close_all(handles: Iterable[Handle]) -> None:
    """Let go of processes that are held."""
    for handle in handles:
        handle.close()
