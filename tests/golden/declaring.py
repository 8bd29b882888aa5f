"""Worlds that are only looked at, for what a pod declares and what it is allowed for that."""

from typing import Final

from tests.golden.parts import NodeRow, World, box, card, job, mig_card, noted, pod, wants
from tests.golden.policies import ALLOWANCE, NO_ALLOWANCE, VERIFF, WARN, declared, kill, policy, rule
from tests.node.support import REPOSITORY

LADDER: Final = rule(WARN, kill(after="2s"), more='default = "4Gi"\n')
PLAIN: Final = policy(LADDER)
BARE: Final = policy(rule(WARN, kill(after="2s")))
NOTES: Final = VERIFF + declared('annotation = "vram"') + declared('annotation = "vram-{container}"')
SHIPPED: Final = (REPOSITORY / "config" / "policy.toml").read_text(encoding="utf-8")
TIME_SLICED: Final = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
SHARE: Final = declared('resource = "nvidia.com/gpu.shared"', "share", 'shares = "label:nvidia.com/gpu.replicas"')

DECLARING: Final = (
    World(
        name="scan_default",
        keeps="A rule's default is for who declares nothing, and for nobody else.",
        policy=PLAIN,
        pods=(pod("none"), pod("half", (box(declared="1Gi"), box("side"))), pod("quiet")),
        jobs=(job("none/main", 5), job("half/side", 3)),
    ),
    World(
        name="scan_default_of_containers",
        keeps="In container accounts the default is for each container that declares nothing.",
        policy=policy(rule(kill(), account="container", more='default = "2Gi"\n')),
        pods=(pod("half", (box(declared="1Gi"), box("side"), box("third"))),),
        jobs=(job("half/main", 1), job("half/side", 3), job("half/third", 1)),
    ),
    World(
        name="scan_default_zero",
        keeps="A default of 0 forbids any use, without an allowance.",
        policy=policy(rule(kill(), more='default = "0"\n')),
        pods=(pod("none"), pod("quiet"), pod("calm", "1Gi")),
        jobs=(job("none/main", 0.001), job("calm/main", 1)),
    ),
    World(
        name="scan_undeclared",
        keeps="Without a default an account that declares nothing is left alone.",
        policy=BARE,
        pods=(pod("none"), pod("calm", "1Gi")),
        jobs=(job("none/main", 30), job("calm/main", 1)),
    ),
    World(
        name="scan_annotations",
        keeps="Annotations of the pod and of a container, tried in their order.",
        policy=policy(LADDER, declarations=NOTES),
        pods=(
            pod("pods", metadata=noted(vram="3Gi")),
            pod("own", (box(), box("side")), metadata=noted(**{"vram-main": "1Gi", "vram-side": "2Gi"})),
            pod("both", "6Gi", metadata=noted(vram="3Gi")),
        ),
        jobs=(job("pods/main", 4), job("own/main", 2), job("own/side", 2), job("both/main", 5)),
    ),
    World(
        name="scan_misdeclared",
        keeps="What a tenant writes and cannot be is skipped, and misdeclared only where nothing else is left.",
        policy=policy(rule(WARN, kill(after="2s")), declarations=NOTES),
        pods=(
            pod("big", metadata=noted(vram="41Gi")),
            pod("huge", metadata=noted(vram="1e30")),
            pod("negative", metadata=noted(vram="-1")),
            pod("text", metadata=noted(vram="much")),
            pod("good", metadata=noted(vram="2Gi")),
            pod("next", metadata=noted(**{"vram": "-1", "vram-main": "2Gi"})),
        ),
        jobs=tuple(job(f"{each}/main", 3) for each in ("big", "huge", "negative", "text", "good", "next")),
    ),
    World(
        name="scan_units",
        keeps="The number times its unit, a percentage and a fraction of the card, and an odd resource that counts.",
        policy=policy(
            LADDER,
            allowance=NO_ALLOWANCE,
            declarations=declared('resource = "a/mib"', "1Mi")
            + declared('resource = "a/percent"', "percent")
            + declared('resource = "a/fraction"', "fraction")
            + declared('resource = "a/bytes"'),
        ),
        pods=(
            wants("mib", {"a/mib": "1024"}),
            wants("percent", {"a/percent": "25"}),
            wants("fraction", {"a/fraction": "500m"}),
            wants("bytes", {"a/bytes": str(2**63)}),
        ),
        jobs=(job("mib/main", 1.5), job("percent/main", 9), job("fraction/main", 19), job("bytes/main", 1)),
        node=NodeRow(capacity={"a/mib": "40960", "a/percent": "100", "a/fraction": "1", "a/bytes": str(2**63)}),
    ),
    World(
        name="scan_unchecked_resource",
        keeps="A resource that the node's capacity does not list is the tenant's own word.",
        policy=BARE,
        pods=(pod("sneaky", "60Gi"), pod("small", "2Gi")),
        jobs=(job("sneaky/main", 30), job("small/main", 3)),
        node=NodeRow(capacity={"cpu": "8"}),
    ),
    World(
        name="scan_unless",
        keeps="A declaration that does not hold `unless` another resource is below its mark.",
        policy=policy(
            LADDER,
            declarations=declared(
                'resource = "t/memory"',
                "256Mi",
                'unless = { resource = "t/core", at_least = 100 }\nallowance = { per_context = "0", percent = "5%" }',
            ),
        ),
        pods=(wants("part", {"t/memory": "8", "t/core": "50"}), wants("whole", {"t/memory": "8", "t/core": "100"})),
        jobs=(job("part/main", 3), job("whole/main", 3)),
    ),
    World(
        name="scan_shares_two_sizes",
        keeps="A share is of the card it is on, and of the smallest where that is not known.",
        policy=policy(LADDER, declarations=SHARE),
        pods=tuple(wants(name, {"nvidia.com/gpu.shared": "1"}) for name in ("small", "large", "quiet")),
        jobs=(job("small/main", 15), job("large/main", {1: 15})),
        cards=(card(0, 40), card(1, 80)),
        node=NodeRow(labels=TIME_SLICED),
    ),
    World(
        name="scan_shares_unknown",
        keeps="Without the label that says how many shares there are a share is unknown, never the default.",
        policy=policy(LADDER, declarations=SHARE),
        pods=(wants("one", {"nvidia.com/gpu.shared": "1"}),),
        jobs=(job("one/main", 15),),
        node=NodeRow(),
    ),
    World(
        name="scan_whole_card",
        keeps="A pod with a card of its own declares the whole of it.",
        policy=PLAIN,
        pods=(wants("whole", {"nvidia.com/gpu": "1"}), pod("none")),
        jobs=(job("whole/main", 30), job("none/main", {1: 5})),
        cards=(card(0), card(1)),
        node=NodeRow(capacity={"nvidia.com/gpu": "2"}),
    ),
    World(
        name="scan_per_gpu",
        keeps="An amount for each card: on as many as the container counts; both kinds misdeclare.",
        policy=policy(
            LADDER,
            declarations=declared('resource = "h/gpumem"', "1Mi", 'per = "gpu"') + VERIFF,
            allowance=NO_ALLOWANCE,
        ),
        pods=(
            wants("two", {"h/gpumem": "4096", "nvidia.com/gpu": "1"}),
            wants("one", {"h/gpumem": "4096"}),
            pod("kinds", (box(resources={"h/gpumem": "1024"}), box("side", "1Gi"))),
        ),
        jobs=(job("two/main", {0: 5, 1: 1}), job("one/main", {1: 3}), job("kinds/main", 1), job("kinds/side", 1)),
        cards=(card(0), card(1)),
        node=NodeRow(
            labels=TIME_SLICED, capacity={"h/gpumem": "80000", "nvidia.com/gpu": "8", "veriff.com/gpu-memory": "80Gi"}
        ),
    ),
    World(
        name="scan_mig",
        keeps="MIG instances are rows of their own, and a MIG resource declares its instance.",
        policy=policy(LADDER, declarations=declared('resource = "nvidia.com/mig-*"', "mig") + VERIFF),
        pods=(wants("first", {"nvidia.com/mig-1g.5gb": "1"}), pod("second", "1Gi"), pod("third")),
        jobs=(
            job("first/main", {1: 4}, gi=1),
            job("second/main", {1: 2}, gi=2),
            job("third/main", {0: 5}),
        ),
        cards=(card(0), mig_card(1, 2)),
    ),
    World(
        name="scan_shipped_policy",
        keeps="The policy as it ships reads what each sharing system writes.",
        policy=SHIPPED,
        pods=(
            pod("veriff", "8Gi"),
            wants("hami", {"nvidia.com/gpumem": "4096", "nvidia.com/gpu": "1"}),
            wants("tencent", {"tencent.com/vcuda-memory": "16", "tencent.com/vcuda-core": "20"}),
            wants("koordinator", {"koordinator.sh/gpu-memory-ratio": "50"}),
            wants("huawei", {"volcano.sh/gpu-mem.128Mi": "32"}),
            wants("mig", {"nvidia.com/mig-1g.5gb": "1"}),
            pod("none"),
        ),
        jobs=(
            job("veriff/main", 12),
            job("hami/main", 5),
            job("tencent/main", 3),
            job("koordinator/main", 10),
            job("huawei/main", 5),
            job("mig/main", {1: 4}, gi=1),
            job("none/main", 1),
        ),
        cards=(card(0, 80), mig_card(1, 1)),
    ),
    World(
        name="scan_allowance",
        keeps="What comes on top: a percentage and an amount for each process on a card, up to so many.",
        policy=policy(LADDER, allowance=ALLOWANCE + "max_contexts = 2\n"),
        pods=(pod("one", "1Gi"), pod("three", "1Gi"), pod("cards", "1Gi"), pod("none", "1Gi")),
        jobs=(
            job("one/main", 1.25),
            *(job("three/main", 0.5) for _ in range(3)),
            job("cards/main", {0: 1, 1: 0.5}),
        ),
        cards=(card(0), card(1)),
    ),
)
