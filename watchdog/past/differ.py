"""What a pass changed against what has been kept: amounts when they move far enough, or across a mark."""

from dataclasses import replace
from typing import Any, Final

from watchdog.core.assess import short_cards
from watchdog.core.assessment import AccountKey, Assessment, Attribution
from watchdog.core.ladder import rungs
from watchdog.core.model import Gpu, PlaceKind, Pod, PodList, Snapshot
from watchdog.core.mps import Mps
from watchdog.core.plan import CycleReport
from watchdog.past.frame import LIVE, NEVER, Dark
from watchdog.past.holders import Holders, has_moved
from watchdog.past.kept import asks_for_devices, reduced

_FRESH_S: Final = 5.0  # a pod list of this age is as good as one of now; its age is kept from here on

Fields = dict[str, Any]


class Differ:
    """Compares each pass with what the frames before it say; the first pass gives everything."""

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
        self._holders = Holders()
        self._judged: dict[AccountKey, Assessment] = {}
        self._marks: dict[AccountKey, object] = {}

    def changes(self, report: CycleReport) -> Fields:
        """The fields of the frame that this pass needs; none: everything is as it was kept."""
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
        short = short_cards(gpus, report.policy.free_below)
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
            stands = (each.verdict, each.used is None, tuple(rung.reading for rung in rungs(each, stale=False)))
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
