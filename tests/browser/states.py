"""A node of two cards with the real daemon on it, in the states in which its page is opened."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.rig import Daemon, Node, Tenant, node
from tests.rig.cluster.rig_pods import RigPods
from tests.rig.command import daemon
from tests.stub import GIB, MIB, StubGpu, StubProcess, StubReturn
from tests.world.policies import write_policy

_CARDS: Final = tuple(f"GPU-{number}b6e1f2a-8c3d-4e5f-9a0b-1c2d3e4f5a6b" for number in range(2))
_LONGEST_S: Final = 60.0  # for what takes some seconds on a machine that is not busy
_NOT_LOADED: Final = 9  # NVML_ERROR_DRIVER_NOT_LOADED (nvml.h)
_STEPS: Final = (
    'above = "100%"\nfor = "30s"\ndo = "warn"\nrepeat = "1h"',
    'above = "110%"\nfor = "10m"\ndo = "kill"\nscope = "container"\ngrace = "10s"',
    'above = "200%"\nfor = "0s"\ndo = "kill"\nscope = "container"\ngrace = "2s"',
)
Before = Callable[[Node, Path], None]
_PROTECT: Final = '\n[protect]\nnamespaces = ["monitoring"]\n[events]\ncontact = "gpu-team@example.org"\n'


class SharedNode:
    """The tenants of the node, on this many cards of 80 GiB, and the daemon that watches them."""

    def __init__(self, world: Node, cards: int = 2, api: RigPods | None = None) -> None:
        self._api = api
        self.world, other, size = world, cards - 1, 80 // cards
        world.stub = replace(
            world.stub,
            gpus=tuple(
                StubGpu(
                    uuid=uuid, name=f"NVIDIA A100-SXM4-{size}GB", total=size * GIB, reserved=600 * MIB, base=220 * MIB
                )
                for uuid in _CARDS[:cards]
            ),
        )
        self.resnet = self._tenant("vision", "train-resnet-7f9c4d", "16Gi", 12 * GIB)
        self.notebook = self._tenant("jupyter", "alice-notebook-0", "8Gi", 5 * GIB)
        self._tenant("nlp", "llm-server-0", "24Gi", 21 * GIB, card=other)
        self._tenant("vision", "label-worker-x2k9", None, 1 * GIB, card=other)
        if other:
            self._tenant("monitoring", "dcgm-exporter-8sdj2", None, 180 * MIB, card=other)
        world.start(None, used=310 * MIB, behaviour="plain")
        world.write()

    def _tenant(self, namespace: str, name: str, declared: str | None, used: int, card: int = 0) -> Tenant:
        pod = self.world.pod(name, ("main", declared), namespace=namespace)
        if self._api is not None:
            self._api.add(pod)
        tenant = self.world.start(pod, used=used if card == 0 else 0)
        if card:
            cards = list(self.world.stub.gpus)
            listed = (*cards[card].processes, StubProcess(pid=tenant.pid, used=used))
            cards[card] = replace(cards[card], processes=listed)
            self.world.stub = replace(self.world.stub, gpus=tuple(cards))
        return tenant

    def fail(self) -> None:
        """Take the driver away, as an unloaded kernel module does."""
        self.world.stub = replace(self.world.stub, returns=(StubReturn(call="*", code=_NOT_LOADED),))
        self.world.write(pods=False)


@contextmanager
def shared_node(
    root: Path, cards: int = 2, api: RigPods | None = None, before: Before = lambda *_: None
) -> Iterator[tuple[SharedNode, Daemon]]:
    """The node with its daemon, after two cycles; the pods come from a file, or from the API.

    `before` gets the node and its policy before the daemon starts.
    """
    with node(root) as world:
        made = SharedNode(world, cards, api)
        policy = write_policy(root, *_STEPS, more=_PROTECT)
        before(world, policy)
        pods = api.options(policy) if api is not None else ("--pods", world.pods_file)
        with daemon(root, world.stub_file, "--policy", policy, *pods, "--journal", world.journal) as running:
            running.wait_passes(2)
            yield made, running


@contextmanager
def quiet(root: Path) -> Iterator[Daemon]:
    """Everybody is within the limit."""
    with shared_node(root) as (_, running):
        yield running


@contextmanager
def over(root: Path, cards: int = 2, api: RigPods | None = None, before: Before = lambda *_: None) -> Iterator[Daemon]:
    """A notebook uses more than it may, and its kill is minutes away."""
    with shared_node(root, cards, api, before) as (made, running):
        made.world.use(made.notebook, 11 * GIB)
        running.wait(lambda d: any(entry["do"] == "kill" for entry in d.status()["plan"]), _LONGEST_S)
        running.wait_passes(2)
        yield running


@contextmanager
def killed(root: Path) -> Iterator[Daemon]:
    """A notebook has used more than twice what it may, and has been killed."""
    with shared_node(root) as (made, running):
        made.world.use(made.notebook, 22 * GIB)
        running.wait(lambda d: any(action["result"] == "done" for action in d.status()["recent"]), _LONGEST_S)
        running.wait(lambda d: "free" in str(d.status()["recent"][0]["outcome"]), _LONGEST_S)
        running.wait(lambda d: not d.status()["plan"], _LONGEST_S)
        yield running


@contextmanager
def blind(root: Path) -> Iterator[Daemon]:
    """NVML has stopped answering."""
    with shared_node(root) as (made, running):
        made.fail()
        running.wait(lambda d: d.status()["health"]["blind_since"] is not None, _LONGEST_S)
        yield running


STATES: Final[Mapping[str, Callable[[Path], AbstractContextManager[Daemon]]]] = {
    "quiet": quiet,
    "over": over,
    "killed": killed,
    "blind": blind,
}
