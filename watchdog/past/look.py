"""The past as a row of looks at the node: each one a pass that really was, with the node as it stood then."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from watchdog.core.model import Now
from watchdog.past.frame import Frame
from watchdog.past.scene import Scene


class Kind(Enum):
    """How a look stands to the one before."""

    FIRST = auto()  # a daemon has begun, or its record has: nothing is known of the time before
    SAME = auto()  # every pass since the look before has read the same
    NEXT = auto()  # the very next pass, with something new in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One pass of the past. `scene` is the node at it, and changes with the next look.

    `changed` are the UIDs of the pods that are not as they were; None: any may be another.
    """

    at: Now
    kind: Kind
    scene: Scene
    changed: frozenset[str] | None = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A stored body: where it begins, and its frames."""

    since: Now
    frames: tuple[Frame, ...]


def looks(bodies: Iterable[Body], until: Now) -> Iterator[Look]:
    """The looks of one span, which was recorded until a moment; ValueError where its bodies do not fit together.

    What stands before the first whole state cannot be understood, and is left out.
    """
    scene = Scene()
    last: Now | None = None
    for body in bodies:
        for frame in body.frames:
            if last is None and not frame.full:
                continue
            at = _moment(body.since, frame, frame.at_ms)
            if last is not None:
                held = _moment(body.since, frame, frame.at_ms - frame.held_ms)
                if held.boottime_s > last.boottime_s:
                    yield Look(at=held, kind=Kind.SAME, scene=scene)
            if frame.full:
                scene = Scene()
            changed = scene.apply(frame)
            kind = Kind.FIRST if last is None else Kind.NEXT
            yield Look(at=at, kind=kind, scene=scene, changed=None if frame.full else changed)
            last = at
    if last is not None and until.boottime_s > last.boottime_s:
        yield Look(at=until, kind=Kind.SAME, scene=scene)


def _moment(since: Now, frame: Frame, after_ms: int) -> Now:
    wall_s = since.wall_s + (after_ms + frame.wall_ms) / 1000
    return Now(boottime_s=since.boottime_s + after_ms / 1000, wall_s=wall_s, boot_id=since.boot_id)
