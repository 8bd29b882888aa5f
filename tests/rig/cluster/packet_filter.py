"""A packet filter that does what NetworkPolicies say: the network of these tests enforces none.

The policies are read from the API server, which also evaluates their selectors. A connection that is not allowed is
rejected, not dropped: who tries it knows at once. What comes from the node itself passes, as with every network plugin.
"""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, Final

from tests.rig.cluster.api import Object, query
from tests.rig.cluster.node import Cluster

_CHAIN: Final = "network-policies"


@contextmanager
def enforced(cluster: Cluster) -> Iterator[None]:
    """Inside, connections between pods are only those that the cluster's policies allow now, to pods that run now."""
    _iptables(cluster, "-N", _CHAIN)
    try:
        for rule in _rules(cluster):
            _iptables(cluster, "-A", _CHAIN, *rule)
        # Traffic of the node itself does not pass this chain.
        _iptables(cluster, "-I", "FORWARD", "-j", _CHAIN)
        try:
            yield
        finally:
            _iptables(cluster, "-D", "FORWARD", "-j", _CHAIN)
    finally:
        _iptables(cluster, "-F", _CHAIN)
        _iptables(cluster, "-X", _CHAIN)


@contextmanager
def counted(cluster: Cluster, address: str, port: int) -> Iterator["Counter"]:
    """Inside, the connections that the node itself begins to a port are counted."""
    rule = ("OUTPUT", "-d", address, "-p", "tcp", "--dport", str(port), "--syn")
    _iptables(cluster, "-I", *rule)
    try:
        yield Counter(cluster)
    finally:
        _iptables(cluster, "-D", *rule)


class Counter:
    """Reads the first rule of the node's own traffic."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def read(self) -> int:
        """How many packets have matched it."""
        return int(_iptables(self._cluster, "-L", "OUTPUT", "1", "-v", "-x", "-n").split()[0])


def _iptables(cluster: Cluster, *arguments: str) -> str:
    command = [*cluster.control_plane.network.enter, "iptables", "-w", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout


def _rules(cluster: Cluster) -> Iterator[Sequence[str]]:
    """What the chain has: replies, what each policy allows, and then nothing else to the pods that one selects."""
    yield ("-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "ACCEPT")
    closed = set()
    for policy in _list(cluster, "/apis/networking.k8s.io/v1/networkpolicies"):
        spec, namespace = policy["spec"], policy["metadata"]["namespace"]
        assert spec["policyTypes"] == ["Ingress"], "this filter knows no egress"
        for pod in _pods(cluster, spec["podSelector"], namespace):
            address = pod["status"]["podIP"]
            closed.add(address)
            for rule in spec.get("ingress", ()):
                for source, port in product(_sources(cluster, rule, namespace), _ports(rule, pod)):
                    yield (*source, "-d", address, *port, "-j", "ACCEPT")
    for address in sorted(closed):
        yield ("-d", address, "-j", "REJECT")


def _sources(cluster: Cluster, rule: Mapping[str, Any], namespace: str) -> Iterator[Sequence[str]]:
    """The matches of a rule's peers; a rule without peers allows everybody."""
    if not rule.get("from"):
        yield ()
    for peer in rule.get("from", ()):
        if block := peer.get("ipBlock"):
            assert not block.get("except"), "this filter knows no exceptions"
            yield ("-s", block["cidr"])
            continue
        names = [namespace]
        if "namespaceSelector" in peer:
            found = _list(cluster, "/api/v1/namespaces", _selector(peer["namespaceSelector"]))
            names = [each["metadata"]["name"] for each in found]
        for name in names:
            for pod in _pods(cluster, peer.get("podSelector", {}), name):
                yield ("-s", pod["status"]["podIP"])


def _ports(rule: Mapping[str, Any], pod: Object) -> Iterator[Sequence[str]]:
    """The matches of a rule's ports, by their number or by the name that a container of the pod gives one."""
    named = {each["name"]: each["containerPort"] for one in pod["spec"]["containers"] for each in one.get("ports", ())}
    if not rule.get("ports"):
        yield ()
    for each in rule.get("ports", ()):
        port = each["port"]
        if isinstance(port, int) or port in named:
            yield ("-p", each["protocol"].lower(), "--dport", str(named.get(port, port)))


def _pods(cluster: Cluster, selector: Mapping[str, Any], namespace: str) -> list[Object]:
    """The pods of a namespace that a selector matches and that have an address of their own."""
    found = _list(cluster, f"/api/v1/namespaces/{namespace}/pods", _selector(selector))
    return [each for each in found if each["status"].get("podIP") and not each["spec"].get("hostNetwork")]


def _selector(selector: Mapping[str, Any]) -> str:
    assert not selector.get("matchExpressions"), "this filter knows labels alone"
    return ",".join(f"{key}={value}" for key, value in selector.get("matchLabels", {}).items())


def _list(cluster: Cluster, path: str, selector: str = "") -> list[Object]:
    found: list[Object] = cluster.control_plane.api.ask("GET", f"{path}{query(labelSelector=selector)}")["items"]
    return found
