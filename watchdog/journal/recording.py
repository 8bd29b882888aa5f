"""The format of the recording: frames with what each cycle changed, and how they are computed."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from watchdog.core.assess import short_cards
from watchdog.core.assessment import AccountKey, AttributedUse, ContainerKey
from watchdog.core.keys import WantedKeys, keys_of
from watchdog.core.ladder import step_readings
from watchdog.core.model import Gpu, MpsSigns, Node, PlaceKind, Pod, PodKeys, ProcessKey
from watchdog.core.mps import Mps
from watchdog.core.plan import CycleReport

LIVE: Final = -1  # the pod list is as old as the cycle itself
NEVER: Final = -2  # there is no pod list
_NO_SIGNS: Final = MpsSigns()
_LARGEST: Final = 64 * 2**20  # bytes of one unpacked body; the recorder writes some kilobytes


class RecordedProcess(msgspec.Struct, array_like=True, frozen=True):
    """A process of a pod on one GPU."""

    # By this, later frames refer to it.
    number: int
    pid: int
    start_ticks: int
    # The UID of its pod.
    uid: str
    # The name of its container.
    container: str
    gpu: str
    name: str
    # Three signs of MPS, as in `MpsSigns`.
    client: bool | None = False
    server: bool = False
    privileged: bool = False
    unlisted: str = ""

    @property
    def use(self) -> AttributedUse:
        """Its use of the GPU, of an amount that is not known."""
        signs = MpsSigns(client=self.client, server=self.server, privileged=self.privileged)
        return AttributedUse(
            key=ProcessKey(pid=self.pid, start_ticks=self.start_ticks),
            uid=self.uid,
            container=self.container,
            gpu=self.gpu,
            used=None,
            name=self.name,
            mps=signs if signs != _NO_SIGNS else None,
            unlisted=self.unlisted,
        )


class Hidden(msgspec.Struct, array_like=True, frozen=True):
    """What makes readings inconclusive."""

    # Whether the driver is silent.
    blind: bool = False
    # Whether the pod of some process is unknown.
    unreadable: bool = False
    # GPUs whose processes were never listed.
    unseen: tuple[str, ...] = ()
    # What shows that ending processes would break other pods' work: the MPS servers and clients.
    hazards: Mps = msgspec.field(default_factory=Mps)
    # GPUs that were never read.
    missing: tuple[str, ...] = ()
    # The containers (pod, ID) that should have been in the pod list by then.
    overdue: tuple[ContainerKey, ...] = ()
    # The UUIDs of the cards in MIG mode.
    parents: tuple[str, ...] = ()


class Frame(msgspec.Struct, omit_defaults=True, kw_only=True, frozen=True):
    """What one cycle changed; None or empty: nothing. Times are milliseconds."""

    # Since the start of the frame's body.
    at_ms: int = msgspec.field(name="t")
    # Back from `at_ms` to the previous cycle, which still read the old state.
    held_ms: int = msgspec.field(name="h", default=1000)
    # How far the wall clock has gained on the boot clock since the start of the body.
    wall_ms: int = msgspec.field(name="w", default=0)
    # Whether the frame applies to an empty node.
    full: bool = msgspec.field(name="f", default=False)
    interval_ms: int | None = msgspec.field(name="i", default=None)
    node: Node | None = msgspec.field(name="n", default=None)
    namespaces: dict[str, dict[str, str]] | None = msgspec.field(name="l", default=None)
    gpus: tuple[Gpu, ...] | None = msgspec.field(name="g", default=None)
    # Pairs: the index of a GPU, and its bytes in use.
    memory: tuple[int | None, ...] = msgspec.field(name="m", default=())
    pods: tuple[Pod, ...] = msgspec.field(name="p", default=())
    gone_pods: tuple[str, ...] = msgspec.field(name="q", default=())
    processes: tuple[RecordedProcess, ...] = msgspec.field(name="k", default=())
    # Pairs: the number of a process, and the bytes that it uses.
    used: tuple[int | None, ...] = msgspec.field(name="u", default=())
    # The numbers of processes.
    gone: tuple[int, ...] = msgspec.field(name="x", default=())
    hidden: Hidden | None = msgspec.field(name="d", default=None)
    # A time of CLOCK_BOOTTIME, LIVE or NEVER.
    synced_ms: int | None = msgspec.field(name="s", default=None)

    @property
    def only_moves(self) -> bool:
        """Whether it changes nothing but how many bytes processes and GPUs use."""
        objects = (self.node, self.namespaces, self.gpus, self.hidden, self.interval_ms)
        lists = self.pods, self.gone_pods, self.processes, self.gone
        return not (self.full or any(each is not None for each in objects) or any(lists))


_ENCODER: Final = msgspec.msgpack.Encoder()
_POD_DECODER: Final = msgspec.msgpack.Decoder(Pod)
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


def pack_pod(pod: Pod) -> bytes:
    """A pod as bytes; UnicodeEncodeError or OverflowError for what MessagePack can't hold."""
    return _ENCODER.encode(pod)


def unpack_pod(body: bytes) -> Pod:
    """The pod of these bytes; ValueError if they are none."""
    try:
        return _POD_DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error


MOVED: Final = 64 * 2**20  # less than the memory of one context, which the allowance covers anyway

# All fields of a RecordedProcess except its number.
_Place = tuple[int, int, str, str, str, str, bool | None, bool, bool, str]


@dataclass(slots=True)
class _Slot:
    number: int
    used: int | None


class RecordedProcesses:
    """The recorded processes, with their bytes as of the last frames."""

    def __init__(self) -> None:
        self._slots: dict[_Place, _Slot] = {}
        self._next_number = 0

    def encode(self, uses: tuple[AttributedUse, ...], exact: set[str]) -> dict[str, tuple[Any, ...]]:
        """The fields `gone`, `processes` and `used` of a frame.

        All amounts of a pod are recorded exactly, so that their sum is exact, in two cases: one of its processes has
        changed, started or ended, or its UID is in `exact` (which this extends).
        """
        seen = {_place(use): use for use in uses}
        for place, use in seen.items():
            slot = self._slots.get(place)
            if slot is None or has_moved(slot.used, use.used):
                exact.add(use.uid)
        gone = self._slots.keys() - seen.keys() if len(seen) != len(self._slots) or exact else set()
        exact.update(place[2] for place in gone)
        numbers = tuple(sorted(self._slots.pop(place).number for place in gone))
        return {"gone": numbers, **(self._written(seen, exact) if exact else {})}

    def _written(self, seen: dict[_Place, AttributedUse], exact: set[str]) -> dict[str, tuple[Any, ...]]:
        processes: list[RecordedProcess] = []
        used: list[int | None] = []
        for place, use in seen.items():
            slot = self._slots.get(place)
            if use.uid not in exact or (slot is not None and slot.used == use.used):
                continue
            if slot is None:
                slot = self._slots[place] = _Slot(self._next_number, None)
                self._next_number += 1
                processes.append(RecordedProcess(slot.number, *place))
            slot.used = use.used
            used += (slot.number, use.used)
        return {"processes": tuple(processes), "used": tuple(used)}


def _place(use: AttributedUse) -> _Place:
    who = use.key.pid, use.key.start_ticks, use.uid, use.container, use.gpu, use.name
    signs = use.mps or _NO_SIGNS
    return (*who, signs.client, signs.server, signs.privileged, use.unlisted)


def has_moved(kept: int | None, now: int | None) -> bool:
    """Whether an amount differs too much from the recorded one, or has become known or unknown."""
    if kept is None or now is None:
        return kept is not now
    return abs(now - kept) > MOVED


_LONGEST: Final = 256  # characters of an annotation's value: no amount or switch is longer
_MOST: Final = 100  # annotations that the policy does not name, the shortest ones: there may be 256 KiB of them
_NO_KEYS: Final = PodKeys()
_NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


def reduced(pod: Pod, keys: PodKeys = _NO_KEYS) -> Pod:
    """A pod without what only attribution needs, and with limited annotations; too long values become empty.

    The annotations of `keys` stay, whatever else it carries.
    """
    return replace(
        pod,
        containers=tuple(replace(each, ids=frozenset()) if each.ids else each for each in pod.containers),
        config_hash=None,
        annotations=_bounded(pod, keys),
        keys=None,
    )


def asks_for_devices(pod: Pod) -> bool:
    """Whether a pod requests any extended resource, or has a claim."""
    names = (name for container in pod.containers for name in container.resources)
    return bool(pod.claims) or any(name not in _NATIVE and not name.startswith("hugepages-") for name in names)


def _bounded(pod: Pod, keys: PodKeys) -> dict[str, str]:
    # `kubectl apply` writes the whole object into this annotation, which is redundant.
    short = {
        key: value if len(value) <= _LONGEST else ""
        for key, value in pod.annotations.items()
        if key != "kubectl.kubernetes.io/last-applied-configuration"
    }
    if len(short) <= _MOST:
        return short
    wanted = WantedKeys(keys.annotations, (container.name for container in pod.containers))
    named = {key: value for key, value in short.items() if wanted.names(key)}
    others = short.keys() - named.keys()
    ordered = sorted(others, key=lambda key: (not wanted.matches(key), len(key) + len(short[key]), key))
    return named | {key: short[key] for key in ordered[:_MOST]}


_FRESH_S: Final = 5.0  # a pod list up to this age counts as current; beyond, its age is recorded

Fields = dict[str, Any]


class FrameEncoder:
    """Computes what a cycle changes against the previous frames; the first cycle gives everything."""

    def __init__(self) -> None:
        self._fields: Fields = {}
        self._recorded: Fields = {}  # fields whose values are recorded whole, as of the last frames
        self._gpus: list[Gpu] = []
        self._short: frozenset[str] = frozenset()
        self._pods: dict[str, Pod] = {}
        self._sources: dict[str, Pod] = {}  # what they were made from, compared by identity
        self._keys = _NO_KEYS
        self._processes = RecordedProcesses()
        self._sides: dict[AccountKey, object] = {}

    def changes(self, report: CycleReport) -> Fields:
        """The fields of this cycle's frame; empty if nothing has changed."""
        self._fields = {}
        self._compare_basics(report)
        self._compare_gpus(report)
        self._compare_pods(report)
        self._compare_namespaces(report)
        exact, entries = self._crossed(report), report.plan.entries
        if any(entry.taken or entry.is_new for entry in entries):
            # With exact bytes a replay finds the same victim, and the same order among several.
            exact |= {entry.account.uid for entry in entries}
        uses = self._processes.encode(report.attribution.attributed, exact)
        self._fields |= {name: values for name, values in uses.items() if values}
        return self._fields

    def _set(self, name: str, value: object) -> None:
        """Put a value into the frame if it differs from the recorded one."""
        if self._recorded.get(name) != value:
            self._recorded[name] = self._fields[name] = value

    def _compare_basics(self, report: CycleReport) -> None:
        self._set("interval_ms", round(report.policy.interval_s * 1000))
        self._set("node", report.node)
        self._set("hidden", _hidden(report))
        self._set("synced_ms", _synced_ms(report))

    def _compare_gpus(self, report: CycleReport) -> None:
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
        self._short = short

    def _compare_pods(self, report: CycleReport) -> None:
        wanted = {use.uid for use in report.attribution.attributed}
        wanted.update(assessment.account.uid for assessment in report.assessments)
        new, present = [], set()
        keys = keys_of(report.policy)
        if keys != self._keys:
            self._keys, self._sources = keys, {}
        for pod in report.pods.pods:
            present.add(pod.uid)
            if self._sources.get(pod.uid) is pod:
                continue
            kept = self._pods.get(pod.uid)
            if kept is None and pod.uid not in wanted and (pod.is_finished or not asks_for_devices(pod)):
                continue
            less, self._sources[pod.uid] = reduced(pod, keys), pod
            if less != kept:
                self._pods[pod.uid] = less
                new.append(less)
        gone = self._pods.keys() - present
        for uid in gone:
            del self._pods[uid]
            self._sources.pop(uid, None)
        self._fields |= {"pods": tuple(new)} if new else {}
        self._fields |= {"gone_pods": tuple(sorted(gone))} if gone else {}

    def _compare_namespaces(self, report: CycleReport) -> None:
        labels = report.namespaces
        if labels or self._recorded.get("namespaces"):
            names = sorted({pod.namespace for pod in self._pods.values()} & labels.keys())
            self._set("namespaces", {name: dict(labels[name]) for name in names})

    def _crossed(self, report: CycleReport) -> set[str]:
        """The pods that have crossed a threshold of the current policy, whose bytes are recorded exactly.

        Replaying under the same policy then finds every crossing at the right time.
        """
        before, self._sides = self._sides, {}
        for assessment in report.assessments:
            readings = tuple(step.reading for step in step_readings(assessment, stale=False))
            self._sides[assessment.account] = assessment.verdict, assessment.used is None, readings
        return {account.uid for account, sides in self._sides.items() if before.get(account) != sides}


def _hidden(report: CycleReport) -> Hidden:
    snapshot = report.snapshot
    unreadable = {pid for pid, process in snapshot.processes.items() if process.place.kind is PlaceKind.UNREADABLE}
    return Hidden(
        blind=snapshot.blind,
        unreadable=any(use.pid in unreadable and use.used != 0 for use in snapshot.uses),
        unseen=tuple(sorted(snapshot.unseen)),
        hazards=Mps.of(snapshot, report.attribution, report.drains),
        missing=tuple(sorted(snapshot.missing)),
        overdue=tuple(sorted(report.overdue)),
        parents=tuple(parent.uuid for parent in snapshot.parents),
    )


def _synced_ms(report: CycleReport) -> int:
    synced = report.pods.synced
    if synced is None or synced.boot_id != report.at.boot_id:
        return NEVER
    fresh_s = min(_FRESH_S, report.policy.stale_after_s / 2)
    return LIVE if report.at.boottime_s - synced.boottime_s <= fresh_s else round(synced.boottime_s * 1000)
