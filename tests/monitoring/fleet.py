"""The metrics of many nodes as blocks of a Prometheus, as if it had scraped them all in the last minutes."""

import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.monitoring.programs import find

_GIB: Final = 2**30
# The moments of the samples, relative to now: an instant query looks back for 5 minutes.
_MOMENTS_S: Final = (0.0, 240.0)
_SCRAPED_EVERY_S: Final = 60
_LIMIT_S: Final = 600.0
_Series = tuple[str, Mapping[str, str], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetNode:
    """A node of the fleet; of its accounts the first ones are over their limit."""

    name: str
    cluster: str = ""
    cards: int = 8
    accounts: int = 12
    over: int = 0
    # Whether the last scrape of its daemon succeeded.
    is_scraped: bool = True
    is_enforcing: bool = True
    suspended: str = ""
    # How many of its cards do not answer.
    down: int = 0
    # How busy each of the others is, in turn; None: unknown.
    busy: tuple[float | None, ...] = (0.5,)
    # How many accounts, after those that are over, hold memory idle.
    idle: int = 0
    # What pods of namespaces have held, used and not used for the last two hours, in cards.
    spent: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    # How long ago its daemon started (seconds): its counters began at 0 then.
    started_s: float = 7200.0

    def counters(self, ago_s: float) -> Iterator[_Series]:
        """Its card-seconds as they were so long ago."""
        job = {"job": "gpu-memory-watchdog", "node": self.name, **({"cluster": self.cluster} if self.cluster else {})}
        since_s = self.started_s if ago_s <= self.started_s else 7200.0
        for namespace, parts in self.spent.items():
            for state, cards in zip(("held", "computing", "idle"), parts, strict=True):
                labels = {**job, "namespace": namespace, "state": state}
                yield "gpu_watchdog_namespace_card_seconds_total", labels, cards * (since_s - ago_s)

    def series(self, at_s: float) -> Iterator[_Series]:
        """What `top` asks for of this node, as its daemon's metrics and the scrape's own are at a moment."""
        job = {"job": "gpu-memory-watchdog", "node": self.name, **({"cluster": self.cluster} if self.cluster else {})}
        yield "up", {**job, "watchdog_pod": f"gpu-watchdog-{self.name}"}, float(self.is_scraped)
        if not self.is_scraped:
            return
        for name, more, value in (*self._own(at_s), *self._cards(), *self._accounts()):
            yield f"gpu_watchdog_{name}", {**job, **more}, value

    def _own(self, at_s: float) -> Iterator[_Series]:
        yield "last_cycle_timestamp_seconds", {}, at_s - 1.0
        yield "enforcing", {}, float(self.is_enforcing)
        yield "policy_info", {"mode": "enforce", "sha256": "x"}, 1.0
        yield "breaker_open", {}, 0.0
        yield "idle_after_seconds", {}, 7200.0
        for reason in ("stop_file", "hours"):
            yield "enforcement_suspended", {"reason": reason}, float(reason == self.suspended)
        for verdict, number in {"over": self.over, "within": self.accounts - self.over, "unknown": 0}.items():
            yield "accounts", {"verdict": verdict}, float(number)

    def _cards(self) -> Iterator[_Series]:
        for card in range(self.cards):
            gpu = {"gpu": f"GPU-{self.name}-{card}"}
            is_up = card >= self.down
            yield "gpu_up", gpu, float(is_up)
            if is_up:
                yield "gpu_memory_used_bytes", gpu, 40.0 * _GIB
                yield "gpu_memory_total_bytes", gpu, 80.0 * _GIB
                if (ratio := self.busy[card % len(self.busy)]) is not None:
                    yield "gpu_utilization_ratio", gpu, ratio

    def _accounts(self) -> Iterator[_Series]:
        for number in range(self.accounts):
            is_over = number < self.over
            of = {"namespace": f"team-{number % 5}", "pod": f"job-{self.name}-{number}", "rule": "notebooks"}
            labels = {**of, "container": "", "gpu": ""}
            yield "account_memory_used_bytes", labels, (12.0 if is_over else 2.0) * _GIB
            yield "account_memory_allowed_bytes", labels, 10.0 * _GIB
            yield "account_memory_declared_bytes", labels, 8.0 * _GIB
            yield "account_over_limit", labels, float(is_over)
            yield "account_idle_seconds", labels, 7800.0 if 0 <= number - self.over < self.idle else 600.0 * is_over


def write_blocks(data: Path, nodes: Iterable[FleetNode]) -> None:
    """Write what a Prometheus with this data folder knows of these nodes for the next nine minutes."""
    data.mkdir(parents=True)
    text = data.with_name("openmetrics")
    now_s, every = time.time(), tuple(nodes)
    with text.open("w", encoding="utf-8") as file:
        for moment_s in (now_s + each for each in _MOMENTS_S):
            for node in every:
                file.writelines(_line(*each, moment_s) for each in node.series(moment_s))
        for node in every:
            for ago_s in range(7200, -1, -_SCRAPED_EVERY_S) if node.spent else ():
                file.writelines(_line(*each, now_s - ago_s) for each in node.counters(ago_s))
        file.write("# EOF\n")
    command = (find("promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet", text, data)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    assert ended.returncode == 0, ended.stderr
    text.unlink()


def _line(name: str, labels: Mapping[str, str], value: float, at_s: float) -> str:
    written = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"{name}{{{written}}} {value!r} {at_s:.3f}\n"
