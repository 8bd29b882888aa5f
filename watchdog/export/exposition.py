"""The page of /metrics, and which format a request asks for.

The library encodes, but does not choose: its negotiation raises TypeError on a version that is no number
(prometheus_client 0.26), so that any client could make a scrape fail, and it answers in whatever version it is asked
for. Here there are two formats, so that two pages a cycle are enough for all clients.
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
OPENMETRICS: Final = CONTENT_TYPE_LATEST
_OPENMETRICS_KIND: Final = "application/openmetrics-text"
_TEXT_KIND: Final = "text/plain"


def render(registry: CollectorRegistry, *, openmetrics: bool) -> bytes:
    """Every metric of a registry, in one of the two formats."""
    if openmetrics:
        page: bytes = generate_openmetrics(registry)  # type: ignore[no-untyped-call]
        return page
    return generate_latest(registry)


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header puts OpenMetrics 1.x before the text format, as Prometheus does by default."""
    offers = list(_offers(accept))
    rich = max((q for kind, version, q in offers if kind == _OPENMETRICS_KIND and version in ("", "1")), default=0.0)
    # What `*/*` would take too is less wanted than what is named; an equal wish goes to the richer format.
    plain = max((q for kind, _, q in offers if kind == _TEXT_KIND), default=0.0)
    return rich > 0 and rich >= plain


def wants_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header takes gzip."""
    asked_for = {kind: q for kind, _, q in _offers(accept_encoding)}
    return asked_for.get("gzip", asked_for.get("*", 0.0)) > 0


def _offers(header: str) -> Iterator[tuple[str, str, float]]:
    """Each entry of a header of wishes: its name, the first number of its version, and how much it is wished for."""
    for offer in header.lower().split(","):
        kind, *parameters = (part.strip() for part in offer.split(";"))
        values = dict(part.partition("=")[::2] for part in parameters)
        yield kind, values.get("version", "").strip('"').split(".")[0], _weight(values.get("q", "1"))


def _weight(text: str) -> float:
    """A quality value; what is none counts as 1, as if it had been left out."""
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 1.0
