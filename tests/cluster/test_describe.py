"""What the owner of a pod sees: `kubectl describe pod` and `kubectl get events` of a real API server, as text."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.api import Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.event_rig import events_of
from tests.cluster.pods import Pods
from tests.node.support import wait_until
from tests.rig import Node, node
from tests.rig.command import Daemon, daemon
from tests.stub import GIB, MIB
from tests.world.policies import write_policy
from watchdog.config.load import load_policy
from watchdog.core.policy import Policy

MEMORY: Final = "veriff.com/gpu-memory"
NAME: Final = "notebook-0"
WARN: Final = 'above = "100%"\nfor = "0s"\ndo = "warn"\nrepeat = "1s"'
KILL: Final = 'above = "150%"\nfor = "0s"\ndo = "kill"\ngrace = "2s"'
EVICT: Final = 'above = "150%"\nfor = "0s"\ndo = "evict"\ngrace = "1s"'
CONTACT: Final = '\n[events]\ncontact = "#gpu-help in the chat"\n'
_SPAN: Final = re.compile(r", for [0-9.]+s(?=\.)")
Rights = Callable[[Policy, str], Path]


class Tenancy:
    """A notebook of somebody who has never heard of the daemon, and the daemon with just the rights that it needs."""

    def __init__(self, plane: ControlPlane, pods: Pods, world: Node, rights: Rights) -> None:
        self.plane, self.world = plane, world
        self._pods, self._rights = pods, rights
        self.namespace = pods.namespace
        self.node = pods.node("n1", capacity={MEMORY: "80Gi"})

    def start(self, declared: str | None, used: int) -> Object:
        """Its pod: an object of the API, and a real process in its cgroup."""
        amount = {} if declared is None else {MEMORY: declared}
        resources = {"resources": {"limits": amount, "requests": amount}}
        made = self._pods.create(NAME, node=self.node, container=resources)
        (status,) = made["status"]["containerStatuses"]
        ours = self.world.pod(NAME, ("main", declared), uid=made["metadata"]["uid"])
        ours.containers[0].id = status["containerID"].partition("://")[2]
        self.tenant = self.world.start(ours, used=used)
        self.world.write(pods=False)
        return made

    def run(
        self, *steps: str, more: str = CONTACT, default: str | None = None
    ) -> contextlib.AbstractContextManager[Daemon]:
        """The daemon under a policy with these steps."""
        policy = write_policy(self.world.root, *steps, more=more)
        if default is not None:
            text = policy.read_text(encoding="utf-8")
            policy.write_text(text.replace("[[rule]]", f'[[rule]]\ndefault = "{default}"'), encoding="utf-8")
        given = ("--policy", policy, "--journal", self.world.journal)
        kubeconfig = self._rights(load_policy(policy), "n1")
        return daemon(self.world.root, self.world.stub_file, *given, "--kubeconfig", kubeconfig)

    def event(self, reason: str) -> Object | None:
        """The one Event of a reason, once it is there."""
        found = [each for each in events_of(self.plane, self.namespace) if each["reason"] == reason]
        assert len(found) <= 1
        return found[0] if found else None

    def wait(self, reason: str, count: int = 1) -> Object:
        """Wait until something was told, so many times."""

        def is_told() -> bool:
            event = self.event(reason)
            return event is not None and (event.get("series") or {"count": 1})["count"] >= count

        wait_until(is_told)
        event = self.event(reason)
        assert event is not None
        return event

    def described(self) -> dict[str, list[str]]:
        """The cells of the Events of the pod, by their reasons, as `kubectl describe pod` shows them."""
        shown = self.plane.kubectl("describe", "pod", NAME, "-n", self.namespace).stdout
        rows = [re.split(r" {2,}", line.strip()) for line in shown.partition("\nEvents:\n")[2].splitlines()]
        # How long it was over by then depends on which pass saw it first.
        return {row[1]: [_SPAN.sub("", each) for each in row] for row in rows if row[0] in ("Normal", "Warning")}

    def listed(self) -> str:
        """What `kubectl get events` prints of the pod, which may be gone."""
        which = ("--field-selector", f"involvedObject.name={NAME}")
        return self.plane.kubectl("get", "events", "-n", self.namespace, *which).stdout


@pytest.fixture
def tenancy(control_plane: ControlPlane, pods: Pods, tmp_path: Path, account_kubeconfig: Rights) -> Iterator[Tenancy]:
    """The node, and whatever is to run on it."""
    with node(tmp_path) as world:
        yield Tenancy(control_plane, pods, world, account_kubeconfig)


def test_whoever_is_warned_and_then_killed_reads_it_in_describe(tenancy: Tenancy) -> None:
    """A series of warnings, the kill and its end: each a line with all that somebody needs who knows nothing of it."""
    tenancy.start("1Gi", 1638 * MIB)
    with tenancy.run(WARN, KILL):
        tenancy.wait("GPUMemoryOverLimit", count=3)
        tenancy.world.use(tenancy.tenant, 9 * GIB)
        tenancy.wait("GPUMemoryReleased")
    shown = tenancy.described()
    kind, _, age, by, warning = shown["GPUMemoryOverLimit"]
    assert (kind, by) == ("Warning", "gpu-memory-watchdog")
    assert re.fullmatch(r"\d+s \(x\d+ over \d+s\)", age)
    assert all(each in warning for each in (f"{tenancy.namespace}/{NAME}", "1.6Gi", "126%", "1.3Gi", f'"{MEMORY}"'))
    assert warning.endswith("#gpu-help in the chat.")
    kind, _, _, _, killed = shown["GPUMemoryKilled"]
    assert kind == "Warning"
    assert all(each in killed for each in ("9Gi", "709%", "1.3Gi", "SIGTERM", "143", "OOMKilled"))
    assert killed.endswith("#gpu-help in the chat."), "no line is cut off"
    kind, _, _, _, released = shown["GPUMemoryReleased"]
    assert kind == "Normal"
    assert re.search(r"SIGTERM; .* [0-9.]+s", released)


def test_whoever_asks_for_the_events_alone_reads_the_same(tenancy: Tenancy) -> None:
    """`kubectl get events` has the whole text too, and machines have plain numbers beside it."""
    tenancy.start("1Gi", 9 * GIB)
    with tenancy.run(KILL, more=""):
        tenancy.wait("GPUMemoryReleased")
    told = tenancy.wait("GPUMemoryKilled")
    (line,) = [line for line in tenancy.listed().splitlines() if "GPUMemoryKilled" in line]
    assert line.endswith(told["note"])
    assert f"pod/{NAME}" in line
    prefix = "gpu-memory-watchdog/"
    marks = {key.removeprefix(prefix): value for key, value in told["metadata"]["annotations"].items()}
    (gpu,) = [each.uuid for each in tenancy.world.stub.gpus]
    assert marks == {
        "used": str(9 * GIB),
        "declared": str(GIB),
        "allowed": str(GIB * 102 // 100 + 256 * MIB),
        "gpu": gpu,
        "container": "main",
        "rule": "shared",
        "threshold": "above 150%, immediately",
    }
    asked = ("get", "events", "-n", tenancy.namespace, "-o", "json", "--field-selector", "reason=GPUMemoryKilled")
    (item,) = json.loads(tenancy.plane.kubectl(*asked).stdout)["items"]
    assert item["metadata"]["annotations"] == told["metadata"]["annotations"]


def test_whoever_declares_nothing_reads_what_to_declare(tenancy: Tenancy) -> None:
    """Held to the default of the rule, one learns that, the key, the container and the amount."""
    tenancy.start(None, 9 * GIB)
    with tenancy.run(WARN, default="1Gi"):
        tenancy.wait("GPUMemoryOverLimit")
    note = tenancy.described()["GPUMemoryOverLimit"][4]
    assert all(each in note for each in ("709%", "default", f'resources.limits["{MEMORY}"]', "at least 9Gi"))


def test_whoever_writes_what_cant_be_meant_reads_that(tenancy: Tenancy) -> None:
    """The amount, the largest that there is, and how the number is read."""
    tenancy.start("900Gi", GIB)
    with tenancy.run(KILL):
        tenancy.wait("GPUMemoryMisdeclared")
    note = tenancy.described()["GPUMemoryMisdeclared"][4]
    assert all(each in note for each in (f"{tenancy.namespace}/{NAME}", MEMORY, "container main", "900Gi", "1 byte"))


def test_the_events_of_a_pod_that_was_evicted_outlive_it(tenancy: Tenancy) -> None:
    """`describe` no longer finds the pod; by its name its Events are still there, and say what takes its place."""
    tenancy.start("1Gi", 9 * GIB)
    with tenancy.run(EVICT):
        tenancy.wait("GPUMemoryEvicted")
    tenancy.plane.kubectl("delete", "pod", NAME, "-n", tenancy.namespace, "--force", "--grace-period=0")
    wait_until(lambda: NAME not in tenancy.plane.kubectl("get", "pods", "-n", tenancy.namespace).stdout)
    (line,) = [line for line in tenancy.listed().splitlines() if "GPUMemoryEvicted" in line]
    assert "1s. No controller" in line
