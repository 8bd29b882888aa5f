"""The page of /metrics as it goes out: which format, packed or not, and without a complaint of Prometheus's tools."""

import gzip
import shutil
import subprocess
from dataclasses import replace

import pytest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST

from tests.export.samples import read, series, value
from tests.node.support import cannot_run
from tests.report.build import Story, climbing, hostile_pod, killed, trainer
from tests.worlds import Gi, gpu, process, snapshot, use
from watchdog.export.endpoints import Endpoints
from watchdog.export.metrics import Metrics, render
from watchdog.export.web import HttpRequest, HttpResponse, route, wants_gzip, wants_openmetrics


def busy() -> Metrics:
    """Metrics of a daemon that has done something, with everything that it can export."""
    metrics = Metrics(lambda: {"written": 1, "limited": 0, "refused": 0, "dropped": 0})
    metrics.update(climbing(9))
    metrics.update(replace(climbing(10), outcomes=(killed(release_s=1.0, reaction_s=0.5),), suspended=("lock",)))
    return metrics


def scrape(metrics: Metrics, *, accept: str = "", accept_encoding: str = "") -> HttpResponse:
    """What a scrape with these headers gets."""
    return route(
        Endpoints(metrics, 1.0), HttpRequest(target="/metrics", accept=accept, accept_encoding=accept_encoding)
    )


# What Prometheus sends: 2.42 and 3.x by default, and with `scrape_protocols` turned round.
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
TEXT_FIRST = "text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.2"


@pytest.mark.parametrize(
    ("accept", "rich"),
    [
        ("", False), ("*/*", False), ("text/plain;version=0.0.4", False), ("text/plain;version=1.0.0;q=0.9", False),
        (PROMETHEUS_2, True), (PROMETHEUS_3, True), (TEXT_FIRST, False),
        ("application/openmetrics-text", True), ("application/openmetrics-text; version=1.0.0", True),
        ('Application/OpenMetrics-Text; Version="1.0.0"', True),
        ("application/openmetrics-text;q=0", False), ("application/openmetrics-text;q=0.000,*/*", False),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,*/*;q=0.1", True),
        ("text/plain, application/openmetrics-text;version=0.0.1", False),
        ("text/plain;q=0.5, application/openmetrics-text;q=0.5", True),
        ("application/openmetrics-text;version=2.0.0,application/openmetrics-text;version=1.0.0;q=0.5", True),
        ("application/openmetrics-text;version=" + "9" * 5000, False), (";;,=,version=1", False),
        ("application/openmetrics-text;q=nan", False), ("application/openmetrics-text;q=much", True),
    ],
)  # fmt: skip
def test_negotiation(accept: str, rich: bool) -> None:
    """What a client wishes for most is what it gets, and nonsense gets the plain format."""
    assert wants_openmetrics(accept) == rich


@pytest.mark.parametrize(
    ("accept_encoding", "packed"),
    [
        ("", False), ("gzip", True), ("deflate, gzip;q=0.5", True), ("GZIP", True), ("*", True), ("br", False),
        ("gzip;q=0", False), ("identity, gzip;q=0.0, *;q=1", False), ("*;q=0", False), ("gzipped", False),
    ],
)  # fmt: skip
def test_packing(accept_encoding: str, packed: bool) -> None:
    """A page is packed for a client that takes gzip, and for no other."""
    assert wants_gzip(accept_encoding) == packed
    page = scrape(Metrics(), accept_encoding=accept_encoding)
    assert (("Content-Encoding", "gzip") in page.headers) == packed
    body = gzip.decompress(page.body) if packed else page.body
    assert body.startswith(b"# HELP ")


def test_both_formats_say_what_they_are() -> None:
    """The type names format and version; OpenMetrics ends with `# EOF`, counters end with `_total` in both."""
    metrics = busy()
    rich, plain = (scrape(metrics, accept=accept) for accept in (PROMETHEUS_3, ""))
    assert (rich.content_type, plain.content_type) == (CONTENT_TYPE_LATEST, CONTENT_TYPE_PLAIN_0_0_4)
    assert rich.body.endswith(b"\n# EOF\n")
    assert b"# EOF" not in plain.body
    for page in (rich, plain):
        assert b'\ngpu_watchdog_withheld_total{brake="stale"} 0.0\n' in page.body
    assert b"\n# TYPE gpu_watchdog_withheld counter\n" in rich.body
    assert b"\n# TYPE gpu_watchdog_withheld_total counter\n" in plain.body
    assert b"\n# TYPE gpu_watchdog_build info\n" in rich.body


def test_hostile_names_do_not_break_the_page() -> None:
    """Quotes, backslashes, line breaks and lone surrogates in names are escaped, and `promtool` has no complaint."""
    pods = (hostile_pod(name='p"\\\n\udc80{}', namespace="\U0001f600,="), trainer())
    seen = snapshot([use(5, 2 * Gi)], [process(5, "evil/c\x07\r")], [gpu(name='"x"\\')], second=30)
    metrics = busy()
    metrics.update(Story(pods=pods).see(seen))
    found = read(metrics)
    assert value(found, "pod_memory_used_bytes", namespace="\U0001f600,=", pod='p"\\\\x0a\\udc80{}') == 2 * Gi
    assert [labels["model"] for labels in series(found, "gpu_info")] == ['"x"\\']
    promtool = shutil.which("promtool")
    if promtool is None:
        cannot_run("needs promtool; on Debian and Ubuntu: apt-get install prometheus")
    page = render(metrics.registry, openmetrics=False)
    ended = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
