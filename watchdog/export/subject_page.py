"""What the page of a pod and that of a GPU have in common: their address, their plots, their style."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self
from urllib.parse import unquote

from watchdog.core.model import Now
from watchdog.core.plan import CycleReport
from watchdog.export.names import AskedSubject, PodName, gpu_path, pod_path
from watchdog.export.page import STYLE, content_policy
from watchdog.export.page_headline import PageInput
from watchdog.export.plot import BusyPart, Level, Moment, Plot, busy_plot, plot
from watchdog.report.hour import HOUR_S, Hour, Point, Series
from watchdog.report.progress import Level as Urgency
from watchdog.report.recent import is_action
from watchdog.report.sentences.action import result_short
from watchdog.report.sentences.node import out_of_sight
from watchdog.report.status import RecentStatus, Status
from watchdog.report.text import inert

SUBJECT_STYLE: Final = STYLE + Path(__file__).with_name("subject.css").read_text(encoding="utf-8")
SUBJECT_POLICY: Final = content_policy(SUBJECT_STYLE)
REFRESH_S: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectQuery(AskedSubject):
    """Whose page is asked for."""

    # Whether the page does not refresh itself.
    is_still: bool = False

    @classmethod
    def of(cls, path: str, *, is_still: bool) -> Self | None:
        """The query of a path; None if the path has no names that could be those of a pod or a GPU."""
        kind, *parts = path.removeprefix("/").split("/")
        names = [unquote(part, errors="replace") for part in parts]
        if any("/" in name for name in names):
            return None
        if kind == "pods" and len(names) == 2 and pod_path(*names):
            return cls(namespace=names[0], pod=names[1], is_still=is_still)
        if kind == "gpus" and gpu_path("/".join(names)):
            return cls(gpu="/".join(names), is_still=is_still)
        return None

    @property
    def path(self) -> str:
        """The path of the page, from the status page."""
        return pod_path(self.namespace, self.pod) if self.pod else gpu_path(self.gpu)

    @property
    def root(self) -> str:
        """The status page, from this one; all links are relative, so that a proxy may put a path in front."""
        return "../" * self.path.count("/")

    def address(self, *, is_still: bool) -> str:
        """The same page, still or not, from itself."""
        return "?still" if is_still else self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectInput:
    """The input of the page of a pod or a GPU."""

    seen: PageInput
    # After a cycle.
    status: Status
    report: CycleReport
    hour: Hour
    now: Now
    query: SubjectQuery

    def draw(self, series: Sequence[Series], levels: Iterable[Level]) -> Plot:
        """The plot of the lives of one account or card, the oldest first."""
        now = self.now.boottime_s
        # While cycles complete, what the last one read still holds.
        known_s = now if self.seen.health.turns else self.report.at.boottime_s
        lives = [list(self.hour.points(each, now - HOUR_S, known_s, now)) for each in series]
        marks = [mark for each in series for mark in each.marks]
        moment, begins = Moment(now, self.now.wall_s), [each.first_s for each in series[1:]]
        drawn = plot(lives, marks, levels, moment, begins=begins, is_whole=self.hour.is_whole(series, now))
        return replace(drawn, busy=busy_plot(lives, self._parts(series, lives), moment))

    def _parts(self, series: Sequence[Series], lives: Sequence[Sequence[Point]]) -> list[BusyPart]:
        """The utilisation of each container on each GPU in these lives, by the order of the GPUs."""
        found: dict[tuple[str, str], dict[float, float]] = {}
        for each, points in zip(series, lives, strict=True):
            for part, busy in each.parts.items():
                ratios = {point.at_s: ratio for point in points if (ratio := busy.at(point.at_s)) is not None}
                found.setdefault((part.container, part.gpu), {}).update(ratios)
        order = {uuid: number for number, uuid in enumerate(self.seen.gpus)}
        keys = sorted(found, key=lambda key: (order.get(key[1], len(order)), key))
        return [BusyPart(self._part_name(*key, keys), found[key]) for key in keys]

    def _part_name(self, container: str, gpu: str, among: Sequence[tuple[str, str]]) -> str:
        """What sets a container on a GPU apart: its name, the GPU, or both."""
        name, label = inert(container) or "unlisted containers", self.seen.gpu(gpu).label
        if len({uuid for _, uuid in among}) < 2:
            return name
        return label if len({of for of, _ in among}) < 2 else f"{name} on {label}"


def action_row(action: RecentStatus, seen: PageInput, *, is_earlier: bool = False) -> dict[str, object]:
    """A recent action with all that is said about it; `is_earlier`: it was on an earlier pod of the page's name."""
    at_s, pod = action.at or 0.0, PodName(action.namespace or "", action.pod or "")
    return {
        "pod": pod,
        "subjects": (pod, seen.gpu(action.gpu or "")),
        "is_earlier": is_earlier,
        "container": action.container,
        "result": result_short(action),
        "css": (Urgency.BAD if is_action(action) else Urgency.WATCH).value,
        "when": f"{seen.clock(at_s)}, {seen.ago(at_s)}",
        "sentences": [sentence for sentence in (action.why, action.outcome) if sentence],
    }


def nothing_of(seen: SubjectInput) -> str:
    """That nothing is known of a pod or a GPU, what is known, what the daemon can't see, and where to look.

    Of a number that several MIG instances have: which they are.
    """
    query, status = seen.query, seen.status
    unseen = "".join(f"\n{sentence}" for sentence in out_of_sight(status))
    if query.gpu:
        paths = {uuid: f"/{name.path}" for uuid, name in seen.seen.gpus.items() if name.path}
        named = [paths[gpu.uuid] for gpu in query.gpus_of(status) if gpu.uuid in paths]
        if named:
            return (
                f"{len(named)} instances on node {inert(status.node)} have the number {query.gpu}: {', '.join(named)}"
            )
        names = ", ".join(paths.values()) or "none"
        return f"node {inert(status.node)} has no GPU {query.gpu}; its GPUs: {names}{unseen}"
    return (
        f"nothing was seen of pod {query.title} on node {inert(status.node)}: it uses and declares no GPU memory here, "
        "did not in the last hour, and no action on it is among the last ones. It may be on another node. Older "
        f"actions: `gpu-watchdog history --pod {query.title}` in the watchdog's pod{unseen}"
    )
