"""Reading the recording back: the state of the node, cycle by cycle."""

import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from pathlib import Path
from typing import Final

from watchdog.core.assessment import AttributedUse
from watchdog.core.model import UNREADABLE, Gpu, MigParent, Node, Now, Pod, Process, Snapshot, Use
from watchdog.journal.errors import JournalError
from watchdog.journal.read import reading
from watchdog.journal.recording import LIVE, NEVER, Frame, Hidden, unpack
from watchdog.report.text import rfc3339

# A process whose cgroup could not be read may belong to any pod; its identity does not affect any decision.
_UNREADABLE_PROCESS = Process(pid=0, key=None, place=UNREADABLE)


@dataclass(slots=True)
class RecordedNode:
    """A node as recorded; frames are applied to it one after another, and only `apply` changes it."""

    # How often the daemon listed the processes.
    interval_s: float = 1.0
    node: Node = field(default_factory=lambda: Node(name=""))
    # The labels of each namespace, by its name.
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Their use is accurate to 64Mi.
    gpus: tuple[Gpu, ...] = ()
    # The recorded pods by UID.
    pods: dict[str, Pod] = field(default_factory=dict)
    hidden: Hidden = field(default_factory=Hidden)
    # The CLOCK_BOOTTIME at which the pod list was last known to be current, or NEVER.
    synced_ms: int = NEVER
    _uid_by_number: dict[int, str] = field(default_factory=dict)
    # The bytes of each process.
    _used: dict[int, int | None] = field(default_factory=dict)
    _uses_by_number: dict[str, dict[int, AttributedUse]] = field(default_factory=dict)
    # The processes whose uses do not have their bytes yet: most amounts change again before anybody asks for a use.
    _moved: dict[str, set[int]] = field(default_factory=dict)
    _sorted_uses: dict[str, tuple[AttributedUse, ...]] = field(default_factory=dict)

    def uses_of(self, uid: str) -> tuple[AttributedUse, ...]:
        """The uses of a pod, in the same order as from attribution."""
        if uid not in self._sorted_uses:
            uses = self._uses_by_number.get(uid, {})
            for number in self._moved.pop(uid, ()):
                uses[number] = replace(uses[number], used=self._used[number])
            self._sorted_uses[uid] = tuple(sorted(uses.values(), key=lambda use: (use.key.pid, use.gpu)))
        return self._sorted_uses[uid]

    def amounts_of(self, uid: str) -> Iterator[tuple[str, int | None]]:
        """The bytes of each use of a pod, with its container: as from `uses_of`, in any order and at less cost."""
        for number, use in self._uses_by_number.get(uid, {}).items():
            yield use.container, self._used[number]

    def snapshot(self, at: Now) -> Snapshot:
        """A snapshot for the assessment, with the GPUs and what is hidden of them; the uses are in `uses_of`."""
        hidden = self.hidden.unreadable
        return Snapshot(
            at=at,
            driver=None,
            interface="the driver",
            gpus=self.gpus,
            uses=(Use(gpu="", pid=_UNREADABLE_PROCESS.pid, used=None),) if hidden else (),
            processes={_UNREADABLE_PROCESS.pid: _UNREADABLE_PROCESS} if hidden else {},
            blind=self.hidden.blind,
            unseen=frozenset(self.hidden.unseen),
            missing=frozenset(self.hidden.missing),
            parents=tuple(MigParent(uuid=uuid, index=0, name="") for uuid in self.hidden.parents),
        )

    def stale_at_s(self, stale_after_s: float) -> float:
        """The CLOCK_BOOTTIME after which the pod list is too old; infinity if it was current in every cycle."""
        if self.synced_ms == NEVER:
            return -math.inf
        return math.inf if self.synced_ms == LIVE else self.synced_ms / 1000 + stale_after_s

    def apply(self, frame: Frame) -> frozenset[str]:
        """Apply the changes of one cycle; returns the UIDs of the changed pods. ValueError if they do not fit."""
        self._apply_basics(frame)
        changed = {*frame.gone_pods, *(pod.uid for pod in frame.pods)}
        for uid in frame.gone_pods:
            self.pods.pop(uid, None)
        self.pods |= {pod.uid: pod for pod in frame.pods}
        for number in frame.gone:
            changed.add(self._remove(number))
        for process in frame.processes:
            self._uid_by_number[process.number] = process.uid
            self._put(process.number, process.use)
        for number, used in pairs(frame.used):
            if number not in self._uid_by_number:
                raise ValueError(f"process {number} was never introduced")
            changed.add(uid := self._uid_by_number[number])
            self._used[number] = used
            self._moved.setdefault(uid, set()).add(number)
            self._sorted_uses.pop(uid, None)
        return frozenset(changed)

    def _apply_basics(self, frame: Frame) -> None:
        if frame.interval_ms is not None:
            self.interval_s = frame.interval_ms / 1000
        for name in ("node", "namespaces", "gpus", "hidden", "synced_ms"):
            if (value := getattr(frame, name)) is not None:
                setattr(self, name, value)
        if frame.memory:
            amounts = dict(pairs(frame.memory))
            self.gpus = tuple(
                replace(gpu, used=amounts[index]) if index in amounts else gpu for index, gpu in enumerate(self.gpus)
            )

    def _put(self, number: int, use: AttributedUse) -> None:
        self._uses_by_number.setdefault(use.uid, {})[number] = use
        self._used[number] = use.used
        self._sorted_uses.pop(use.uid, None)

    def _remove(self, number: int) -> str:
        uid = self._uid_by_number.pop(number, None)
        if uid is None:
            raise ValueError(f"process {number} was never introduced")
        del self._uses_by_number[uid][number], self._used[number]
        self._moved.get(uid, set()).discard(number)
        self._sorted_uses.pop(uid, None)
        return uid


def pairs(flat: tuple[int | None, ...]) -> Iterator[tuple[int, int | None]]:
    """The pairs of number and amount in a flat tuple."""
    for number, amount in zip(flat[::2], flat[1::2], strict=True):
        if number is None:
            raise ValueError("an amount without a number")
        yield number, amount


class RecordKind(Enum):
    """How a recorded cycle relates to the one before it."""

    FIRST = auto()  # the daemon or its recording has started: nothing is known of the time before
    SAME = auto()  # every cycle since the previous one read the same
    NEXT = auto()  # the next cycle, with changes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCycle:
    """One recorded cycle."""

    at: Now
    kind: RecordKind
    # The state in this cycle; the same object changes with the next one.
    node: RecordedNode
    # The UIDs of the pods that have changed; None: any may have.
    changed: frozenset[str] | None = frozenset()
    # Whether nothing has changed but how many bytes processes and GPUs use.
    is_moved: bool = False


def span_cycles(bodies: Iterable[tuple[Now, tuple[Frame, ...]]], until: Now) -> Iterator[RecordedCycle]:
    """The cycles of one span, recorded until a moment; ValueError if its bodies do not fit together.

    Of each body, it takes when it begins and its frames. What precedes the first full frame can't be decoded, and is
    skipped.
    """
    node = RecordedNode()
    last: Now | None = None
    for since, frames in bodies:
        for frame in frames:
            if last is None and not frame.full:
                continue
            at = _moment(since, frame, frame.at_ms)
            if last is not None:
                held = _moment(since, frame, frame.at_ms - frame.held_ms)
                if held.boottime_s > last.boottime_s:
                    yield RecordedCycle(at=held, kind=RecordKind.SAME, node=node)
            if frame.full:
                node = RecordedNode()
            changed = node.apply(frame)
            kind = RecordKind.FIRST if last is None else RecordKind.NEXT
            yield RecordedCycle(
                at=at, kind=kind, node=node, changed=None if frame.full else changed, is_moved=frame.only_moves
            )
            last = at
    if last is not None and until.boottime_s > last.boottime_s:
        yield RecordedCycle(at=until, kind=RecordKind.SAME, node=node)


def _moment(since: Now, frame: Frame, after_ms: int) -> Now:
    wall_s = since.wall_s + (after_ms + frame.wall_ms) / 1000
    return Now(boottime_s=since.boottime_s + after_ms / 1000, wall_s=wall_s, boot_id=since.boot_id)


_FIRST: Final = (
    "SELECT coalesce((SELECT max(id) FROM past WHERE is_full AND wall_s <= :since), "
    "(SELECT min(id) FROM past WHERE is_full))"
)
_SPANS: Final = (
    "SELECT id, boot_id, until_s, from_wall_s, until_wall_s FROM past_span "
    "WHERE until_wall_s >= :since AND id IN (SELECT span FROM past WHERE id >= :first) ORDER BY id"
)
_BODIES: Final = "SELECT id, boottime_s, wall_s, body FROM past WHERE span = :span AND id >= :first ORDER BY id"


class DamagedRecordingError(JournalError):
    """A part of the recording can't be read; `why` says so without the remedy."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}: a later `--since` may skip that part")
        self.why = why


class NothingRecordedError(JournalError):
    """The journal is valid, but has no recorded cycle in the requested time."""


def recorded_cycles(
    path: Path, since_s: float, begin: Callable[[float], object] = lambda _: None
) -> Iterator[RecordedCycle]:
    """The cycles recorded since a Unix time, oldest first; the first ones may be up to an hour before it.

    `begin` is called before the first one, with the seconds recorded since then. JournalError names the file and the
    remedy; NothingRecordedError if nothing was recorded in that time.
    """
    with reading(path) as connection:
        connection.execute("BEGIN")  # the daemon may write and delete meanwhile
        if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'past_span'").fetchone()[0]:
            raise JournalError(f"journal {path} was written by an older gpu-watchdog, which did not record cycles")
        first = connection.execute(_FIRST, {"since": since_s}).fetchone()[0]
        spans = connection.execute(_SPANS, {"since": since_s, "first": first}).fetchall()
        if not spans:
            raise _nothing(connection, path, since_s)
        (first_s,) = connection.execute("SELECT wall_s FROM past WHERE id = :first", {"first": first}).fetchone()
        begin(sum(max(until_s - max(from_s, first_s, since_s), 0.0) for *_, from_s, until_s in spans))
        try:
            for number, boot_id, until_s, _, until_wall_s in spans:
                until = Now(boottime_s=until_s, wall_s=until_wall_s, boot_id=boot_id)
                yield from span_cycles(_bodies(connection, number, first, boot_id), until)
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedRecordingError(f"the recording in journal {path} can't be read ({error})") from error


def _bodies(
    connection: sqlite3.Connection, span: int, first: int, boot_id: str
) -> Iterator[tuple[Now, tuple[Frame, ...]]]:
    for number, boottime_s, wall_s, body in connection.execute(_BODIES, {"span": span, "first": first}):
        try:
            frames = unpack(body)
        except ValueError as error:
            raise ValueError(f"record {number}: {error}") from error
        yield Now(boottime_s=boottime_s, wall_s=wall_s, boot_id=boot_id), frames


def _nothing(connection: sqlite3.Connection, path: Path, since_s: float) -> JournalError:
    last = connection.execute("SELECT max(until_wall_s) FROM past_span").fetchone()[0]
    if last is None:
        return NothingRecordedError(f"journal {path} has no recording: the daemon has not recorded a cycle in it yet")
    if last >= since_s:
        return JournalError(
            f"the recording in journal {path} has no full frame, so it can't be decoded: the daemon writes one within "
            "the hour"
        )
    return NothingRecordedError(
        f"the daemon has recorded nothing in {path} since {rfc3339(since_s)}: its last cycle there was at "
        f"{rfc3339(last)}; use a `--since` before that"
    )
