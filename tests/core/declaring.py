"""What pods declare, and what is compared for them, in a line each."""

from tests.worlds import NODE, VERIFF, Mi, assessed, container, gpu, pod, policy, rule, snapshot, step, use
from watchdog.core.assessment import Assessment
from watchdog.core.model import Gpu, Node, Pod
from watchdog.core.policy import Declaration, Policy, Unless

HAMI = Declaration(resource="nvidia.com/gpumem", unit=Mi, per="gpu")
NOTE = Declaration(annotation="vram", unit=1)
CORES = Unless(resource="t/core", at_least=100)
TENCENT = Declaration(resource="t/mem", unit=256 * Mi, unless=CORES)


def under(*declarations: Declaration, default: int | None = None, account: str = "pod", **more: object) -> Policy:
    """A policy with these declarations (the Veriff resource if none are given) and a rule that kills at once."""
    rules = more.pop("rules", (rule(step(), default=default, account=account),))
    return policy(*rules, declarations=declarations or (VERIFF,), **more)  # type: ignore[misc]


def asking(resources: dict[str, str], **more: object) -> Pod:
    """A pod of one container with these resources."""
    return pod("a", container(resources=resources), **more)  # type: ignore[arg-type]


def noted(**annotations: str) -> Pod:
    """A pod of one container that declares nothing itself, with these annotations (`_` for `-`)."""
    return pod("a", annotations={key.replace("_", "-"): text for key, text in annotations.items()})


def accounts(
    tenant: Pod, given: Policy, *uses: int | None, cards: tuple[Gpu, ...] = (), node: Node = NODE, **seen: object
) -> list[Assessment]:
    """The accounts of a pod whose process number i (from 0) uses this much on card i."""
    cards = cards or tuple(gpu(number) for number in range(max(len(uses), 1)))
    found = snapshot([use(10 + i, used, i) for i, used in enumerate(uses)], gpus=cards, **seen)  # type: ignore[arg-type]
    return list(assessed(found, [tenant], given, node))


def only(tenant: Pod, given: Policy, *uses: int | None, **more: object) -> Assessment:
    """The one account of a pod; by default its process uses a byte."""
    (account,) = accounts(tenant, given, *(uses or (1,)), **more)  # type: ignore[arg-type]
    return account
