"""The node as it stood at one moment of the past: what frames add up to, as the values that the core takes."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from watchdog.core.assessment import AttributedUse
from watchdog.core.model import UNREADABLE, Gpu, Node, Now, Pod, Process, ProcessKey, Snapshot, Use
from watchdog.past.frame import LIVE, NEVER, Dark, Frame

Uses = tuple[AttributedUse, ...]

# A process whose cgroup could not be read may be anybody's; which one it was has no part in any decision.
_NOBODY = Process(pid=0, key=None, place=UNREADABLE)


@dataclass(slots=True)
class _Known:
    """The uses of one pod, by the numbers of their holders."""

    by_number: dict[int, AttributedUse]
    uses: Uses | None = None


@dataclass(slots=True)
class Scene:
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
        """Take in what one pass changed; the UIDs of the pods that changed. ValueError if it does not fit."""
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
