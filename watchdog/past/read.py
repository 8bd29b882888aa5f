"""The recording read back: the node as it was, moment by moment."""

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
from watchdog.past.recording import LIVE, NEVER, Dark, Frame, unpack
from watchdog.report.text import rfc3339

Uses = tuple[AttributedUse, ...]

# A process whose cgroup could not be read may be anybody's; which one it was has no part in any decision.
_NOBODY = Process(pid=0, key=None, place=UNREADABLE)


@dataclass(slots=True)
class _Known:
    """The uses of one pod, by the numbers of their holders."""

    by_number: dict[int, AttributedUse]
    uses: Uses | None = None


@dataclass(slots=True)
class RecordedNode:
    """A node that frames are applied to, one after the other. Nothing but `apply` changes it.

    `interval_s` is how often the daemon listed the processes. What is used of each of `gpus` is right to 64Mi. `pods`
    has those that the recorder keeps, by UID. `synced_ms` is the boot time at which the pod list was true.
    """

    interval_s: float = 1.0
    node: Node = field(default_factory=lambda: Node(name=""))
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    gpus: tuple[Gpu, ...] = ()
    pods: dict[str, Pod] = field(default_factory=dict)
    dark: Dark = field(default_factory=Dark)
    synced_ms: int = NEVER
    _known: dict[str, _Known] = field(default_factory=dict)
    _whose: dict[int, str] = field(default_factory=dict)

    def uses_of(self, uid: str) -> Uses:
        """What the processes of a pod use, in the order in which attribution gives them."""
        known = self._known.get(uid)
        if known is None:
            return ()
        if known.uses is None:
            known.uses = tuple(sorted(known.by_number.values(), key=lambda use: (use.key.pid, use.gpu)))
        return known.uses

    def snapshot(self, at: Now) -> Snapshot:
        """A snapshot for the assessment: the GPUs and what hides them. The uses stand in `uses_of`."""
        hidden = self.dark.unreadable
        return Snapshot(
            at=at,
            driver=None,
            gpus=self.gpus,
            uses=(Use(gpu="", pid=_NOBODY.pid, used=None),) if hidden else (),
            processes={_NOBODY.pid: _NOBODY} if hidden else {},
            blind=self.dark.blind,
            unseen=frozenset(self.dark.unseen),
            missing=frozenset(self.dark.missing),
        )

    def stale_at_s(self, stale_after_s: float) -> float:
        """The boot time after which the pod list is too old; infinity: as long as nothing changes it is not."""
        if self.synced_ms == NEVER:
            return -math.inf
        return math.inf if self.synced_ms == LIVE else self.synced_ms / 1000 + stale_after_s

    def apply(self, frame: Frame) -> frozenset[str]:
        """Take in what one cycle changed; the UIDs of the pods that changed. ValueError if it does not fit."""
        self._apply_ground(frame)
        changed = {*frame.gone_pods, *(pod.uid for pod in frame.pods)}
        for uid in frame.gone_pods:
            self.pods.pop(uid, None)
        self.pods |= {pod.uid: pod for pod in frame.pods}
        for number in frame.gone:
            changed.add(self._let_go(number))
        for holder in frame.holders:
            key = ProcessKey(pid=holder.pid, start_ticks=holder.start_ticks)
            use = AttributedUse(
                key=key,
                uid=holder.uid,
                container=holder.container,
                gpu=holder.gpu,
                used=None,
                name=holder.name,
                mps=holder.mps,
                mps_server=holder.mps_server,
                serves_others=holder.serves_others,
            )
            self._whose[holder.number] = holder.uid
            self._put(holder.number, use)
        for number, used in pairs(frame.used):
            if number not in self._whose:
                raise ValueError(f"process {number} was never introduced")
            changed.add(self._whose[number])
            self._put(number, replace(self._known[self._whose[number]].by_number[number], used=used))
        return frozenset(changed)

    def _apply_ground(self, frame: Frame) -> None:
        self.interval_s = self.interval_s if frame.interval_ms is None else frame.interval_ms / 1000
        self.node = frame.node or self.node
        self.namespaces = self.namespaces if frame.namespaces is None else frame.namespaces
        self.gpus = self.gpus if frame.gpus is None else frame.gpus
        self.dark = self.dark if frame.dark is None else frame.dark
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

    def _let_go(self, number: int) -> str:
        uid = self._whose.pop(number, None)
        if uid is None:
            raise ValueError(f"process {number} was never introduced")
        known = self._known[uid]
        del known.by_number[number]
        known.uses = None
        return uid


def pairs(flat: tuple[int | None, ...]) -> Iterator[tuple[int, int | None]]:
    """Numbers with their amounts, which stand in turn."""
    for number, amount in zip(flat[::2], flat[1::2], strict=True):
        if number is None:
            raise ValueError("an amount without a number")
        yield number, amount


class RecordKind(Enum):
    """How a look stands to the one before."""

    FIRST = auto()  # a daemon has begun, or its record has: nothing is known of the time before
    SAME = auto()  # every cycle since the look before has read the same
    NEXT = auto()  # the very next cycle, with something new in it


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCycle:
    """One cycle of the past. `scene` is the node at it, and changes with the next look.

    `changed` are the UIDs of the pods that are not as they were; None: any may be another.
    """

    at: Now
    kind: RecordKind
    scene: RecordedNode
    changed: frozenset[str] | None = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A stored body: where it begins, and its frames."""

    since: Now
    frames: tuple[Frame, ...]


def looks(bodies: Iterable[Body], until: Now) -> Iterator[RecordedCycle]:
    """The looks of one span, which was recorded until a moment; ValueError where its bodies do not fit together.

    What stands before the first whole state cannot be understood, and is left out.
    """
    scene = RecordedNode()
    last: Now | None = None
    for body in bodies:
        for frame in body.frames:
            if last is None and not frame.full:
                continue
            at = _moment(body.since, frame, frame.at_ms)
            if last is not None:
                held = _moment(body.since, frame, frame.at_ms - frame.held_ms)
                if held.boottime_s > last.boottime_s:
                    yield RecordedCycle(at=held, kind=RecordKind.SAME, scene=scene)
            if frame.full:
                scene = RecordedNode()
            changed = scene.apply(frame)
            kind = RecordKind.FIRST if last is None else RecordKind.NEXT
            yield RecordedCycle(at=at, kind=kind, scene=scene, changed=None if frame.full else changed)
            last = at
    if last is not None and until.boottime_s > last.boottime_s:
        yield RecordedCycle(at=until, kind=RecordKind.SAME, scene=scene)


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
    """The journal is sound, and no cycle of the time that is asked for stands in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of one daemon's life in which every cycle was recorded, until a moment."""

    until: Now
    looks: Iterator[RecordedCycle]


def spans(path: Path, since_s: float) -> Iterator[Span]:
    """The spans that reach beyond a Unix time, oldest first; the first may begin up to an hour before it.

    Each is to be used up before the next is asked for. JournalError names the file and the remedy;
    NothingRecordedError where nothing was recorded in that time.
    """
    with reading(path) as connection:
        connection.execute("BEGIN")  # the daemon may write and delete meanwhile
        if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'past_span'").fetchone()[0]:
            raise JournalError(f"journal {path} was written by an older gpu-watchdog, which recorded no past")
        first = connection.execute(_FIRST, {"since": since_s}).fetchone()[0]
        found = connection.execute(_SPANS, {"since": since_s, "first": first}).fetchall()  # none where there is none
        if not found:
            raise _nothing(connection, path, since_s)
        for number, boot_id, until_s, until_wall_s in found:
            until = Now(boottime_s=until_s, wall_s=until_wall_s, boot_id=boot_id)
            bodies = _bodies(connection, number, first, boot_id)
            yield Span(until=until, looks=_sound(looks(bodies, until), path))


def _sound(found: Iterator[RecordedCycle], path: Path) -> Iterator[RecordedCycle]:
    """The looks, with the journal's name in whatever is wrong with them."""
    try:
        yield from found
    except sqlite3.Error as error:
        raise explain(error, path) from error
    except (ValueError, TypeError, KeyError) as error:
        why = f"the past in journal {path} can't be read ({error})"
        raise JournalError(f"{why}: `--since` with a shorter time may leave that part out") from error


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
        return NothingRecordedError(f"journal {path} holds no past: the daemon has not recorded a pass in it yet")
    if last >= since_s:
        return JournalError(
            f"the past in journal {path} has no beginning, so it can't be understood: the daemon writes one within "
            "the hour"
        )
    return NothingRecordedError(
        f"the daemon has recorded nothing in {path} since {rfc3339(since_s)}: its last pass there was at "
        f"{rfc3339(last)}; `--since` takes a longer time"
    )
