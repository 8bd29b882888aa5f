"""`gpu-watchdog doctor` without network, before certificates and clocks that are wrong: whose fault it is."""

import datetime as dt
from pathlib import Path

import pytest

from tests.cluster.api_proxy import ApiProxy
from tests.cluster.certificates import Authority
from tests.cluster.control_plane import ControlPlane
from tests.cluster.doctor_rig import Account, Clinic
from tests.cluster.network import Network
from tests.cluster.tcp_proxy import TcpProxy
from tests.ports import free_port

DAY = dt.timedelta(days=1)
DAY_S = 86400.0


def test_nothing_listens(control_plane: ControlPlane, clinic: Clinic) -> None:
    """A refused connection is told as that, at once, and nothing else of the cluster is."""
    url = f"https://127.0.0.1:{free_port()}"
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token="t", server=url))
    assert said.wrong().keys() == {"api"}
    assert said.wrong()["api"].startswith(f"{url}: Connection refused")
    assert said.code == 1
    assert said.lasted_s < 60


def test_silence(control_plane: ControlPlane, clinic: Clinic, tcp_proxy: TcpProxy) -> None:
    """Where connections are taken and never answered doctor comes to its end in a bounded time, and says so."""
    tcp_proxy.accept_silently()
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token="t", server=tcp_proxy.url))
    assert said.wrong().keys() == {"api"}
    assert "does not respond" in said.wrong()["api"]
    assert said.lasted_s < 60


def test_a_server_that_answers_too_slowly(
    control_plane: ControlPlane, clinic: Clinic, clinic_account: Account, api_proxy: ApiProxy
) -> None:
    """Each answer comes within its time, all together do not: what was learned is told, and what was waited for."""
    api_proxy.delay(3)
    config = control_plane.kubeconfig(token=clinic_account.token(), server=api_proxy.url, ca=api_proxy.ca)
    said = clinic.ask("--kubeconfig", config)
    assert clinic_account.name in said.what("api_credentials")
    (late,) = [found["what"] for found in said.findings if found["name"] == "api" and found["state"] == "missing"]
    assert f"{api_proxy.url} did not answer all" in late
    assert said.lasted_s < 60


def test_a_connection_that_breaks(control_plane: ControlPlane, clinic: Clinic, tcp_proxy: TcpProxy) -> None:
    """A server that goes away in the middle of an answer."""
    tcp_proxy.cut_after(100)
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token="t", server=tcp_proxy.url))
    assert said.wrong().keys() == {"api"}
    assert "connection broke" in said.wrong()["api"]


def test_a_name_that_does_not_resolve(control_plane: ControlPlane, clinic: Clinic) -> None:
    """The kubeconfig has a name that nobody knows."""
    url = "https://no-such-host.invalid:6443"
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token="t", server=url))
    assert said.wrong().keys() == {"api"}
    assert "can't be resolved" in said.wrong()["api"]


def test_something_else_answers(control_plane: ControlPlane, clinic: Clinic, api_proxy: ApiProxy) -> None:
    """A load balancer without a server behind it, a page to log in: not taken for an API server."""
    config = control_plane.kubeconfig(token="t", server=api_proxy.url, ca=api_proxy.ca)
    api_proxy.answer(503, body=b"<html>no backend</html>", times=1)
    assert "503: <html>no backend</html>" in clinic.ask("--kubeconfig", config).wrong()["api"]
    api_proxy.answer(200, body=b"<html>log in</html>", times=1)
    assert "<html>log in</html>" in clinic.ask("--kubeconfig", config).wrong()["api"]


def test_an_unknown_authority(control_plane: ControlPlane, clinic: Clinic, tmp_path: Path) -> None:
    """The kubeconfig trusts another authority than the one that signed the server's certificate."""
    config = control_plane.kubeconfig(token="t", ca=Authority(tmp_path / "other").certificate)
    wrong = clinic.ask("--kubeconfig", config).wrong()
    assert wrong.keys() == {"api_certificate"}
    assert "unable to get local issuer" in wrong["api_certificate"]


def test_a_certificate_for_another_address(control_plane: ControlPlane, clinic: Clinic) -> None:
    """The server is reached by an address that its certificate does not have."""
    elsewhere = Network(address="127.0.0.2")
    with TcpProxy(control_plane.network, control_plane.port, listen=elsewhere) as proxy:
        said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token="t", server=proxy.url))
    assert said.wrong().keys() == {"api_certificate"}
    assert "not valid for '127.0.0.2'" in said.wrong()["api_certificate"]


def _before(control_plane: ControlPlane, clinic: Clinic, folder: Path, ahead_s: float, **valid: dt.datetime) -> str:
    """Ask a server with a certificate of such a validity, whose clock is ahead of this node's by so much."""
    with ApiProxy(control_plane.api, folder, **valid) as proxy:
        proxy.shift_clock(ahead_s)
        config = control_plane.kubeconfig(token="t", server=proxy.url, ca=proxy.ca)
        said = clinic.ask("--kubeconfig", config)
        assert [dict(each.headers).get("Authorization") for each in proxy.seen] == [None]
    assert said.wrong().keys() == {"api_certificate"}
    told = said.wrong()["api_certificate"]
    assert any(f"{moment:%Y-%m-%d %H:%M:%S} UTC" in told for moment in valid.values())
    return told


def test_an_expired_certificate_of_the_server(control_plane: ControlPlane, clinic: Clinic, tmp_path: Path) -> None:
    """It says since when; and whose fault it is: the certificate's by both clocks, or this node's clock's."""
    now = dt.datetime.now(dt.UTC)
    valid = {"not_before": now - 9 * DAY, "not_after": now - 2 * DAY}
    assert "expired 2d ago" in _before(control_plane, clinic, tmp_path / "a", 0, **valid)
    assert "this node's clock is 3d ahead" in _before(control_plane, clinic, tmp_path / "b", -3 * DAY_S, **valid)


def test_a_certificate_of_tomorrow(control_plane: ControlPlane, clinic: Clinic, tmp_path: Path) -> None:
    """A node whose clock is behind refuses a certificate that was made just now."""
    now = dt.datetime.now(dt.UTC)
    valid = {"not_before": now + 2 * DAY + dt.timedelta(minutes=30)}
    assert "in 2d" in _before(control_plane, clinic, tmp_path / "a", 0, **valid)
    assert "this node's clock is 3d behind" in _before(control_plane, clinic, tmp_path / "b", 3 * DAY_S, **valid)


@pytest.mark.parametrize(("ahead_s", "which"), [(3600.0, "behind"), (-3600.0, "ahead of")])
def test_a_wrong_clock(
    control_plane: ControlPlane,
    clinic: Clinic,
    clinic_account: Account,
    api_proxy: ApiProxy,
    ahead_s: float,
    which: str,
) -> None:
    """Which clock is ahead, by how much, and what it breaks; it hinders nothing, and stands on a 401 as well."""
    api_proxy.shift_clock(ahead_s)
    config = control_plane.kubeconfig(token=clinic_account.token(), server=api_proxy.url, ca=api_proxy.ca)
    said = clinic.ask("--kubeconfig", config)
    assert said.wrong().keys() == {"api_clock"}
    assert f"clock is 1h {which} " in said.wrong()["api_clock"]
    assert said.code == 0
    refused = control_plane.kubeconfig(token="nonsense", server=api_proxy.url, ca=api_proxy.ca)
    assert clinic.ask("--kubeconfig", refused).wrong().keys() == {"api_clock", "api_credentials"}


def test_no_way_at_all(clinic: Clinic, tmp_path: Path) -> None:
    """A kubeconfig that is not there, and none at all: both say how to come to one."""
    path = tmp_path / "nowhere"
    wrong = clinic.ask("--kubeconfig", path).wrong()
    assert wrong.keys() == {"api_config"}
    assert f"{path} can't be read" in wrong["api_config"]
    wrong = clinic.ask().wrong()
    assert wrong.keys() == {"pods", "namespaces"}
    assert "--kubeconfig FILE" in wrong["pods"]


def test_an_overloaded_server(control_plane: ControlPlane, clinic: Clinic, clinic_account: Account) -> None:
    """A server that throttles this account is well, and says so: 429 is no missing right."""
    config = control_plane.kubeconfig(token=clinic_account.token())
    with control_plane.throttle(clinic_account.name):
        said = clinic.ask("--kubeconfig", config)
    assert said.wrong().keys() == {"api"}
    assert "answered 429" in said.wrong()["api"]
