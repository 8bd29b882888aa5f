"""How each card is shared."""

from dataclasses import replace

import pytest

from tests.worlds import Gi, claimant, container, gpu, owner, pod, process, snapshot, use
from watchdog.core.attribute import attribute
from watchdog.core.model import Claim, ClaimedDevice, MigParent, Node, Pod, Process, Snapshot, Use
from watchdog.core.sharing import Sharing, sharing_of

PLUGIN = "nvidia.com/gpu"
GKE = "cloud.google.com/gke-gpu-sharing-strategy"
TENANT, OTHER = pod("a", container(of="a")), pod("b", container(of="b"))
PRIVILEGED = pod("p", container(of="p", privileged=True))
DAEMON = pod("d", container(of="d", privileged=True), owner=owner("DaemonSet", "mps-control-daemon"))
WHOLE, SLICED, MPS, DRA = "whole", "time-slicing", "mps", "dra"
UNKNOWN = Node(name="n1", known=False, awaited=True)


def shared(seen: Snapshot, *pods: Pod, labels: dict[str, str] | None = None, node: Node | None = None) -> list[str]:
    """How each GPU is shared, and then each card in MIG mode, as the label has it."""
    written = {f"{PLUGIN}{key}" if key.startswith(".") else key: value for key, value in (labels or {}).items()}
    node = node or Node(name="n1", labels=written)
    found = sharing_of(seen, attribute(seen, pods), node, pods)
    return [str(found[uuid] or "") for uuid in (*(g.uuid for g in seen.gpus), *(p.uuid for p in seen.parents))]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, WHOLE),
        ({".sharing-strategy": "none", ".replicas": "1"}, WHOLE),
        ({".replicas": "0"}, WHOLE),  # GPU feature discovery of a node whose MIG configuration it refuses
        ({".sharing-strategy": ""}, WHOLE),
        ({".replicas": "four"}, WHOLE),
        ({".sharing-strategy": "time-slicing", ".replicas": "4"}, SLICED),
        ({".sharing-strategy": "time-slicing"}, SLICED),
        ({".replicas": "4"}, SLICED),  # of releases that had no MPS
        ({".sharing-strategy": "mps", ".replicas": "4"}, MPS),
        ({"nvidia.com/mig-1g.5gb.replicas": "4"}, WHOLE),  # of instances, not of this card
        ({GKE: "time-sharing"}, SLICED),
        ({GKE: "mps"}, MPS),
    ],
)
def test_labels_of_the_node(labels: dict[str, str], expected: str) -> None:
    """What GPU feature discovery, or GKE, writes on the node goes for each of its cards."""
    assert shared(snapshot(gpus=(gpu(0), gpu(1))), labels=labels) == [expected, expected]


@pytest.mark.parametrize(
    ("uses", "processes", "expected"),
    [
        ([use(1, Gi, mps=True)], [], [MPS, WHOLE]),
        ([use(1, Gi, 1, mps=True)], [process(1, "gone/main")], [WHOLE, MPS]),  # of no known pod
        ([use(1, Gi, mps=None)], [], [WHOLE, WHOLE]),  # that driver has no list of clients
        ([use(7, Gi)], [process(7, None, mps_server=True)], [MPS, WHOLE]),
        ([use(7, Gi)], [process(7, "d/main", mps_server=True, privileged=True)], [MPS, WHOLE]),
        ([use(7, Gi)], [process(7, "p/main", mps_server=True, privileged=True)], [MPS, WHOLE]),
        ([use(7, Gi)], [process(7, "b/main", mps_server=True, privileged=True)], [WHOLE, WHOLE]),
        (
            [use(7, Gi)],
            [process(7, "b/main", mps_server=True)],
            [WHOLE, WHOLE],
        ),  # only a name, which any process can take
        ([use(7, Gi)], [process(7, "gone/main", mps_server=True)], [WHOLE, WHOLE]),
        ([use(1, Gi), use(2, Gi)], [process(2, "b/main")], [WHOLE, WHOLE]),  # two pods, without any sign of how
    ],
)
def test_mps_in_use(uses: list[Use], processes: list[Process], expected: list[str]) -> None:
    """A card is shared by MPS once a client or a server is certain there; a tenant's process can't name itself one."""
    assert shared(snapshot(uses, processes, (gpu(0), gpu(1))), TENANT, OTHER, PRIVILEGED, DAEMON) == expected


def test_claims() -> None:
    """A card that a claim gave, or a share of it, is shared by claims, whatever the labels of the node say."""
    cards, sliced = (gpu(0), gpu(1)), {".replicas": "4"}
    for tenant in (claimant("a"), claimant("a", size=None)):
        assert shared(snapshot(gpus=cards), tenant) == [DRA, WHOLE]
        assert shared(snapshot(gpus=cards), tenant, labels=sliced) == [DRA, SLICED]
        assert shared(snapshot([use(1, Gi, mps=True)], gpus=cards), tenant) == [MPS, WHOLE]
    unlisted = Claim(name="team", devices=(ClaimedDevice(request="gpu", name="gpu-0"),))
    assert shared(snapshot(gpus=cards), pod("a", claims={"gpu": unlisted})) == [WHOLE, WHOLE]


def test_mig() -> None:
    """A MIG instance and its card are shared by MIG, also where an instance is divided again or given by a claim."""
    instances = [gpu(0, uuid=f"MIG-{i}", parent="GPU-0", gi=i, ci=0, profile="1g.10gb") for i in (1, 2)]
    seen = snapshot(gpus=[*instances, gpu(1)], parents=(MigParent(uuid="GPU-0", index=0, name="Stub"),))
    device = ClaimedDevice(request="gpu", name="gpu-0-mig", uuid="MIG-1", parent="GPU-0", profile="1g.10gb")
    tenant = pod("a", claims={"gpu": Claim(name="team", devices=(device,), unknown="")})
    on_instance = replace(use(1, Gi, mps=True), gpu="MIG-2")
    for each in (seen, replace(seen, uses=(on_instance,), processes={1: process(1)})):
        assert shared(each, tenant) == ["mig", "mig", WHOLE, "mig"]
        assert shared(each, tenant, labels={".replicas": "4"}) == ["mig", "mig", SLICED, "mig"]


def test_a_node_that_is_not_known() -> None:
    """Until the node's object has come, what only its labels can say is unknown; without one, nothing is shared."""
    seen = snapshot([use(1, Gi, 1, mps=True)], gpus=(gpu(0), gpu(1)))
    assert shared(seen, TENANT, node=UNKNOWN) == ["", MPS]
    assert shared(seen, TENANT, node=replace(UNKNOWN, awaited=False)) == [WHOLE, MPS]
    assert {str(each) for each in Sharing} == {WHOLE, SLICED, MPS, DRA, "mig"}
