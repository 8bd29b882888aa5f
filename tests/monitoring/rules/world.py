"""What a Prometheus would have stored of daemons that are scraped every 30 s, and which alerts there should be when.

promtool's clock begins at the Unix epoch, and the hand-made nodes' at T0: their time stamps are moved by that.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Final, Literal, Self

from prometheus_client.parser import text_string_to_metric_families

from tests.report.build import Story, trainer_node
from tests.worlds import T0, at
from tools.release.address import PLACEHOLDER
from watchdog.core.model import Snapshot
from watchdog.core.plan import CycleReport
from watchdog.export.metrics import Metrics, render

STEP_S: Final = 30
_LONGEST_MIN: Final = 90
_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_:]*")
JOB: Final = "gpu-memory-watchdog"
RUNBOOKS: Final = f"{PLACEHOLDER}/docs/runbooks.md"
# What a moment of a scenario shows of its alert: that it is there; that it is not one step below the threshold, or just
# before `for` is over; that it goes; that it is as it should be after the daemon was started again.
Shows = Literal["fires", "below", "waits", "resolves", "restart"]
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """An alert that fires: the labels by which it differs from others of its name, and its texts."""

    labels: Labels
    summary: str
    description: str

    def on(self, labels: Labels) -> "Firing":
        """The same with other values of some labels."""
        return replace(self, labels={**self.labels, **labels})

    def but(self, old: str, new: str) -> "Firing":
        """The same with a part of the texts replaced."""
        summary, description = (text.replace(old, new) for text in (self.summary, self.description))
        return replace(self, summary=summary, description=description)


@dataclass(kw_only=True)
class Daemon:
    """A daemon of one node, and how Prometheus labels it. `is_up` says whether it answers."""

    world: "World"
    story: Story
    target: dict[str, str]
    metrics: Metrics = field(init=False)
    is_up: bool = True
    stored: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the collector that the process has."""
        self.metrics = Metrics(now=lambda: at(self.world.now_s))

    def see(self, seen: Snapshot, **more: Any) -> CycleReport:
        """One cycle, as the collector gets it; `more` are other fields of the report."""
        report = self.story.see(seen, **more)
        self.metrics.update(report)
        return report

    def sees(self, minutes: float, seen: Callable[[int], Snapshot], **more: Any) -> "World":
        """A cycle at each scrape up to this minute, of what the node is like by then."""
        for second in self.world.until(minutes):
            self.see(seen(second), **more)
        return self.world

    def all_is_well(self, minutes: float) -> "World":
        """The same, of a node where nothing is wrong."""
        return self.sees(minutes, partial(trainer_node, 4.0))

    def restart(self, minutes: float) -> "World":
        """It is away until then, and another process takes its place."""
        self.is_up = False
        self.world.wait(minutes)
        self.is_up = True
        self.begin_again()
        return self.world

    def begin_again(self, *, watchdog_pod: str | None = None) -> None:
        """Another process takes over, which has counted nothing yet; in another pod, if one is named."""
        self.__post_init__()
        if watchdog_pod is not None:
            self.names.clear()
            self.target = {**self.target, "watchdog_pod": watchdog_pod, "instance": f"{watchdog_pod}:9837"}


class World:
    """Series as they come in, one sample each 30 s; `cluster` is a label of all of them, unless it is empty.

    `neighbour` is another cluster in the same Prometheus, where all is well on nodes and pods of the same names.
    `alert` is the one that is expected.
    """

    def __init__(self, cluster: str = "", neighbour: str = "", alert: str = "") -> None:
        self.cluster = cluster
        self.alert = alert
        # As promtool tests them.
        self.checks: list[tuple[Shows, dict[str, Any]]] = []
        self.values: list[dict[str, object]] = []
        self._daemons: list[Daemon] = []
        self._fixed: dict[str, float] = {}
        self._samples: dict[str, dict[int, str]] = {}
        self._slot = -1
        self._stays = 0
        self._neighbour = neighbour

    @property
    def now_s(self) -> int:
        """The moment of the last scrape, in seconds from the beginning."""
        return (self._slot + self._stays) * STEP_S

    @property
    def series(self) -> Mapping[str, str]:
        """Every series, as promtool takes its values."""
        beside = _all_well(self._neighbour, self._slot) if self._neighbour else {}
        return {name: self._values(samples) for name, samples in self._samples.items()} | beside

    def daemon(self, node: str = "n1", **story: Any) -> Daemon:
        """A daemon that is scraped from now on; `story` is what its `Story` is made of."""
        pod = f"gpu-watchdog-{node}"
        own = {"job": JOB, "instance": f"{pod}:9837", "node": node, "watchdog_pod": pod, "watchdog_namespace": JOB}
        target = {**own, "cluster": self.cluster}
        made = Daemon(world=self, story=Story(**story), target=target)
        self._daemons.append(made)
        return made

    def remove(self, daemon: Daemon) -> None:
        """Prometheus does not find it any more: its series end."""
        self._daemons.remove(daemon)
        self._end(daemon.stored, self._slot + 1)

    def fix(self, name: str, value: float, **labels: str) -> None:
        """A series of another exporter that has this value from now on."""
        self._fixed[_series(name, {**labels, "cluster": self.cluster})] = value

    def until(self, minutes: float) -> Iterator[int]:
        """Each moment up to this one; what is done in the body of the loop is scraped right after it."""
        assert self.now_s < minutes * 60, "no time passes"
        while self.now_s < minutes * 60:
            self._slot += 1
            yield self.now_s
            self._scrape()

    def wait(self, minutes: float) -> Self:
        """No daemon completes a cycle until then, and scrapes go on."""
        for _ in self.until(minutes):
            pass
        return self

    def stay(self, days: int) -> None:
        """All is for this many days as the last scrape found it, and nothing can happen after that."""
        self._stays = days * 86400 // STEP_S

    def expect(self, shows: Shows, *alerts: Firing) -> None:
        """Say which alerts of the name fire now, each with all its labels and annotations, and no others."""
        common = {"cluster": self.cluster} if self.cluster else {}
        page = f"{RUNBOOKS}#{self.alert.lower()}"
        wanted = [
            {
                "exp_labels": {**common, **each.labels},
                "exp_annotations": {"summary": each.summary, "description": each.description, "runbook_url": page},
            }
            for each in alerts
        ]
        self.checks.append((shows, {"eval_time": f"{self.now_s}s", "alertname": self.alert, "exp_alerts": wanted}))

    def gives(self, expr: str, *samples: tuple[Labels, float]) -> None:
        """Say what an expression gives now; where it is a name alone, its samples have that name."""
        name = expr if _NAME.fullmatch(expr) else ""
        wanted = [
            {"labels": _series(name, {**labels, "cluster": self.cluster}), "value": value} for labels, value in samples
        ]
        self.values.append({"eval_time": f"{self.now_s}s", "expr": expr, "exp_samples": wanted})

    def _scrape(self) -> None:
        for series, value in self._fixed.items():
            self._store(series, value)
        for daemon in self._daemons:
            found = dict(_exposed(daemon)) if daemon.is_up else {}
            self._end(daemon.stored - found.keys() - {_series("up", daemon.target)}, self._slot)
            for series, value in found.items():
                self._store(series, value)
            self._store(_series("up", daemon.target), float(daemon.is_up))
            daemon.stored = {*found, _series("up", daemon.target)}

    def _store(self, series: str, value: float) -> None:
        self._samples.setdefault(series, {})[self._slot] = f"{value:.6f}".rstrip("0").rstrip(".")

    def _end(self, names: set[str], slot: int) -> None:
        """What a scrape does not find any more gets Prometheus's staleness marker: it does not linger."""
        for name in names:
            self._samples[name][slot] = "stale"

    def _values(self, samples: Mapping[int, str]) -> str:
        found = [samples.get(slot, "_") for slot in range(self._slot + 1)]
        stays = self._stays and found[-1] not in ("_", "stale")
        return " ".join([*found, f"{found[-1]}x{self._stays - 1}"] if stays else found)


@cache
def _of_a_quiet_cluster(name: str) -> Mapping[str, str]:
    world = World(name)
    daemons = world.daemon("n1"), world.daemon("n2")
    for second in world.until(_LONGEST_MIN):
        for each in daemons:
            each.see(trainer_node(4.0, second))
    return world.series


def _all_well(cluster: str, slot: int) -> dict[str, str]:
    """The series of two nodes of another cluster until then, where every pod is within its limit."""
    assert slot * STEP_S <= _LONGEST_MIN * 60
    found = _of_a_quiet_cluster(cluster)
    return {name: " ".join(values.split(" ")[: slot + 1]) for name, values in found.items()}


def _exposed(daemon: Daemon) -> Iterator[tuple[str, float]]:
    """What a scrape finds, by series; the line of each is parsed once."""
    for line in render(daemon.metrics.registry, openmetrics=False).decode().splitlines():
        if line.startswith("gpu_watchdog_"):
            key, _, value = line.rpartition(" ")
            if key not in daemon.names:
                daemon.names[key] = _named(line, daemon.target)
            yield daemon.names[key], float(value) - (T0 if "_timestamp_seconds" in key.partition("{")[0] else 0.0)


def _named(line: str, target: Labels) -> str:
    """The series of a line, with `honor_labels`: the metrics' own labels win over the target's."""
    (sample,) = (each for family in text_string_to_metric_families(line) for each in family.samples)
    return _series(sample.name, {**target, **sample.labels})


def _series(name: str, labels: Labels) -> str:
    """A series as PromQL writes it; Prometheus drops labels that are empty."""
    pairs = (f'{key}="{_quoted(value)}"' for key, value in sorted(labels.items()) if value)
    return f"{name}{{{','.join(pairs)}}}"


def _quoted(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
