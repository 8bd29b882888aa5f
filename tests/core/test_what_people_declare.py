"""What people who share GPUs really write, by public reports and the sources of each system, and what is right."""

from dataclasses import dataclass, field, replace
from typing import Final

import pytest

from tests.worlds import Gi, Mi, assessed, container, gpu, parse_policy, pod, process, snapshot, use
from watchdog.core.assessment import Assessment
from watchdog.core.model import Node

CARD: Final = 24 * Gi - 300 * Mi  # what tenants can share of it
ONE: Final = {"nvidia.com/gpu.count": "1"}
DEFAULT: Final = 'default = "4Gi"'
VOLCANO: Final = {"volcano.sh/vgpu-number": "10", "volcano.sh/vgpu-memory": "24000"}
KOORDINATOR: Final = {
    "koordinator.sh/gpu": "100",
    "koordinator.sh/gpu-core": "100",
    "koordinator.sh/gpu-memory-ratio": "100",
}
PORTION: Final = "kai.scheduler/container.main.gpu-memory.portion.limit"
FRACTION_LIMIT: Final = "nvidia.com/container.main.gpu-memory.limit"
BY_CONTAINER: Final = f'account = "container"\n{DEFAULT}'
INJECTED: Final = ("main", "istio-proxy")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One pod on a node with cards of 24Gi, of which container main uses `used`; `declared` None: not known."""

    asks: dict[str, str] = field(default_factory=dict)
    declared: int | None
    verdict: str = "within"
    schemes: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    capacity: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    containers: tuple[str, ...] = ("main",)
    tables: str = ""
    rule: str = DEFAULT
    used: int = 3 * Gi
    cards: int = 1
    by: str | None = None
    claims: tuple[str, ...] = ()


def judged(case: Case) -> Assessment:
    """The account of container main, or of the pod."""
    names = ", ".join(f'"{name}"' for name in ("*", *case.schemes))
    policy = parse_policy(f'schemes = [{names}]\n{case.tables}\n[[rule]]\nname = "all"\nmatch = {{}}\n{case.rule}\n')
    owner = pod(
        "a",
        *(
            replace(container(name, resources=case.asks if name == "main" else {}), claims=case.claims)
            for name in case.containers
        ),
        annotations=case.annotations,
    )
    node = Node(name="n1", labels=case.labels, capacity=case.capacity)
    cards = tuple(gpu(number, 24 * Gi, reserved=300 * Mi) for number in range(case.cards))
    seen = snapshot([use(7, case.used)], [process(7)], cards)
    found = assessed(seen, [owner], policy, node)
    assert policy.warnings == ()
    return next(each for each in found if each.account.container in (None, "main") and each.used)


def hami(*more: str, **values: object) -> Case:
    """A HAMi pod for one card, on a node that offers ten to a card, with keys and values in turn."""
    asks = {"nvidia.com/gpu": "1", **dict(zip(more[::2], more[1::2], strict=True))}
    given = {"labels": ONE, "capacity": {"nvidia.com/gpu": "10"}, "asks": asks, "declared": CARD, **values}
    return Case(**given)  # type: ignore[arg-type]


def volcano(*more: str, **values: object) -> Case:
    """The same for Volcano."""
    asks = dict(zip(more[::2], more[1::2], strict=True))
    given = {"schemes": ("volcano",), "labels": ONE, "capacity": VOLCANO, "asks": asks, "declared": CARD}
    return Case(**{"used": 10 * Gi, **given, **values})  # type: ignore[arg-type]


def koordinator(*more: str, **values: object) -> Case:
    """The same for Koordinator."""
    asks = {f"koordinator.sh/{key}": value for key, value in zip(more[::2], more[1::2], strict=True)}
    given = {"labels": ONE, "capacity": KOORDINATOR, "asks": asks, "declared": CARD, "used": 10 * Gi}
    return Case(**{**given, **values})  # type: ignore[arg-type]


def kai(*more: str, **values: object) -> Case:
    """A pod with annotations of KAI."""
    annotations = dict(zip(more[::2], more[1::2], strict=True))
    given = {"schemes": ("kai",), "capacity": {"nvidia.com/gpu": "1"}, "annotations": annotations, "used": 10 * Gi}
    return Case(**{"declared": CARD // 2, **given, **values})  # type: ignore[arg-type]


MEMORY, PERCENTAGE = "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"
VGPU_MEMORY, VGPU_PERCENTAGE = "volcano.sh/vgpu-memory", "volcano.sh/vgpu-memory-percentage"
CASES: Final = {
    # A 0 that means "not set": the next key of the system, at last the whole card.
    "HAMi: gpumem 0": hami(MEMORY, "0", rule=""),
    "HAMi: percentage 0": hami(PERCENTAGE, "0", rule=""),
    "HAMi: both 0": hami(MEMORY, "0", PERCENTAGE, "0"),
    "HAMi: gpumem 0 beside a percentage": hami(MEMORY, "0", PERCENTAGE, "50", declared=CARD // 2),
    "HAMi: percentage 0 beside gpumem": hami(MEMORY, "4000", PERCENTAGE, "0", declared=4000 * Mi),
    "HAMi: gpumem, not 0": hami(MEMORY, "2000", declared=2000 * Mi, verdict="over"),
    "HAMi: cores alone": hami("nvidia.com/gpucores", "30"),
    "Volcano: vgpu-memory 0": volcano("volcano.sh/vgpu-number", "1", VGPU_MEMORY, "0"),
    "Volcano: percentage 0": volcano("volcano.sh/vgpu-number", "1", VGPU_PERCENTAGE, "0"),
    "vgpu-manager: vgpu-memory 0": Case(
        asks={"nvidia.com/vgpu-number": "1", "nvidia.com/vgpu-memory": "0"}, declared=CARD, labels=ONE
    ),
    "Koordinator: ratio 0 beside gpu": koordinator("gpu", "50", "gpu-memory-ratio", "0", declared=CARD // 2),
    # A 0 that means "none".
    "Veriff: 0": Case(asks={"veriff.com/gpu-memory": "0"}, declared=0, verdict="over"),
    "one's own table, where 0 is not set": Case(
        asks={"example.com/vram": "0", "nvidia.com/gpu": "1"},
        declared=CARD,
        tables='[[declaration]]\nresource = "example.com/vram"\nunit = "1Mi"\nzero = "unset"',
        capacity={"nvidia.com/gpu": "1", "example.com/vram": "9"},
    ),
    # A whole card by another resource; `default` does not apply to it.
    "Volcano: vgpu-number alone": volcano("volcano.sh/vgpu-number", "1"),
    "Volcano: vgpu-memory-percentage": volcano(
        "volcano.sh/vgpu-number", "1", VGPU_PERCENTAGE, "50", declared=CARD // 2
    ),
    "Volcano: percentage and memory": volcano(
        "volcano.sh/vgpu-number", "1", VGPU_PERCENTAGE, "50", VGPU_MEMORY, "2000", declared=CARD // 2
    ),
    "Volcano: memory beside the number": volcano(
        "volcano.sh/vgpu-number", "1", VGPU_MEMORY, "8000", declared=8000 * Mi, verdict="over"
    ),
    "Volcano: gpu-number": volcano("volcano.sh/gpu-number", "1", capacity={"volcano.sh/gpu-number": "1"}),
    "Koordinator: gpu 100": koordinator("gpu", "100"),
    "Koordinator: gpu 50": koordinator("gpu", "50", declared=CARD // 2),
    "Koordinator: gpu 200": koordinator("gpu", "200", declared=2 * CARD, cards=2, labels={}),
    "Koordinator: cores of 100": koordinator("gpu-core", "100"),
    "Koordinator: cores of 30": koordinator("gpu-core", "30", declared=4 * Gi, verdict="over", by="default"),
    "Koordinator: cores of 100, half of the memory": koordinator(
        "gpu-core", "100", "gpu-memory-ratio", "50", declared=CARD // 2
    ),
    "Tencent: cores of 100": Case(
        asks={"tencent.com/vcuda-core": "100"}, declared=CARD, used=10 * Gi, capacity={"tencent.com/vcuda-core": "100"}
    ),
    "Tencent: cores of 100, whole whatever is asked": Case(
        asks={"tencent.com/vcuda-core": "100", "tencent.com/vcuda-memory": "4"},
        declared=CARD,
        capacity={"tencent.com/vcuda-core": "100", "tencent.com/vcuda-memory": "95"},
    ),
    "qGPU: cores of 100": Case(asks={"tke.cloud.tencent.com/qgpu-core": "100"}, declared=CARD, used=10 * Gi),
    "Elastic GPU: cores of 100": Case(
        asks={"elasticgpu.io/gpu-core": "100", "elasticgpu.io/gpu-memory": "256"}, declared=CARD, used=10 * Gi
    ),
    "Alibaba Cloud: gpu-count": Case(
        asks={"aliyun.com/gpu-count": "1"}, declared=CARD, used=10 * Gi, schemes=("aliyun",)
    ),
    "HAMi: a count that was renamed": Case(
        asks={"nvidia.com/vgpu": "1"}, declared=CARD, used=10 * Gi, capacity={"nvidia.com/vgpu": "10"}
    ),
    "HAMi: memory beside a count that was renamed": Case(
        asks={"nvidia.com/vgpu": "1", MEMORY: "2000"}, declared=2000 * Mi, verdict="over"
    ),
    "a count of one's own": Case(
        asks={"example.com/gpu": "1", MEMORY: "2000"},
        declared=2000 * Mi,
        verdict="over",
        tables='[[declaration]]\nresource = "example.com/gpu"\nunit = "cards"',
    ),
    "cores of one's own": Case(
        asks={"example.com/core": "150"},
        declared=CARD,
        used=10 * Gi,
        tables='[[declaration]]\nresource = "example.com/core"\nunit = "cards"\nof = 100',
        by="example.com/core",
    ),
    "cores of one's own, below a card": Case(
        asks={"example.com/core": "50"},
        declared=4 * Gi,
        tables='[[declaration]]\nresource = "example.com/core"\nunit = "cards"\nof = 100',
        by="default",
    ),
    "a count that nobody has checked, of more cards than there are": Case(
        asks={"nvidia.com/vgpu": "9"}, declared=4 * Gi, labels=ONE, capacity={"cpu": "4"}, by="default"
    ),
    "Huawei CCE: half of nvidia.com/gpu": Case(
        asks={"nvidia.com/gpu": "0.5"}, declared=CARD // 2, used=10 * Gi, capacity={"nvidia.com/gpu": "1"}
    ),
    # The number of cards: what the driver lists and the label says; another plugin may offer more.
    "HAMi beside GPU feature discovery": hami(
        labels={
            **ONE,
            "nvidia.com/gpu.replicas": "1",
            "nvidia.com/gpu.sharing-strategy": "none",
            "nvidia.com/gpu.memory": "24576",
        },
        used=20 * Gi,
        rule="",
    ),
    "time-slicing that the labels do not know of": hami(
        labels={**ONE, "nvidia.com/gpu.replicas": "1"}, capacity={"nvidia.com/gpu": "50"}
    ),
    "a card that the label counts is missing": hami(
        labels={"nvidia.com/gpu.count": "2"}, declared=None, verdict="unknown", by="nvidia.com/gpu"
    ),
    "a card that only the capacity shows is missing": hami(
        labels={"nvidia.com/gpu.replicas": "1"},
        capacity={"nvidia.com/gpu": "2"},
        declared=None,
        verdict="unknown",
        by="nvidia.com/gpu",
    ),
    # A card by a claim, which is not read.
    "a claim alone": Case(declared=None, verdict="unknown", claims=("gpu",), by="claim gpu", used=10 * Gi),
    "a claim beside memory": Case(
        asks={"veriff.com/gpu-memory": "8Gi"},
        declared=None,
        verdict="unknown",
        claims=("gpu",),
        by="claim gpu",
        used=10 * Gi,
    ),
    # KAI: for one container, with the limits that its webhook accepts.
    "KAI: a fraction with an injected sidecar": kai("gpu-fraction", "0.5", containers=INJECTED, rule=BY_CONTAINER),
    "KAI: a fraction for the container that is named": kai(
        *("gpu-fraction", "0.5", "gpu-fraction-container-name", "main"),
        containers=("istio-proxy", "main"),
        rule=BY_CONTAINER,
    ),
    "KAI: a fraction for another container": kai(
        *("gpu-fraction", "0.5", "gpu-fraction-container-name", "istio-proxy"),
        containers=INJECTED,
        rule=BY_CONTAINER,
        declared=4 * Gi,
        verdict="over",
        by="default",
    ),
    "KAI: a name that no container has": kai(
        *("gpu-fraction", "0.5", "gpu-fraction-container-name", "nobody"), containers=INJECTED, rule=BY_CONTAINER
    ),
    "KAI: a limit as a portion": kai("gpu-fraction", "0.25", PORTION, "0.75", declared=CARD * 3 // 4),
    "KAI: a portion above a number of MiB": kai("gpu-memory", "4096", PORTION, "0.75", declared=CARD * 3 // 4),
    "KAI: a portion below a number of MiB": kai("gpu-memory", "12288", PORTION, "0.25", declared=12 * Gi),
    "KAI: a limit as a fraction": kai("gpu-fraction", "0.25", "gpu-fraction.limit", "0.5"),
    "KAI: a limit as a quantity": kai("gpu-memory", "4096", "gpu-memory.limit", "12Gi", declared=12 * Gi),
    "KAI: a limit that the binder wrote": kai("gpu-fraction", "0.25", FRACTION_LIMIT, "12Gi", declared=12 * Gi),
    # Systems that came later.
    "nos: a slice": Case(asks={"nvidia.com/gpu-10gb": "1"}, declared=10 * Gi),
    "nos: two slices": Case(asks={"nvidia.com/gpu-4gb": "2"}, declared=8 * Gi),
    "vgpu-manager: memory": Case(
        asks={"nvidia.com/vgpu-number": "1", "nvidia.com/vgpu-memory": "2048"}, declared=2 * Gi, verdict="over"
    ),
    "vgpu-manager: the number alone": Case(asks={"nvidia.com/vgpu-number": "1"}, declared=CARD, used=10 * Gi),
    "KubeShare, first versions": Case(
        declared=4 * Gi, schemes=("kubeshare",), annotations={"kubeshare/gpu_mem": "4294967296"}
    ),
    # HAMi's settings: another factor, and memory beyond the card.
    "HAMi: memoryFactor": hami(
        *(MEMORY, "2"),
        declared=2 * Gi,
        verdict="over",
        tables='[[declaration]]\nresource = "nvidia.com/gpumem"\nunit = "1Gi"\nper = "gpu"\nunit_differs = true',
    ),
    "HAMi: more memory than the card has": hami(MEMORY, "40000", used=20 * Gi),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_people_write_is_judged_as_their_system_means_it(case: Case) -> None:
    """Points 4 to 6: who owns a card is not judged by a default, a 0 means what its system says, and units differ."""
    got = judged(case)
    assert (got.verdict.value, got.declared) == (case.verdict, case.declared)
    if case.by is not None:
        assert got.declared_by == case.by
    assert bool(got.limit_unknown) is (got.declared is None)


def test_a_claim_of_a_pod_that_uses_no_gpu_memory_makes_no_account() -> None:
    """A claim may be for a network card: a pod that has one and no GPU memory must not raise an alert for ever."""
    policy = parse_policy('schemes = ["*"]\n[[rule]]\nname = "all"\nmatch = {}\n')
    owner = pod("a", replace(container(), claims=("nic",)))
    assert assessed(snapshot(), [owner], policy) == ()
    assert [each.verdict.value for each in assessed(snapshot([use(7, 1)]), [owner], policy)] == ["unknown"]
