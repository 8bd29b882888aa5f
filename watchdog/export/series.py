"""Metric families from plain values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from watchdog.export.histogram import Histogram
from watchdog.export.phrases import inert

Labels = tuple[str, ...]
_PREFIX: Final = "gpu_watchdog_"


def gauge(name: str, help_: str, labels: Sequence[str], series: Iterable[tuple[Labels, float | None]]) -> Metric:
    """A gauge; a series without a value is left out."""
    family = GaugeMetricFamily(_PREFIX + name, help_, labels=labels)
    for values, value in series:
        if value is not None:
            family.add_metric(_inert(values), value)
    return family


def single(name: str, help_: str, value: float | None) -> Metric:
    """A gauge without labels."""
    return gauge(name, help_, (), [((), value)])


def info(name: str, help_: str, labels: Sequence[str], series: Iterable[Labels]) -> Metric:
    """Series whose value is always 1; `name` goes without its `_info`."""
    family = InfoMetricFamily(_PREFIX + name, help_, labels=labels)
    for values in series:
        family.add_metric(_inert(values), {})
    return family


def counter(name: str, help_: str, labels: Sequence[str], series: Mapping[Labels, int]) -> Metric:
    """A counter; `name` goes without its `_total`."""
    family = CounterMetricFamily(_PREFIX + name, help_, labels=labels)
    for values, value in series.items():
        family.add_metric(_inert(values), value)
    return family


def histogram(name: str, help_: str, labels: Sequence[str], series: Mapping[Labels, Histogram]) -> Metric:
    """A histogram of seconds."""
    family = HistogramMetricFamily(_PREFIX + name, help_, labels=labels)
    for values, value in series.items():
        family.add_metric(_inert(values), value.buckets, value.total)
    return family


def _inert(values: Labels) -> list[str]:
    # A lone surrogate would make the whole page fail to be encoded.
    return [value if value.isprintable() else inert(value) for value in values]
