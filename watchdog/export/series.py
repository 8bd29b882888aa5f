"""Metric families: what each is, and how it is made of plain values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

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
PREFIX: Final = "gpu_watchdog_"


class Kind(StrEnum):
    """The type of a family."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"  # a gauge that is always 1, to those who know no other


class Per(StrEnum):
    """What a family has one series of, for each set of the labels' values that are said elsewhere."""

    NODE = "node"
    CARD = "card"  # a GPU row, or a card in MIG mode, which is none
    GPU = "GPU"
    PLACE = "container and GPU"
    POD = "pod"
    ACCOUNT = "account"
    UNJUDGED = "account not judged"
    HELD = "account held back"
    ACTION = "action"
    WAY = "rule and action"
    DEED = "pod acted on"
    REASON = "reason"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric family: its name as queries have it, without the prefix, and what it means.

    `times` is how many series it has for each `per`.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Kind = Kind.GAUGE
    per: Per = Per.NODE
    times: int = 1


def gauge(family: Family, series: Iterable[tuple[Labels, float | None]]) -> Metric:
    """A gauge; a series without a value is left out."""
    made = GaugeMetricFamily(PREFIX + family.name, family.help, labels=family.labels)
    for values, value in series:
        if value is not None:
            made.add_metric(_inert(values), value)
    return made


def single(family: Family, value: float | None) -> Metric:
    """A gauge without labels."""
    return gauge(family, [((), value)])


def info(family: Family, series: Iterable[Labels]) -> Metric:
    """Series whose value is always 1."""
    made = InfoMetricFamily(_bare(family), family.help, labels=family.labels)
    for values in series:
        made.add_metric(_inert(values), {})
    return made


def counter(family: Family, series: Mapping[Labels, int]) -> Metric:
    """A counter."""
    made = CounterMetricFamily(_bare(family), family.help, labels=family.labels)
    for values, value in series.items():
        made.add_metric(_inert(values), value)
    return made


def histogram(family: Family, series: Mapping[Labels, Histogram]) -> Metric:
    """A histogram of seconds."""
    made = HistogramMetricFamily(PREFIX + family.name, family.help, labels=family.labels)
    for values, value in series.items():
        made.add_metric(_inert(values), value.buckets, value.total)
    return made


def _bare(family: Family) -> str:
    """The name that the library wants, which puts the suffix of the type behind it."""
    match family.kind:
        case Kind.COUNTER:
            return PREFIX + family.name.removesuffix("_total")
        case Kind.INFO:
            return PREFIX + family.name.removesuffix("_info")
        case Kind.GAUGE | Kind.HISTOGRAM:
            return PREFIX + family.name
        case _:
            assert_never(family.kind)


def _inert(values: Labels) -> list[str]:
    # A lone surrogate would make the whole page fail to be encoded.
    return [value if value.isprintable() else inert(value) for value in values]
