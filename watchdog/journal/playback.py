"""Reading the recording back: the state of the node, cycle by cycle."""

import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from pathlib import Path
from typing import Final

from watchdog.core.assessment import AttributedUse
from watchdog.core.model import UNREADABLE, Gpu, Node, Now, Pod, Process, ProcessKey, Snapshot, Use
from watchdog.journal.errors import JournalError, explain
from watchdog.journal.read import reading
from watchdog.journal.recording import LIVE, NEVER, Frame, Hidden, unpack
from watchdog.report.text import rfc3339

Uses = tuple[AttributedUse, ...]

# A process whose cgroup could not be read may belong to any pod; its identity does not affect any decision.
_UNREADABLE_PROCESS = Process(pid=0, key=None, place=UNREADABLE)


@dataclass(slots=True)
class _Known:
    """The uses of one pod, by the numbers of the recorded processes."""

    by_number: dict[int, AttributedUse]
    uses: Uses | None = None


@dataclass(slots=True)
class RecordedNode:
    """A node as recorded; frames are applied to it one after another, and only `apply` changes it.

    `interval_s` is how often the daemon listed the processes. The use of each of `gpus` is accurate to 64Mi. `pods` has
    the recorded pods by UID. `synced_ms` is the boot time at which the pod list was last known to be current.
    """

    interval_s: float = 1.0
    node: Node = field(default_factory=lambda: Node(name=""))
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    gpus: tuple[Gpu, ...] = ()
    pods: dict[str, Pod] = field(default_factory=dict)
    hidden: Hidden = field(default_factory=Hidden)
    synced_ms: int = NEVER
    _known: dict[str, _Known] = field(default_factory=dict)
    _uid_by_number: dict[int, str] = field(default_factory=dict)

    def uses_of(self, uid: str) -> Uses:
        """The uses of a pod, in the same order as from attribution."""
        known = self._known.get(uid)
        if known is None:
            return ()
        if known.uses is None:
            known.uses = tuple(sorted(known.by_number.values(), key=lambda use: (use.key.pid, use.gpu)))
        return known.uses

    def snapshot(self, at: Now) -> Snapshot:
        """A snapshot for the assessment, with the GPUs and what is hidden of them; the uses are in `uses_of`."""
        hidden = self.hidden.unreadable
        return Snapshot(
            at=at,
            driver=None,
            gpus=self.gpus,
            uses=(Use(gpu="", pid=_UNREADABLE_PROCESS.pid, used=None),) if hidden else (),
            processes={_UNREADABLE_PROCESS.pid: _UNREADABLE_PROCESS} if hidden else {},
            blind=self.hidden.blind,
            unseen=frozenset(self.hidden.unseen),
            missing=frozenset(self.hidden.missing),
        )

    def stale_at_s(self, stale_after_s: float) -> float:
        """The boot time after which the pod list is too old; infinity if it was current in every cycle."""
        if self.synced_ms == NEVER:
            return -math.inf
        return math.inf if self.synced_ms == LIVE else self.synced_ms / 1000 + stale_after_s

    def apply(self, frame: Frame) -> frozenset[str]:
        """Apply the changes of one cycle; returns the UIDs of the changed pods. ValueError if they do not fit."""
        self._apply_ground(frame)
        changed = {*frame.gone_pods, *(pod.uid for pod in frame.pods)}
        for uid in frame.gone_pods:
            self.pods.pop(uid, None)
        self.pods |= {pod.uid: pod for pod in frame.pods}
        for number in frame.gone:
            changed.add(self._remove(number))
        for process in frame.processes:
            key = ProcessKey(pid=process.pid, start_ticks=process.start_ticks)
            use = AttributedUse(
                key=key,
                uid=process.uid,
                container=process.container,
                gpu=process.gpu,
                used=None,
                name=process.name,
                mps=process.mps,
                mps_server=process.mps_server,
                serves_others=process.serves_others,
            )
            self._uid_by_number[process.number] = process.uid
            self._put(process.number, use)
        for number, used in pairs(frame.used):
            if number not in self._uid_by_number:
                raise ValueError(f"process {number} was never introduced")
            changed.add(self._uid_by_number[number])
            self._put(number, replace(self._known[self._uid_by_number[number]].by_number[number], used=used))
        return frozenset(changed)

    def _apply_ground(self, frame: Frame) -> None:
        self.interval_s = self.interval_s if frame.interval_ms is None else frame.interval_ms / 1000
        self.node = frame.node or self.node
        self.namespaces = self.namespaces if frame.namespaces is None else frame.namespaces
        self.gpus = self.gpus if frame.gpus is None else frame.gpus
        self.hidden = self.hidden if frame.hidden is None else frame.hidden
        self.synced_ms = self.synced_ms if frame.synced_ms is None else frame.synced_ms
        if frame.memory:
            amounts = dict(pairs(frame.memory))
            self.gpus = tuple(
                replace(gpu, used=amounts[index]) if index in amounts else gpu for index, gpu in enumerate(self.gpus)
            )

    def _put(self, number: int, use: AttributedUse) -> None:
        known = self._known.setdefault(use.uid, _Known({}))
        known.by_number[number] = use
        known.uses = None

    def _remove(self, number: int) -> str:
        uid = self._uid_by_number.pop(number, None)
        if uid is None:
            raise ValueError(f"process {number} was never introduced")
        known = self._known[uid]
        del known.by_number[number]
        known.uses = None
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
    """One recorded cycle. `node` is the state in this cycle; the same object changes with the next one.

    `changed` are the UIDs of the pods that have changed; None: any may have.
    """

    at: Now
    kind: RecordKind
    node: RecordedNode
    changed: frozenset[str] | None = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A stored body: when it begins, and its frames."""

    since: Now
    frames: tuple[Frame, ...]


def cycles(bodies: Iterable[Body], until: Now) -> Iterator[RecordedCycle]:
    """The cycles of one span, recorded until a moment; ValueError if its bodies do not fit together.

    What precedes the first full frame can't be decoded, and is skipped.
    """
    node = RecordedNode()
    last: Now | None = None
    for body in bodies:
        for frame in body.frames:
            if last is None and not frame.full:
                continue
            at = _moment(body.since, frame, frame.at_ms)
            if last is not None:
                held = _moment(body.since, frame, frame.at_ms - frame.held_ms)
                if held.boottime_s > last.boottime_s:
                    yield RecordedCycle(at=held, kind=RecordKind.SAME, node=node)
            if frame.full:
                node = RecordedNode()
            changed = node.apply(frame)
            kind = RecordKind.FIRST if last is None else RecordKind.NEXT
            yield RecordedCycle(at=at, kind=kind, node=node, changed=None if frame.full else changed)
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
    "SELECT id, boot_id, until_s, until_wall_s FROM past_span "
    "WHERE until_wall_s >= :since AND id IN (SELECT span FROM past WHERE id >= :first) ORDER BY id"
)
_BODIES: Final = "SELECT id, boottime_s, wall_s, body FROM past WHERE span = :span AND id >= :first ORDER BY id"


class NothingRecordedError(JournalError):
    """The journal is valid, but has no recorded cycle in the requested time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A time in which one daemon recorded every cycle, up to a moment."""

    until: Now
    cycles: Iterator[RecordedCycle]


def spans(path: Path, since_s: float) -> Iterator[Span]:
    """The spans that end after a Unix time, oldest first; the first may begin up to an hour before it.

    Each must be consumed before the next is requested. JournalError names the file and the remedy;
    NothingRecordedError if nothing was recorded in that time.
    """
    with reading(path) as connection:
        connection.execute("BEGIN")  # the daemon may write and delete meanwhile
        if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'past_span'").fetchone()[0]:
            raise JournalError(f"journal {path} was written by an older gpu-watchdog, which did not record cycles")
        first = connection.execute(_FIRST, {"since": since_s}).fetchone()[0]
        found = connection.execute(_SPANS, {"since": since_s, "first": first}).fetchall()
        if not found:
            raise _nothing(connection, path, since_s)
        for number, boot_id, until_s, until_wall_s in found:
            until = Now(boottime_s=until_s, wall_s=until_wall_s, boot_id=boot_id)
            bodies = _bodies(connection, number, first, boot_id)
            yield Span(until=until, cycles=_with_path_in_errors(cycles(bodies, until), path))


def _with_path_in_errors(found: Iterator[RecordedCycle], path: Path) -> Iterator[RecordedCycle]:
    """The same cycles, with the journal's name added to each error."""
    try:
        yield from found
    except sqlite3.Error as error:
        raise explain(error, path) from error
    except (ValueError, TypeError, KeyError) as error:
        why = f"the recording in journal {path} can't be read ({error})"
        raise JournalError(f"{why}: a shorter `--since` may skip that part") from error


def _bodies(connection: sqlite3.Connection, span: int, first: int, boot_id: str) -> Iterator[Body]:
    for number, boottime_s, wall_s, body in connection.execute(_BODIES, {"span": span, "first": first}):
        try:
            frames = unpack(body)
        except ValueError as error:
            raise ValueError(f"record {number}: {error}") from error
        yield Body(since=Now(boottime_s=boottime_s, wall_s=wall_s, boot_id=boot_id), frames=frames)


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
        f"{rfc3339(last)}; use a longer `--since`"
    )
