"""`top --cluster --prometheus` against a real Prometheus with the metrics of a few nodes, and against what is none."""

import contextlib
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest

from tests.cli.session import session
from tests.monitoring.fleet import FleetNode, write_blocks
from tests.monitoring.prometheus import Prometheus, configuration
from tests.rig.command import COMMAND
from watchdog.cli.fleet import _NODES, _URGENT, _WHOLE
from watchdog.cli.fleet_hours import hours_query
from watchdog.export.catalogue import FAMILIES

pytestmark = pytest.mark.slow
GIB: Final = 2**30
FLEET: Final = (
    FleetNode(
        name="n1",
        cluster="east",
        over=2,
        idle=3,
        busy=(0.2, 0.6),
        spent={"team-0": (4.0, 1.0, 2.0), "team-1": (1.0, 1.0, 0.0)},
    ),
    # Its daemon has started again meanwhile.
    FleetNode(
        name="n2",
        cluster="east",
        cards=2,
        accounts=3,
        is_enforcing=False,
        suspended="stop_file",
        spent={"team-0": (2.0, 0.0, 2.0)},
        started_s=1770.0,
    ),
    FleetNode(name="n3", cluster="east", is_scraped=False),
    # Of another cluster, with a name that there is in the first one too.
    FleetNode(name="n1", cluster="west", accounts=1, busy=(None,), spent={"team-0": (8.0, 8.0, 0.0)}),
    FleetNode(name="n4", cluster="west", cards=4, accounts=1, down=1),
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus of two clusters."""
    folder = tmp_path_factory.mktemp("fleet")
    write_blocks(folder / "data", FLEET)
    with Prometheus(folder, configuration()) as made:
        yield made


def top(url: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `top --cluster --prometheus URL` to its end."""
    command = (COMMAND, "top", "--cluster", "--prometheus", url, *arguments)
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120, check=False)


def rows(text: str) -> list[list[str]]:
    """The rows of each table, as words."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines() if "  " in line]


def test_the_nodes_and_pods_of_two_clusters(fleet: Prometheus) -> None:
    """One row a node with its cluster, those with something to say first, and the pods over their limit."""
    ended = top(fleet.url, "--once")
    assert (ended.returncode, ended.stderr) == (0, "")
    head, nodes, pods, remarks = ended.stdout.split("\n\n")
    assert head == "4 nodes answer by Prometheus, 1 does not answer"
    assert rows(nodes) == [
        ["CLUSTER", "NODE", "GPUS", "USED", "TOTAL", "BUSY", "ACCOUNTS", "OVER", "IDLE", "STATE"],
        ["east", "n3", "-", "-", "-", "-", "-", "-", "-", "no answer"],
        ["east", "n1", "8", "320Gi", "640Gi", "40%", "12", "2", "3", "enforcing"],
        ["east", "n2", "2", "80Gi", "160Gi", "50%", "3", "0", "0", "NOT enforcing"],
        ["west", "n4", "4", "unknown", "unknown", "50%", "1", "0", "0", "enforcing"],
        ["west", "n1", "8", "320Gi", "640Gi", "-", "1", "0", "0", "enforcing"],
    ]
    assert rows(pods)[1:] == [
        ["team-0/job-n1-0", "east", "n1", "-", "12Gi", "10Gi", "over", "-", "-"],
        ["team-1/job-n1-1", "east", "n1", "-", "12Gi", "10Gi", "over", "-", "-"],
    ]
    scrape = "its daemon is not scraped; see the Prometheus' targets, and the daemon's pod on that node"
    assert remarks.splitlines() == [
        f"! n3: {scrape}",
        "! n2: suspended: stop_file",
        "! n4: GPU GPU-n4-0 down",
    ]


def test_calm_pods_are_there_for_who_asks(fleet: Prometheus) -> None:
    """An order or a filter shows the others too, with what they use and may use."""
    text = top(fleet.url, "--once", "--sort", "use", "--filter", "n2").stdout
    _, _, pods, _ = text.split("\n\n")
    assert rows(pods)[1:] == [
        [f"team-{number}/job-n2-{number}", "east", "n2", "-", "2Gi", "10Gi", "within", "-", "-"] for number in range(3)
    ]


def test_what_is_held_idle(fleet: Prometheus) -> None:
    """Only what has been idle for as long as the policy of its node says, with for how long."""
    _, _, pods, _ = top(fleet.url, "--once", "--idle").stdout.split("\n\n")
    assert rows(pods)[1:] == [
        [f"team-{number}/job-n1-{number}", "east", "n1", "-", "2Gi", "10Gi", "within", "2h10m", "-"]
        for number in (2, 3, 4)
    ]


def test_json(fleet: Prometheus) -> None:
    """Each node with its cluster, its GPUs and all its accounts, and null where Prometheus knows nothing."""
    document = json.loads(top(fleet.url, "--json").stdout)
    assert document["via"] == "prometheus"
    nodes = {(node["cluster"], node["node"]): node for node in document["nodes"]}
    assert list(nodes) == [("east", "n1"), ("east", "n2"), ("east", "n3"), ("west", "n1"), ("west", "n4")]
    assert (nodes["east", "n3"]["status"], nodes["east", "n3"]["age_s"]) == (None, None)
    assert nodes["east", "n3"]["problem"].startswith("its daemon is not scraped; ")
    first = nodes["east", "n1"]
    assert first["problem"] is None
    assert 0 <= first["age_s"] < 600
    assert (first["status"]["mode"], first["status"]["enforcing"]) == ("enforce", True)
    assert nodes["east", "n2"]["status"]["suspended"] == ["stop_file"]
    assert first["status"]["gpus"][0] == {
        "uuid": "GPU-n1-0",
        "up": True,
        "utilization": 0.2,
        "memory": {"total": 80 * GIB, "used": 40 * GIB},
    }
    down = nodes["west", "n4"]["status"]["gpus"][0]
    assert down == {"uuid": "GPU-n4-0", "up": False, "utilization": None, "memory": {"total": None, "used": None}}
    accounts = {each["pod"]: each for each in first["status"]["accounts"]}
    assert len(accounts) == 12
    over = {"namespace": "team-0", "pod": "job-n1-0", "container": None, "gpu": None, "verdict": "over"}
    assert accounts["job-n1-0"] == {**over, "used": 12 * GIB, "allowed": 10 * GIB, "idle": False}
    assert {pod for pod, each in accounts.items() if each["idle"]} == {"job-n1-2", "job-n1-3", "job-n1-4"}
    assert accounts["job-n1-11"]["verdict"] == "within"


def report(url: str, since: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `report --prometheus URL` to its end."""
    command = (COMMAND, "report", "--prometheus", url, "--since", since, *arguments)
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120, check=False)


def test_card_hours_by_namespace_of_two_clusters(fleet: Prometheus) -> None:
    """`report` adds up the nodes of each cluster, also over a restart of a daemon; owners are not known there."""
    ended = report(fleet.url, "1h", "--json", "--price", "2")
    assert (ended.returncode, ended.stderr) == (0, "")
    document = json.loads(ended.stdout)
    assert document["by"] == "namespace"
    begins = {note["cluster"]: (note["begins"], note["problem"]) for note in document["nodes"]}
    assert begins == dict.fromkeys(("east", "west"), (document["since"], None))
    # What Prometheus extrapolates is exact to a scrape or two.
    expected = {
        ("east", "team-0"): (6.0, 1.0, 4.0),
        ("east", "team-1"): (1.0, 1.0, 0.0),
        ("west", "team-0"): (8.0, 8.0, 0.0),
    }
    found = {(row["cluster"], row["namespace"]): row for row in document["rows"]}
    assert next(iter(found)) == ("east", "team-0"), "the most idle first"
    assert set(found) == set(expected)
    for key, parts in expected.items():
        hours = found[key]["card_hours"]
        assert (hours["held"], hours["used"], hours["idle"]) == pytest.approx(parts, rel=0.05, abs=0.05)
        assert (hours["unused"], found[key]["owner"]) == (None, None)
        assert found[key]["idle_cost"] == pytest.approx(2 * hours["idle"])


def test_a_prometheus_that_has_less_than_is_asked_for(fleet: Prometheus) -> None:
    """The report says since when there are samples, exact to a step: here for the last two hours of a day or a week."""
    for since, step_s in (("24h", 172), ("7d", 1209)):
        ended = report(fleet.url, since, "--json")
        document = json.loads(ended.stdout)
        until_s = datetime.fromisoformat(document["until"]).timestamp()
        found = [until_s - datetime.fromisoformat(note["begins"]).timestamp() for note in document["nodes"]]
        assert len(found) == 2
        assert found == pytest.approx([7200.0] * 2, abs=step_s + 600), "and a test of ten minutes, at most"
        assert all(each >= 7200.0 for each in found), "it does not claim to have less than it has"
        assert "Prometheus has no card-seconds of cluster " in report(fleet.url, since).stdout
    assert "no card-seconds" not in report(fleet.url, "90m").stdout


def test_live(fleet: Prometheus) -> None:
    """The view has the same rows; what Prometheus does not know about a pod is said, with where to look."""
    command = (COMMAND, "top", "--prometheus", fleet.url)
    with session(command=command, columns=130, rows=30) as shown:
        shown.see("4 by prometheus, 1 silent", "CLUSTER", "job-n1-0", "q quit")
        shown.type("\r")
        shown.see("Node n3", "its daemon is not scraped", "q back")
        shown.type("q")
        shown.see("Pods: ")
        shown.type("vjjjj\r")
        shown.see("Prometheus knows no more about node", "without --prometheus")
        shown.type("q")
        shown.see("Pods: ")
        shown.type("q")
        assert shown.end() == 0


def test_it_asks_for_metrics_that_there_are() -> None:
    """A metric that the daemon does not have, or with another label, would give a row that is always empty."""
    labels = {f"gpu_watchdog_{family.name}": {*family.labels} for family in FAMILIES}
    for query in (*_NODES.values(), *_URGENT.values(), *_WHOLE.values(), hours_query(3600)):
        assert {*re.findall(r"gpu_watchdog_\w+", query)} <= set(labels)
    used, allowed = (labels[f"gpu_watchdog_account_memory_{name}_bytes"] for name in ("used", "allowed"))
    assert used == allowed, "they are divided without `on`"
    assert used == labels["gpu_watchdog_account_idle_seconds"], "what is idle selects these too"
    cards = ("gpu_up", "gpu_memory_used_bytes", "gpu_memory_total_bytes", "gpu_utilization_ratio")
    assert {frozenset(labels[f"gpu_watchdog_{name}"]) for name in cards} == {frozenset({"gpu"})}, "`without (gpu)`"


class Handler(BaseHTTPRequestHandler):
    """A server that answers in one way, and keeps what it is asked."""

    def do_POST(self) -> None:
        """Answer."""
        server: Any = self.server
        server.asked.append((self.path, dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
        status, headers, body, times = server.answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            for _ in range(times):
                self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class' name
        """Nothing: what is asked is in `asked`."""


class Server(ThreadingHTTPServer):
    """Where it answers, and what it was asked: path, headers, body."""

    def __init__(self, status: int, body: bytes, headers: dict[str, str], times: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.daemon_threads = True
        self.answer = status, headers, body, times
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


@contextlib.contextmanager
def answering(status: int, body: bytes, headers: dict[str, str] | None = None, times: int = 1) -> Iterator[Server]:
    """A server that answers every POST so, its body repeated `times`, until the end of the block."""
    with Server(status, body, headers or {}, times) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


EMPTY: Final = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
TOO_MANY: Final = b'{"status":"error","errorType":"execution","error":"query processing would load too many samples"}'
ADDRESS: Final = "check the address that --prometheus names"


@pytest.mark.parametrize(
    ("status", "body", "cause", "remedy"),
    [
        (200, b"<html>hello</html>", "that is not a Prometheus", ADDRESS),
        (200, b"", "that is not a Prometheus", ADDRESS),
        (200, b"[" * 9999, "that is not a Prometheus", ADDRESS),
        (200, b'{"kind":"Status"}', "no reason is given", "see its log"),
        (
            200,
            EMPTY,
            "this Prometheus has no metrics of the watchdog",
            "let it scrape the watchdog (docs/prometheus.md)",
        ),
        (422, TOO_MANY, "would load too many samples", "--query.max-samples"),
        (404, b"404 page not found", "answers 404: 404 page not found", ADDRESS),
        (401, b"\x1b[2Junauthorized", "answers 401: \\x1b[2Junauthorized", "--prometheus-header"),
        (403, b"", "answers 403;", "--prometheus-header"),
        (502, b"<html>Bad\nGateway", "answers 502: <html>Bad Gateway", ADDRESS),
    ],
)
def test_an_answer_that_is_none(status: int, body: bytes, cause: str, remedy: str) -> None:
    """Whatever is at the address, one line says what it answers and what to do."""
    with answering(status, body) as server:
        for option in ("--once", "--json"):
            ended = top(server.url, option)
            assert (ended.returncode, ended.stdout) == (1, "")
            assert len(ended.stderr.splitlines()) == 1
            assert ended.stderr.removesuffix("\n").isprintable()
            assert cause in ended.stderr
            assert remedy in ended.stderr


def test_nothing_listens() -> None:
    """The address that nothing answers at is named; one with a password in it is refused without printing it."""
    refused = top("http://me:secret@127.0.0.1:1", "--once")
    assert (refused.returncode, "secret" in refused.stderr) == (2, False)
    assert "a password goes into --prometheus-header" in refused.stderr
    ended = top("http://127.0.0.1:1", "--once")
    assert ended.returncode == 1
    assert ended.stderr.startswith("Error: Prometheus at http://127.0.0.1:1: Connection refused")
    assert ADDRESS in ended.stderr


def test_an_endless_answer_is_not_read() -> None:
    """What answers without an end is given up at a bound, and takes no more memory than that."""
    with answering(200, b" " * 2**20, times=10**6) as server:
        limited = ("prlimit", f"--data={400 * 2**20}", COMMAND, "top", "--prometheus", server.url, "--once")
        ended = subprocess.run(limited, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "its answer exceeds 64 MiB" in ended.stderr
    assert ADDRESS in ended.stderr


def test_the_headers_are_sent_and_not_passed_on() -> None:
    """Thanos and Mimir get the tenant and the token; a redirect does not send them elsewhere."""
    with answering(200, EMPTY) as elsewhere, answering(307, b"", {"Location": f"{elsewhere.url}/x"}) as server:
        sent = ("--prometheus-header", "Authorization=Bearer a=b", "--prometheus-header", "X-Scope-OrgID=east|west")
        ended = top(f"{server.url}/prometheus/", *sent, "--once")
        assert server.asked
        for path, headers, body in server.asked:
            assert path == "/prometheus/api/v1/query"
            assert (headers["Authorization"], headers["X-Scope-OrgID"]) == ("Bearer a=b", "east|west")
            assert body.startswith(b"query=")
        assert elsewhere.asked == []
        assert ended.returncode == 1
        assert "answers 307" in ended.stderr
        assert "Bearer" not in ended.stderr
