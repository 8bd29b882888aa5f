"""The proxy of bytes: each fault is what its name says, and it ends."""

import socket
import threading
import time

import pytest

from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.network import LOOPBACK
from tests.cluster.pods import Pods
from tests.cluster.tcp_proxy import TcpProxy
from tests.cluster.watching import Watch, through
from tests.node.support import wait_until
from tests.ports import free_port


@pytest.fixture
def tcp(control_plane: ControlPlane, tcp_proxy: TcpProxy) -> Api:
    return through(tcp_proxy, control_plane)


def test_bytes_pass(control_plane: ControlPlane, tcp_proxy: TcpProxy, tcp: Api) -> None:
    """Without a fault the proxy of bytes is not noticed, by kubectl neither, and every connection is counted."""
    assert tcp.call("GET", "/readyz").status == 200
    config = control_plane.kubeconfig(token=control_plane.token("admin"), server=tcp_proxy.url)
    assert control_plane.kubectl("get", "--raw=/readyz", kubeconfig=config).stdout == "ok"
    assert tcp_proxy.accepted == 2
    wait_until(lambda: tcp_proxy.open == 0)


def test_nothing_is_lost_on_a_slow_reader() -> None:
    """A client that takes its time gets every byte, also more than the kernel holds for it."""
    size = 40_000_000
    port = free_port()
    with LOOPBACK.listen(port) as listener, TcpProxy(LOOPBACK, port) as proxy, LOOPBACK.connect(proxy.port) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        server, _ = listener.accept()

        def send() -> None:
            with server:
                server.sendall(bytes(size))

        sender = threading.Thread(target=send)
        sender.start()
        time.sleep(0.5)
        received = 0
        while data := client.recv(1_000_000):
            received += len(data)
        sender.join()
    assert received == size


def test_refuse(tcp_proxy: TcpProxy, tcp: Api) -> None:
    """A refused connection fails at once, and the same port serves again after it."""
    tcp_proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        tcp.call("GET", "/readyz")
    tcp_proxy.heal()
    assert tcp.call("GET", "/readyz").status == 200


def test_accept_silently(tcp_proxy: TcpProxy, tcp: Api) -> None:
    """A silent peer lets one connect and says nothing."""
    tcp_proxy.accept_silently()
    with pytest.raises(TimeoutError):
        tcp.call("GET", "/readyz", timeout_s=0.5)
    tcp_proxy.heal()
    assert tcp.call("GET", "/readyz").status == 200


def test_stall(tcp_proxy: TcpProxy, tcp: Api, namespace: str, pods: Pods) -> None:
    """A half-open watch carries nothing any more and is not closed; it stays dead when the network is back."""
    node = pods.node()  # bound pods, for the scheduler would write to the others
    with Watch(tcp, namespace, timeout_s=3) as running:
        pods.create("before", node=node, running=False)
        wait_until(lambda: running.names == ["before"])
        tcp_proxy.stall()
        pods.create("during", node=node, running=False)
        with pytest.raises(TimeoutError):
            tcp.call("GET", "/readyz", timeout_s=0.3)
        tcp_proxy.heal()
        assert tcp.call("GET", "/readyz").status == 200
        wait_until(lambda: running.end is not None)
        assert isinstance(running.end, TimeoutError)
        assert running.names == ["before"]


def test_cut(tcp_proxy: TcpProxy, tcp: Api, namespace: str) -> None:
    """Every open connection ends at once; a client that reads without TLS sees the reset itself."""
    with Watch(tcp, namespace) as running, LOOPBACK.connect(tcp_proxy.port) as plain:
        wait_until(lambda: tcp_proxy.open == 2)
        tcp_proxy.cut()
        wait_until(lambda: running.end is not None)
        with pytest.raises(ConnectionResetError):
            plain.recv(1)
    assert tcp_proxy.open == 0


def test_cut_after(tcp_proxy: TcpProxy, tcp: Api) -> None:
    """A long answer breaks off in its middle."""
    tcp_proxy.cut_after(20_000)
    with pytest.raises(OSError):
        tcp.call("GET", "/openapi/v2")
    tcp_proxy.heal()
    assert len(tcp.call("GET", "/openapi/v2").body) > 1_000_000


def test_slow(tcp_proxy: TcpProxy, tcp: Api) -> None:
    """Bytes come no faster than they may."""
    begin = time.monotonic()
    tcp.call("GET", "/readyz")
    quick_s = time.monotonic() - begin
    tcp_proxy.slow(2000)
    begin = time.monotonic()
    assert tcp.call("GET", "/readyz").status == 200
    assert time.monotonic() - begin > quick_s + 0.3


def test_an_outage_is_passed_on(control_plane: ControlPlane, tcp_proxy: TcpProxy, tcp: Api) -> None:
    """While the API server is away a connection to the proxy breaks; afterwards it serves again."""
    control_plane.stop_apiserver(hard=True)
    try:
        with pytest.raises(OSError):
            tcp.call("GET", "/readyz")
    finally:
        control_plane.start_apiserver()
    assert tcp.call("GET", "/readyz").status == 200
