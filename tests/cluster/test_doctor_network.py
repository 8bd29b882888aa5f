"""`gpu-watchdog doctor` without network, before certificates and clocks that are wrong: whose fault it is."""

import datetime as dt
from pathlib import Path

import pytest

from tests.cluster.api_proxy import ApiProxy
from tests.cluster.certificates import Authority
from tests.cluster.control_plane import ControlPlane
from tests.cluster.doctor_rig import Account, Clinic, Said
from tests.cluster.network import Network
from tests.cluster.tcp_proxy import TcpProxy
from tests.ports import free_port

DAY = dt.timedelta(days=1)
DAY_S = 86400.0
BROKE = (
    "the connection broke -> the API server may be restarting: if it stays so, check its log, and any proxy in "
    "front of it"
)


def test_nothing_listens(control_plane: ControlPlane, clinic: Clinic) -> None:
    """A refused connection is told as that, at once, and nothing else of the cluster is."""
    url = f"https://127.0.0.1:{free_port()}"
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token="t", server=url))
    assert said.wrong() == {
        "api": f"{url}: Connection refused: nothing listens there -> check that the API server is up, and that its "
        "address is right"
    }
    assert said.stderr == "gpu-watchdog doctor: this node cannot observe. Blocked by: api\n"
    assert said.lasted_s < 60


def test_silence(control_plane: ControlPlane, clinic: Clinic, tcp_proxy: TcpProxy) -> None:
    """Where connections are taken and never answered doctor comes to its end in a bounded time, and says so."""
    tcp_proxy.accept_silently()
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token="t", server=tcp_proxy.url))
    assert said.wrong() == {
        "api": f"{tcp_proxy.url}: it accepts the connection but does not respond -> check whether the API server hangs "
        "or is overloaded, or something in between drops packets (firewall, MTU)"
    }
    assert said.lasted_s < 60


def test_a_server_that_answers_too_slowly(
    control_plane: ControlPlane, clinic: Clinic, clinic_account: Account, api_proxy: ApiProxy
) -> None:
    """Each answer comes within its time, all together do not: what was learned is told, and what was waited for."""
    api_proxy.delay(3)
    config = control_plane.kubeconfig(token=clinic_account.token(), server=api_proxy.url, ca=api_proxy.ca)
    said = clinic.ask("--kubeconfig", config)
    assert said.what("api_credentials") == f"the API server authenticates this account as {clinic_account.name}"
    (late,) = [found["what"] for found in said.findings if found["name"] == "api" and found["state"] == "missing"]
    assert late.startswith(f"{api_proxy.url} did not answer all requests within 20s; the last one was for the right to")
    assert said.lasted_s < 60


def test_a_connection_that_breaks(control_plane: ControlPlane, clinic: Clinic, tcp_proxy: TcpProxy) -> None:
    """A server that goes away in the middle of an answer."""
    tcp_proxy.cut_after(100)
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token="t", server=tcp_proxy.url))
    assert said.wrong() == {"api": f"{tcp_proxy.url}: {BROKE}"}


def test_a_name_that_does_not_resolve(control_plane: ControlPlane, clinic: Clinic) -> None:
    """The kubeconfig has a name that nobody knows."""
    url = "https://no-such-host.invalid:6443"
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token="t", server=url))
    assert said.wrong().keys() == {"api"}
    assert said.wrong()["api"].startswith(f"{url}: its name can't be resolved: ")


def test_something_else_answers(control_plane: ControlPlane, clinic: Clinic, api_proxy: ApiProxy) -> None:
    """A load balancer without a server behind it, a page to log in: not taken for an API server."""
    config = control_plane.kubeconfig(token="t", server=api_proxy.url, ca=api_proxy.ca)
    api_proxy.answer(503, body=b"<html>no backend</html>", times=1)
    assert clinic.ask("--kubeconfig", config).wrong() == {
        "api": f"{api_proxy.url}/version: the API server answered 503: <html>no backend</html> -> the API server, or "
        "a proxy in front of it, is failing: if it stays so, see its log"
    }
    api_proxy.answer(200, body=b"<html>log in</html>", times=1)
    assert "<html>log in</html>" in clinic.ask("--kubeconfig", config).wrong()["api"]


def test_an_unknown_authority(control_plane: ControlPlane, clinic: Clinic, tmp_path: Path) -> None:
    """The kubeconfig trusts another authority than the one that signed the server's certificate."""
    config = control_plane.kubeconfig(token="t", ca=Authority(tmp_path / "other").certificate)
    assert clinic.ask("--kubeconfig", config).wrong() == {
        "api_certificate": f"{control_plane.url}: its certificate is not accepted: unable to get local issuer "
        "certificate -> check that the authority in the kubeconfig (in a pod: ca.crt of the service account) is the "
        "one that signed it, and that nothing in between, like a proxy, answers in the API server's place"
    }


def test_a_certificate_for_another_address(control_plane: ControlPlane, clinic: Clinic) -> None:
    """The server is reached by an address that its certificate does not have."""
    elsewhere = Network(address="127.0.0.2")
    with TcpProxy(control_plane.network, control_plane.port, listen=elsewhere) as proxy:
        said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token="t", server=proxy.url))
    assert said.wrong() == {
        "api_certificate": f"{proxy.url}: its certificate is not accepted: IP address mismatch, certificate is not "
        "valid for '127.0.0.2' -> use a name or address that is in the certificate as `server` of the kubeconfig, or "
        "have a certificate issued for this one"
    }


def _before(control_plane: ControlPlane, clinic: Clinic, folder: Path, ahead_s: float, **valid: dt.datetime) -> Said:
    """Ask a server with a certificate of such a validity, whose clock is ahead of this node's by so much."""
    with ApiProxy(control_plane.api, folder, **valid) as proxy:
        proxy.shift_clock(ahead_s)
        config = control_plane.kubeconfig(token="t", server=proxy.url, ca=proxy.ca)
        said = clinic.ask("--kubeconfig", config)
        assert [dict(each.headers).get("Authorization") for each in proxy.seen] == [None]
    assert said.wrong().keys() == {"api_certificate"}
    told = said.wrong()["api_certificate"].replace(proxy.url, "URL")
    for moment in valid.values():
        told = told.replace(f"{moment:%Y-%m-%d %H:%M:%S} UTC", "MOMENT")
    return Said(code=said.code, stderr=told, findings=[], lasted_s=0)


def test_an_expired_certificate_of_the_server(control_plane: ControlPlane, clinic: Clinic, tmp_path: Path) -> None:
    """It says since when; and whose fault it is: the certificate's by both clocks, or this node's clock's."""
    now = dt.datetime.now(dt.UTC)
    valid = {"not_before": now - 9 * DAY, "not_after": now - 2 * DAY}
    assert _before(control_plane, clinic, tmp_path / "a", 0, **valid).stderr == (
        "the certificate of URL expired 2d ago, at MOMENT -> renew it (kubeadm: `kubeadm certs renew apiserver` on "
        "the control plane, then restart the API server)"
    )
    assert _before(control_plane, clinic, tmp_path / "b", -3 * DAY_S, **valid).stderr == (
        "this node's clock is 3d ahead of that of URL, so its certificate, which is valid until MOMENT, counts "
        "as expired -> correct this node's clock (chronyd, systemd-timesyncd)"
    )


def test_a_certificate_of_tomorrow(control_plane: ControlPlane, clinic: Clinic, tmp_path: Path) -> None:
    """A node whose clock is behind refuses a certificate that was made just now."""
    now = dt.datetime.now(dt.UTC)
    valid = {"not_before": now + 2 * DAY + dt.timedelta(minutes=30)}
    assert _before(control_plane, clinic, tmp_path / "a", 0, **valid).stderr == (
        "the certificate of URL is not valid until MOMENT, in 2d -> wait, or reissue it: the issuer's clock was ahead"
    )
    assert _before(control_plane, clinic, tmp_path / "b", 3 * DAY_S, **valid).stderr == (
        "this node's clock is 3d behind that of URL, so its certificate, which is valid from MOMENT, counts "
        "as not yet valid -> correct this node's clock (chronyd, systemd-timesyncd)"
    )


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
    assert said.wrong()["api_clock"].startswith(f"this node's clock is 1h {which} the API server's: ")
    assert "find out which clock is right (`date -u` on both), and correct the other" in said.wrong()["api_clock"]
    assert said.code == 0
    refused = control_plane.kubeconfig(token="nonsense", server=api_proxy.url, ca=api_proxy.ca)
    assert clinic.ask("--kubeconfig", refused).wrong().keys() == {"api_clock", "api_credentials"}


def test_no_way_at_all(clinic: Clinic, tmp_path: Path) -> None:
    """A kubeconfig that is not there, and none at all: both say how to come to one."""
    path = tmp_path / "nowhere"
    assert clinic.ask("--kubeconfig", path).wrong() == {
        "api_config": f"the API server can't be used: the kubeconfig {path} can't be read: No such file or "
        "directory -> name the right file with --kubeconfig, and let this account read it"
    }
    assert clinic.ask().wrong().keys() == {"pods", "namespaces"}
    assert (
        "run in a pod with a service account, or give --kubeconfig FILE; or give --pods FILE"
        in clinic.ask().wrong()["pods"]
    )


def test_an_overloaded_server(control_plane: ControlPlane, clinic: Clinic, clinic_account: Account) -> None:
    """A server that throttles this account is well, and says so: 429 is no missing right."""
    config = control_plane.kubeconfig(token=clinic_account.token())
    with control_plane.throttle(clinic_account.name):
        said = clinic.ask("--kubeconfig", config)
    assert said.wrong().keys() == {"api"}
    assert "the API server answered 429" in said.wrong()["api"]
    assert "it throttles this account: if it stays so, check the flow schemas" in said.wrong()["api"]
