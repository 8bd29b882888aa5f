"""What is on a page of metrics, as Prometheus's own parsers read it."""

from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from watchdog.core.plan import CycleReport
from watchdog.export.metrics import Metrics, render

POD = {"namespace": "a", "pod": "trainer"}
ACCOUNT = {**POD, "container": "", "gpu": "", "rule": "notebooks"}
Found = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(metrics: Metrics) -> Found:
    """Every sample, the same in both formats."""
    text = render(metrics.registry, openmetrics=False).decode()
    plain = samples(parse_text(text))
    page = render(metrics.registry, openmetrics=True).decode()
    rich = samples(parse_openmetrics(page))  # type: ignore[no-untyped-call]
    ours = {key for key in plain if key[0].startswith("gpu_watchdog_")}
    assert {key: plain[key] for key in ours} == {key: rich[key] for key in rich if key[0].startswith("gpu_watchdog_")}
    lines = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines)), "Prometheus refuses a page with the same series twice"
    return plain


def samples(families: Iterable[Metric]) -> Found:
    """The samples of families."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def after(*reports: CycleReport) -> Found:
    """What is read after these cycles."""
    metrics = Metrics()
    for report in reports:
        metrics.update(report)
    return read(metrics)


def value(found: Found, name: str, **labels: str) -> float | None:
    """One sample; None where there is none."""
    return found.get((f"gpu_watchdog_{name}", frozenset(labels.items())))


def series(found: Found, name: str) -> list[dict[str, str]]:
    """The labels of each series of this name."""
    return [dict(labels) for each, labels in found if each == f"gpu_watchdog_{name}"]


def values(found: Found, **labels: str) -> dict[str, float]:
    """The samples with exactly these labels, by name."""
    wanted = frozenset(labels.items())
    return {name.removeprefix("gpu_watchdog_"): value for (name, each), value in found.items() if each == wanted}
