"""A node as full as they come: 16 cards, 200 pods, each with a real process, and the real daemon on it."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.cli.full_node import CARDS, PODS, FullNode, SimTenant
from tests.cli.full_node import full_node as node
from tests.rig import Daemon
from tests.rig.cluster.rig_pods import RigPods
from tests.rig.command import daemon
from tests.stub import GIB
from tests.world.policies import write_policy

_TEAMS: Final = ("jupyter", "vision", "nlp-research", "speech", "recsys", "robotics")
_WORK: Final = ("notebook", "train-resnet", "llm-server", "finetune-lora", "embed-worker", "label-batch", "eval")
_STEPS: Final = (
    'above = "100%"\nfor = "10m"\ndo = "warn"\nrepeat = "1h"',
    'above = "110%"\nfor = "30m"\ndo = "kill"\nscope = "container"\ngrace = "10s"',
)
_MORE: Final = '\n[protect]\nnamespaces = ["robotics"]\n[brakes]\nnode = "10 per 10m"\n'


@contextmanager
def full_node(
    root: Path,
    *,
    cards: int = CARDS,
    pods: int = PODS,
    api: RigPods | None = None,
    before: Callable[[FullNode], None] = lambda _: None,
) -> Iterator[Daemon]:
    """The full node with its daemon, after two cycles; the pods come from a file, or from the API.

    `before` gets the node before the daemon starts.
    """
    # It only observes: a proc that is not the daemon's own is good for nothing else.
    policy = write_policy(root, *_STEPS, mode="observe", more=_MORE).read_text(encoding="utf-8")
    with node(root, _tenants(pods, cards), cards, policy=policy, api=api) as made:
        before(made)
        with daemon(root, made.stub_file, *made.arguments) as running:
            running.wait_passes(2)
            yield running


def _tenants(pods: int, cards: int) -> Iterator[SimTenant]:
    """Tenants of many sizes: one in 25 is over, one in 12 declares nothing."""
    dice = random.Random(16)
    for number in range(pods):
        size = dice.choice((2, 3, 4, 4, 5))
        used = int(size * GIB * dice.uniform(0.3, 0.95))
        if number % 25 == 7:
            used = int(size * GIB * dice.uniform(1.3, 1.8))
        name = f"{dice.choice(_WORK)}-{dice.getrandbits(40):010x}-{number % 5}"
        declared = None if number % 12 == 5 else f"{size}Gi"
        yield SimTenant(name=name, namespace=dice.choice(_TEAMS), declared=declared, used=used, card=number % cards)
