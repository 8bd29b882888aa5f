"""The daemon's log before a real API server: a line with the remedy when a trouble begins, one when it is over."""

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.cluster.accounts import Account, NewAccount
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.card import GPU
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pods import Pods
from tests.cluster.tcp_proxy import TcpProxy
from tests.rig.command import Daemon, daemon
from tests.stub import Stub, StubGpu, build_or_skip
from tests.worlds import parse_policy

DAY = dt.timedelta(days=1)
POLICY = 'rule = [{ name = "all", match = {}, step = [{ above = "110%", for = "10s", do = "warn" }] }]'
Runner = Callable[[Path], AbstractContextManager[Daemon]]


@pytest.fixture
def node(pods: Pods) -> str:
    """A node with a pod on it."""
    name = pods.node()
    pods.create("tenant", node=name)
    return name


@pytest.fixture
def run(tmp_path: Path, node: str) -> Runner:
    """Runs the daemon of that node with a kubeconfig; it observes, and needs nothing but pods and the node."""
    build_or_skip("current")
    stub = Stub(gpus=(StubGpu(uuid=GPU),)).write(tmp_path / "nvml.txt")
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    given = ("--policy", policy, "--journal", tmp_path / "journal.db", "--node", node)
    return lambda kubeconfig: daemon(tmp_path, stub, *given, "--kubeconfig", kubeconfig)


@pytest.fixture
def account(new_account: NewAccount, node: str) -> Account:
    """With the rights of the policy, of a pod on that node."""
    return new_account(parse_policy(POLICY, "policy.toml"), node)


def _of_pods(running: Daemon, name: str) -> list[str]:
    return [line["message"] for line in running.events(name) if line.get("reason") == "pods"]


def _first(running: Daemon, node: str) -> str:
    """The one line of the trouble that there is."""
    running.wait(lambda each: _of_pods(each, "gap_began"))
    (told,) = _of_pods(running, "gap_began")
    start = f"pods of node {node}: "
    assert told.startswith(start)
    return told.removeprefix(start)


def test_an_outage_is_two_lines(account: Account, run: Runner, node: str, tcp_proxy: TcpProxy) -> None:
    """However often is tried meanwhile: one when the API server has been away for a while, one when it is back."""
    with run(account.through(tcp_proxy)) as running:
        running.wait(lambda each: each.metric("pods_last_sync_timestamp_seconds"))
        assert _of_pods(running, "gap_began") == []
        tcp_proxy.refuse()
        tcp_proxy.cut()
        assert f"{tcp_proxy.url}: Connection refused" in _first(running, node)
        running.wait_passes(5)
        tcp_proxy.heal()
        running.wait(lambda each: _of_pods(each, "gap_ended"))
        assert len(_of_pods(running, "gap_began")) == len(_of_pods(running, "gap_ended")) == 1


def test_missing_rights(control_plane: ControlPlane, run: Runner, node: str) -> None:
    """What is refused is said in the server's words, with the command that prints what to apply."""
    with run(control_plane.kubeconfig(token=control_plane.token("nobody"))) as running:
        told = _first(running, node)
    assert all(each in told for each in ("403: pods is forbidden", "`gpu-watchdog rights`"))


def test_refused_credentials(control_plane: ControlPlane, run: Runner, node: str) -> None:
    """A token that is not accepted: the log can't know why, and names who can."""
    with run(control_plane.kubeconfig(token="nonsense")) as running:
        told = _first(running, node)
    assert all(each in told for each in ("401: Unauthorized", "`gpu-watchdog doctor`"))


def test_an_expired_certificate(control_plane: ControlPlane, run: Runner, node: str, tmp_path: Path) -> None:
    """Either the certificate or this node's clock is at fault, and both are named."""
    now = dt.datetime.now(dt.UTC)
    with (
        ApiProxy(control_plane.api, tmp_path / "proxy", not_before=now - 9 * DAY, not_after=now - DAY) as proxy,
        run(control_plane.kubeconfig(token="t", server=proxy.url, ca=proxy.ca)) as running,
    ):
        told = _first(running, node)
    assert all(each in told for each in (proxy.url, "certificate has expired", "clock"))


def test_no_way(run: Runner, node: str, tmp_path: Path) -> None:
    """A kubeconfig that is not there ends nobody: the daemon observes without pods, and says what is missing."""
    with run(tmp_path / "nowhere") as running:
        told = _first(running, node)
    assert all(each in told for each in (str(tmp_path / "nowhere"), "No such file", "--kubeconfig"))


def _of_clocks(running: Daemon) -> Iterator[str]:
    lines = (*running.events("warning"), *running.events("info"))
    return (line["message"] for line in lines if "clock" in line["message"])


def test_a_wrong_clock_is_two_lines(account: Account, run: Runner, api_proxy: ApiProxy) -> None:
    """All works, and times are wrong: it is said when an answer shows it, and when another one shows it is over."""
    api_proxy.shift_clock(3600)
    with run(account.through(api_proxy)) as running:
        running.wait(lambda each: list(_of_clocks(each)))
        running.wait_passes(3)
        (told,) = _of_clocks(running)
        assert "1 h behind" in told
        api_proxy.shift_clock(0)
        api_proxy.finish_streams()
        running.wait(lambda each: len(list(_of_clocks(each))) > 1)
        assert len(list(_of_clocks(running))) == 2
