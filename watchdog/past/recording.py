"""What a cycle changed, kept compact: the state of a node as it is recorded, and the difference between two of them."""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from watchdog.core.assess import short_cards
from watchdog.core.assessment import AccountKey, Assessment, AttributedUse, Attribution
from watchdog.core.ladder import step_readings
from watchdog.core.model import Gpu, Node, PlaceKind, Pod, PodList, Snapshot
from watchdog.core.mps import Mps
from watchdog.core.plan import CycleReport

LIVE: Final = -1  # the pod list is as old as the cycle itself
NEVER: Final = -2  # there is no pod list
_LARGEST: Final = 64 * 2**20  # of one body, unpacked; the recorder writes some kilobytes


class RecordedProcess(msgspec.Struct, array_like=True, frozen=True):
    """A process of a pod on one GPU, and the number by which the frames that follow call it."""

    number: int
    pid: int
    start_ticks: int
    uid: str
    container: str
    gpu: str
    name: str
    mps: bool | None = False
    mps_server: bool = False
    serves_others: bool = False


class Dark(msgspec.Struct, array_like=True, frozen=True):
    """What makes readings inconclusive: NVML is silent, a process that may be anybody's, GPUs never listed or read.

    And what holds back the end of processes: the MPS servers and clients.
    """

    blind: bool = False
    unreadable: bool = False
    unseen: tuple[str, ...] = ()
    mps: Mps = msgspec.field(default_factory=Mps)
    missing: tuple[str, ...] = ()


class Frame(msgspec.Struct, omit_defaults=True, kw_only=True, frozen=True):
    """What one cycle changed; None and empty: nothing. Times are milliseconds.

    `at_ms` counts from the beginning of the body that the frame is in, `held_ms` back from `at_ms` to the cycle before,
    which still read the old state. `wall_ms` is what the wall clock has gone ahead of the boot clock since the body
    began. In `memory` and `used` a number (of the GPU in its list, of the holder) stands before each amount of bytes.
    `synced_ms` is a moment of CLOCK_BOOTTIME, LIVE or NEVER. A `full` frame begins with an empty node.
    """

    at_ms: int = msgspec.field(name="t")
    held_ms: int = msgspec.field(name="h", default=1000)
    wall_ms: int = msgspec.field(name="w", default=0)
    full: bool = msgspec.field(name="f", default=False)
    interval_ms: int | None = msgspec.field(name="i", default=None)
    node: Node | None = msgspec.field(name="n", default=None)
    namespaces: dict[str, dict[str, str]] | None = msgspec.field(name="l", default=None)
    gpus: tuple[Gpu, ...] | None = msgspec.field(name="g", default=None)
    memory: tuple[int | None, ...] = msgspec.field(name="m", default=())
    pods: tuple[Pod, ...] = msgspec.field(name="p", default=())
    gone_pods: tuple[str, ...] = msgspec.field(name="q", default=())
    holders: tuple[RecordedProcess, ...] = msgspec.field(name="k", default=())
    used: tuple[int | None, ...] = msgspec.field(name="u", default=())
    gone: tuple[int, ...] = msgspec.field(name="x", default=())
    dark: Dark | None = msgspec.field(name="d", default=None)
    synced_ms: int | None = msgspec.field(name="s", default=None)


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(tuple[Frame, ...])


def pack(frames: Iterable[Frame]) -> bytes:
    """Frames as one body; UnicodeEncodeError or OverflowError for what MessagePack cannot hold."""
    return zlib.compress(_ENCODER.encode(tuple(frames)), 6)


def unpack(body: bytes) -> tuple[Frame, ...]:
    """The frames of a body; ValueError if it is none."""
    try:
        unpacker = zlib.decompressobj()
        return _DECODER.decode(unpacker.decompress(body, _LARGEST))
    except (zlib.error, msgspec.MsgspecError) as error:
        raise ValueError(str(error)) from error


MOVED: Final = 64 * 2**20  # less than the memory of one context, which the allowance has to cover anyway

# All that a holder says of a process but its number.
_Place = tuple[int, int, str, str, str, str, bool | None, bool, bool]


@dataclass(slots=True)
class _Slot:
    number: int
    used: int | None


class RecordedProcesses:
    """The processes that are kept, with the bytes that the frames say."""

    def __init__(self) -> None:
        self._slots: dict[_Place, _Slot] = {}
        self._next_number = 0
        self._uses: tuple[AttributedUse, ...] | None = None

    def look(self, uses: tuple[AttributedUse, ...], exact: set[str]) -> dict[str, tuple[Any, ...]]:
        """The fields `gone`, `holders` and `used` of a frame.

        All bytes of a pod are kept together, exactly, where one of its processes has moved, come or gone, and where its
        UID is in `exact`: their sum is then right to the byte.
        """
        if uses is self._uses and not exact:
            return {"gone": ()}  # the very uses of the last time
        self._uses, exact = uses, set(exact)
        seen: dict[_Place, AttributedUse] = {}
        for use in uses:
            place = _place(use)
            seen[place] = use
            slot = self._slots.get(place)
            if slot is None or has_moved(slot.used, use.used):
                exact.add(use.uid)
        gone = self._slots.keys() - seen.keys() if len(seen) != len(self._slots) or exact else set()
        exact.update(place[2] for place in gone)
        numbers = tuple(sorted(self._slots.pop(place).number for place in gone))
        return {"gone": numbers, **(self._written(seen, exact) if exact else {})}

    def _written(self, seen: dict[_Place, AttributedUse], exact: set[str]) -> dict[str, tuple[Any, ...]]:
        holders: list[RecordedProcess] = []
        used: list[int | None] = []
        for place, use in seen.items():
            slot = self._slots.get(place)
            if use.uid not in exact or (slot is not None and slot.used == use.used):
                continue
            if slot is None:
                slot = self._slots[place] = _Slot(self._next_number, None)
                self._next_number += 1
                holders.append(RecordedProcess(slot.number, *place))
            slot.used = use.used
            used += (slot.number, use.used)
        return {"holders": tuple(holders), "used": tuple(used)}


def _place(use: AttributedUse) -> _Place:
    who = use.key.pid, use.key.start_ticks, use.uid, use.container, use.gpu, use.name
    return (*who, use.mps, use.mps_server, use.serves_others)


def has_moved(kept: int | None, now: int | None) -> bool:
    """Whether an amount is too far from the one that is kept, or has become known or unknown."""
    if kept is None or now is None:
        return kept is not now
    return abs(now - kept) > MOVED


_LONGEST: Final = 256  # of an annotation's value: no amount and no switch is longer
_MOST: Final = 100  # of annotations; the shortest, since the API server allows 256 KiB of them
_NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


def reduced(pod: Pod) -> Pod:
    """A pod without what only attribution needs, and with bounded annotations: what is too long keeps its key."""
    return replace(
        pod,
        containers=tuple(replace(each, ids=frozenset()) for each in pod.containers),
        config_hash=None,
        annotations=_bounded(pod.annotations),
    )


def asks_for_devices(pod: Pod) -> bool:
    """Whether it asks for any resource that Kubernetes does not know by itself."""
    names = (name for container in pod.containers for name in container.resources)
    return any(name not in _NATIVE and not name.startswith("hugepages-") for name in names)


def changed_pods(now: Iterable[Pod], kept: Mapping[str, Pod]) -> tuple[Pod, ...]:
    """The pods that are new or different."""
    return tuple(pod for pod in now if kept.get(pod.uid) != pod)


def _bounded(annotations: Mapping[str, str]) -> dict[str, str]:
    # `kubectl apply` writes the whole object into an annotation of its own, which says nothing new.
    short = {
        key: value if len(value) <= _LONGEST else ""
        for key, value in annotations.items()
        if key != "kubectl.kubernetes.io/last-applied-configuration"
    }
    if len(short) <= _MOST:
        return short
    ordered = sorted(short, key=lambda key: (len(key) + len(short[key]), key))
    return {key: short[key] for key in ordered[:_MOST]}


_FRESH_S: Final = 5.0  # a pod list of this age is as good as one of now; its age is kept from here on

Fields = dict[str, Any]


class Differ:
    """Compares each cycle with what the frames before it say; the first cycle gives everything."""

    def __init__(self) -> None:
        self._fields: Fields = {}
        self._interval_s: float | None = None
        self._node: object = None
        self._namespaces: object = None
        self._all_namespaces: object = None
        self._dark: Dark | None = None
        self._synced_ms: int | None = None
        self._seen_gpus: tuple[Gpu, ...] | None = None
        self._gpus: list[Gpu] = []
        self._short: frozenset[str] = frozenset()
        self._pod_list: tuple[Pod, ...] | None = None
        self._pods: dict[str, tuple[Pod, Pod]] = {}
        self._attribution: object = None
        self._assessments: object = None
        self._holders = RecordedProcesses()
        self._judged: dict[AccountKey, Assessment] = {}
        self._marks: dict[AccountKey, object] = {}

    def changes(self, report: CycleReport) -> Fields:
        """The fields of the frame that this cycle needs; none: everything is as it was kept."""
        self._fields = {}
        self._look_at_ground(report)
        if report.snapshot.gpus != self._seen_gpus:
            self._look_at_gpus(report)
        entries = report.plan.entries
        decides = bool(entries) and any(entry.taken or entry.news for entry in entries)
        is_same = report.attribution is self._attribution and report.assessments is self._assessments
        if not is_same or report.pods.pods is not self._pod_list or report.namespaces is not self._all_namespaces:
            self._set("dark", _dark(report.snapshot, report.attribution))
            self._look_at_pods(report)
            self._look_at_namespaces(report)
            self._look_at_uses(report, self._crossed(report))
        if decides:
            # Whoever decides by the same bytes comes to the same victim, and to the same order among several.
            self._look_at_uses(report, {entry.account.uid for entry in entries})
        self._attribution, self._assessments = report.attribution, report.assessments
        return self._fields

    def _set(self, name: str, value: object) -> None:
        """Put a value into the frame if it is another than the one that is kept."""
        if getattr(self, f"_{name}") != value:
            setattr(self, f"_{name}", value)
            self._fields[name] = value

    def _look_at_ground(self, report: CycleReport) -> None:
        if report.policy.interval_s != self._interval_s:
            self._interval_s = report.policy.interval_s
            self._fields["interval_ms"] = round(self._interval_s * 1000)
        if report.node is not self._node:
            self._set("node", report.node)
        if self._dark is None or report.snapshot.blind != self._dark.blind:
            self._set("dark", _dark(report.snapshot, report.attribution))
        self._set("synced_ms", _synced_ms(report.pods, report))

    def _look_at_gpus(self, report: CycleReport) -> None:
        gpus = report.snapshot.gpus
        short = short_cards(gpus, report.policy.pressure.free_below)
        if [replace(gpu, used=None) for gpu in gpus] != [replace(gpu, used=None) for gpu in self._gpus]:
            self._gpus = list(gpus)
            self._fields["gpus"] = gpus
        else:
            moved: list[int | None] = []
            for index, gpu in enumerate(gpus):
                crossed = (gpu.uuid in short) is not (gpu.uuid in self._short)
                if crossed or has_moved(self._gpus[index].used, gpu.used):
                    moved += (index, gpu.used)
                    self._gpus[index] = gpu
            if moved:
                self._fields["memory"] = tuple(moved)
        self._seen_gpus, self._short = gpus, short

    def _look_at_pods(self, report: CycleReport) -> None:
        wanted = {use.uid for use in report.attribution.attributed}
        wanted.update(assessment.account.uid for assessment in report.assessments)
        if report.pods.pods is self._pod_list and wanted <= self._pods.keys():
            return
        self._pod_list = report.pods.pods
        new, present = [], set()
        for pod in report.pods.pods:
            present.add(pod.uid)
            original, kept = self._pods.get(pod.uid, (None, None))
            if original is pod or (kept is None and pod.uid not in wanted and not asks_for_devices(pod)):
                continue
            less = reduced(pod)
            self._pods[pod.uid] = (pod, less)
            if less != kept:
                new.append(less)
        gone = self._pods.keys() - present
        for uid in gone:
            del self._pods[uid]
        self._fields |= {"pods": tuple(new)} if new else {}
        self._fields |= {"gone_pods": tuple(sorted(gone))} if gone else {}

    def _look_at_namespaces(self, report: CycleReport) -> None:
        self._all_namespaces = every = report.namespaces
        if every or self._namespaces:
            names = sorted({kept.namespace for _, kept in self._pods.values()} & every.keys())
            self._set("namespaces", {name: dict(every[name]) for name in names})

    def _crossed(self, report: CycleReport) -> set[str]:
        """The pods that stand otherwise to a mark of the policy in force than they did: their bytes are kept exactly.

        Replaying under that same policy then sees every crossing where it was.
        """
        crossed: set[str] = set()
        judged: dict[AccountKey, Assessment] = {}
        for each in report.assessments:
            judged[each.account] = each
            if each is self._judged.get(each.account):
                continue
            stands = (
                each.verdict,
                each.used is None,
                tuple(step_reading.reading for step_reading in step_readings(each, stale=False)),
            )
            if self._marks.get(each.account) != stands:
                self._marks[each.account] = stands
                crossed.add(each.account.uid)
        if judged.keys() != self._judged.keys():
            self._marks = {account: stands for account, stands in self._marks.items() if account in judged}
        self._judged = judged
        return crossed

    def _look_at_uses(self, report: CycleReport, exact: set[str]) -> None:
        for name, values in self._holders.look(report.attribution.attributed, exact).items():
            if values:
                self._fields[name] = (*self._fields.get(name, ()), *values)


def _dark(snapshot: Snapshot, attribution: Attribution) -> Dark:
    unreadable = {pid for pid, process in snapshot.processes.items() if process.place.kind is PlaceKind.UNREADABLE}
    return Dark(
        blind=snapshot.blind,
        unreadable=any(use.pid in unreadable and use.used != 0 for use in snapshot.uses),
        unseen=tuple(sorted(snapshot.unseen)),
        mps=Mps.of(snapshot, attribution),
        missing=tuple(sorted(snapshot.missing)),
    )


def _synced_ms(pods: PodList, report: CycleReport) -> int:
    synced = pods.synced
    if synced is None or synced.boot_id != report.at.boot_id:
        return NEVER
    fresh_s = min(_FRESH_S, report.policy.stale_after_s / 2)
    return LIVE if report.at.boottime_s - synced.boottime_s <= fresh_s else round(synced.boottime_s * 1000)
