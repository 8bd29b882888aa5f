"""The page of /metrics, in both formats: which one is asked for, and the library's encoder for it.

The library's own negotiation raises TypeError on a version that is no number (prometheus_client 0.26), so that any
client could make a scrape fail; the choice is made here.
"""

from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header names OpenMetrics 1.x, as Prometheus does by default."""
    for offer in accept.split(","):
        kind, *parameters = (part.strip() for part in offer.split(";"))
        if kind == "application/openmetrics-text":
            versions = [each.removeprefix("version=") for each in parameters if each.startswith("version=")]
            if not versions or versions[0].split(".")[0] == "1":
                return True
    return False


def render(registry: CollectorRegistry, *, openmetrics: bool) -> bytes:
    """Every metric of a registry as text."""
    if openmetrics:
        page: bytes = generate_openmetrics(registry)  # type: ignore[no-untyped-call]
        return page
    return generate_latest(registry)
