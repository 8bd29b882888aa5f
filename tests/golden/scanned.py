"""Worlds that are only looked at: what a pod declares, what it uses, what is allowed, and what would follow."""

from typing import Final

from tests.golden.parts import CLIENT, NodeRow, World, box, card, job, noted, of, pod
from tests.golden.policies import EVICT, NO_ALLOWANCE, VERIFF, WARN, declared, kill, policy, rule
from tests.stub import LISTS, StubReturn

LADDER: Final = rule(WARN, kill(after="2s"), more='default = "4Gi"\n')
PLAIN: Final = policy(LADDER)
NOTES: Final = VERIFF + declared('annotation = "vram"') + declared('annotation = "vram-{container}"')
SHARE: Final = declared('resource = "nvidia.com/gpu.shared"', "share", 'shares = "label:nvidia.com/gpu.replicas"')
LIMIT: Final = 'limit_annotation = "vram-limit"'
LOST: Final = StubReturn(call="nvmlDeviceGetHandleByIndex_v2", code=15, gpu="GPU-1")

SCANNED: Final = (
    World(
        name="scan_over_and_within",
        keeps="Who is over, what is allowed, and the steps that would follow, with their times.",
        policy=PLAIN,
        pods=(pod("hog", (box(declared="1Gi"), box("side"))), pod("calm", "4Gi"), pod("idle", "1Gi")),
        jobs=(job("hog/main", 2), job("hog/side", 0.25), job("calm/main", 3), job("", 1)),
        keys=True,
    ),
    World(
        name="scan_cgroup_v2",
        keeps="The same by cgroup v2.",
        policy=PLAIN,
        pods=(pod("hog", "1Gi"), pod("calm", "4Gi")),
        jobs=(job("hog/main", 2), job("calm/main", 3)),
        version="cgroup2",
    ),
    World(
        name="scan_without_anything",
        keeps="Without a policy a built-in one observes; without a pod list a pod's process is unknown_pod.",
        pods=None,
        jobs=(job("", 2),),
    ),
    World(
        name="scan_containers",
        keeps="Container accounts, each with its own declaration, and the bytes of a container that nobody knows.",
        policy=policy(rule(WARN, kill(after="2s"), account="container")),
        pods=(pod("trio", (box("a", "1Gi"), box("b", "2Gi"), box("c"))),),
        jobs=(job("trio/a", 2), job("trio/b", 2), job("trio/c", 9), job("trio/new", 3)),
    ),
    World(
        name="scan_init_running",
        keeps="While an init container runs, it and the sidecars before it are what counts.",
        policy=PLAIN,
        pods=(
            pod(
                "init",
                (
                    box("proxy", "1Gi", init="sidecar"),
                    box("load", "2Gi", init="plain"),
                    box("main", "8Gi", is_new=True),
                ),
            ),
            pod("later", (box("proxy", "1Gi", init="sidecar"), box("main", "8Gi"))),
        ),
        jobs=(job("init/load", 4), job("later/proxy", 1), job("later/main", 7)),
    ),
    World(
        name="scan_unlisted",
        keeps="Bytes of a container that the pod list lacks make an account unknown unless the known ones suffice.",
        policy=PLAIN,
        pods=(pod("perhaps", "2Gi"), pod("surely", "2Gi"), pod("within", (box(declared="4Gi", is_new=True),))),
        jobs=(
            job("perhaps/main", 1),
            job("perhaps/new", 5),
            job("surely/main", 5),
            job("surely/new", 1),
            job("within/main", 1),
        ),
    ),
    World(
        name="scan_unattributed",
        keeps="Processes of no pod, each with its reason, and a path below one's own cgroup that charges nobody else.",
        policy=PLAIN,
        pods=(pod("thief", "1Gi"), pod("victim", "1Gi"), pod("away", "1Gi", listed=False)),
        jobs=(
            job("thief/main", 9, spoofs="victim/main"),
            job("away/main", 2),
            job("", 1),
            job("", 0.5, behaviour="server"),
        ),
    ),
    World(
        name="scan_unknown_use",
        keeps="A process whose use the driver does not tell is never 0: unknown, or over by what is known.",
        policy=PLAIN,
        pods=(pod("unknown", "4Gi"), pod("over", "1Gi"), pod("calm", "4Gi")),
        jobs=(job("unknown/main", None), job("over/main", 5), job("over/main", None), job("calm/main", 1)),
    ),
    World(
        name="scan_list_fails",
        keeps="A card whose process list fails leaves nobody who might be on it within.",
        policy=PLAIN,
        pods=(pod("hog", "1Gi"), pod("calm", "4Gi")),
        jobs=(job("hog/main", 9), job("calm/main", {1: 1})),
        cards=(card(0), card(1)),
        returns=(StubReturn(call=LISTS[0], code=999, gpu="GPU-1"),),
    ),
    World(
        name="scan_lost_card",
        keeps="A card that is lost is a gap, its row is not up, and nobody's declaration shrinks.",
        policy=policy(LADDER, declarations=NOTES),
        pods=(pod("large", "60Gi"), pod("noted", metadata=noted(vram="60Gi")), pod("hog", "1Gi")),
        jobs=(job("large/main", 30), job("noted/main", 1), job("hog/main", 2)),
        cards=(card(0), card(1)),
        returns=(LOST,),
    ),
    World(
        name="scan_two_cards_one_uuid",
        keeps="What runs on two cards of one UUID is unknown.",
        policy=PLAIN,
        pods=(pod("first", "1Gi"), pod("second", "1Gi")),
        jobs=(job("first/main", 9), job("second/main", {1: 9})),
        cards=(card(0), card(1, says="GPU-0")),
    ),
    World(
        name="scan_no_driver",
        keeps="Where NVML cannot begin, that is a gap, and there is nothing to act on.",
        policy=PLAIN,
        pods=(pod("hog", "1Gi"),),
        jobs=(job("hog/main", 9),),
        returns=(StubReturn(call="nvmlInitWithFlags", code=9),),
    ),
    World(
        name="scan_old_driver",
        keeps="A driver of 2021 tells neither reserved memory nor confidential computing, and all the rest.",
        policy=PLAIN,
        pods=(pod("hog", "1Gi"),),
        jobs=(job("hog/main", 9), job("", 1)),
        variant="r470",
    ),
    World(
        name="scan_rules",
        keeps="The first rule that matches: namespace, label, kind of owner, label of the node; one matches nobody.",
        policy=policy(
            rule(kill(), name="books", match='{ namespaces = ["jupyter-*"] }'),
            rule(kill(), name="dev", match='{ labels = { tier = "dev" } }'),
            rule(EVICT, name="jobs", match='{ owner_kinds = ["Job"] }'),
            rule(kill(), name="elsewhere", match='{ node_labels = { zone = "b" } }'),
            rule(
                WARN,
                name="here",
                match='{ node_labels = { zone = "a" }, namespaces = ["a?"] }',
                more='mode = "observe"\n',
            ),
        ),
        pods=(
            pod("book", "1Gi", namespace="jupyter-x", metadata={"labels": {"tier": "dev"}}),
            pod("dev", "1Gi", metadata={"labels": {"tier": "dev"}}),
            pod("job", "1Gi", metadata=of("Job", "train")),
            pod("here", "1Gi", namespace="ab"),
            pod("none", "1Gi"),
        ),
        jobs=tuple(job(f"{each}/main", 2) for each in ("book", "dev", "job", "here", "none")),
        node=NodeRow(labels={"zone": "a"}),
    ),
    World(
        name="scan_thresholds",
        keeps="A mark as a percentage, above what is allowed, and as an amount; a warning may come below.",
        policy=policy(
            rule(
                WARN.replace("100%", "80%"),
                kill(after="30s", above="+512Mi"),
                kill(after="5s", above="150%"),
                kill(above="20Gi", grace="0s", more="unwarned = true"),
                more='active = "Mon-Sun 00:00-24:00 UTC"\n',
            ),
            allowance=NO_ALLOWANCE,
        ),
        pods=tuple(pod(each, "4Gi") for each in ("low", "warned", "plus", "more", "most")),
        jobs=(
            job("low/main", 3),
            job("warned/main", 4),
            job("plus/main", 4.75),
            job("more/main", 7),
            job("most/main", 21),
        ),
    ),
    World(
        name="scan_protected",
        keeps="Who is never acted on: kube-system, a static pod, a priority, a namespace, a name, an annotation.",
        policy=policy(
            rule(kill()),
            more='[protect]\nnamespaces = ["gpu-*"]\npods = ["ns/dcgm-*"]\n'
            'priority_at_least = 1000\nannotation = "spare-me"\n',
        ),
        pods=(
            pod("dns", "1Gi", namespace="kube-system"),
            pod("mirror", "1Gi", metadata=noted(**{"kubernetes.io/config.mirror": "0123456789abcdef" * 2})),
            pod("static", "1Gi", metadata=of("Node", "n1")),
            pod("critical", "1Gi", priority=2000000000),
            pod("important", "1Gi", priority=1000),
            pod("operator", "1Gi", namespace="gpu-operator"),
            pod("dcgm-exporter", "1Gi"),
            pod("spared", "1Gi", metadata=noted(**{"spare-me": "true"})),
            pod("hog", "1Gi", priority=999),
        ),
        jobs=tuple(
            job(f"{each}/main", 2)
            for each in (
                "dns",
                "mirror",
                "static",
                "critical",
                "important",
                "operator",
                "dcgm-exporter",
                "spared",
                "hog",
            )
        ),
    ),
    World(
        name="scan_pressure",
        keeps="On a short card those above their request are ranked; above the limit it is no matter of pressure.",
        policy=policy(
            rule(kill(after="1s", more="under_pressure = true"), kill(after="5s")),
            declarations=declared('resource = "veriff.com/gpu-memory"', more=LIMIT),
            more='[pressure]\nfree_below = "25%"\n',
        ),
        pods=tuple(
            pod(name, "8Gi", priority=priority, metadata=noted(**{"vram-limit": "20Gi"}))
            for name, priority in (("little", 0), ("much", 0), ("important", 1000), ("within", 0))
        ),
        jobs=(job("little/main", 12), job("much/main", 13), job("important/main", 14), job("within/main", 2)),
        cards=(card(0, 80, base=30 * 2**30),),
    ),
    World(
        name="scan_mps",
        keeps="A client of an MPS server outside its pod is held back; one with a server of its own is not.",
        policy=policy(rule(kill())),
        pods=(pod("shared", "1Gi"), pod("own", (box(declared="1Gi"), box("mps"))), pod("named", "1Gi")),
        jobs=(
            job("", 0.03, behaviour="server"),
            job("shared/main", 9, lists=CLIENT),
            job("own/main", 9, lists=CLIENT),
            job("own/mps", 0.03, behaviour="server"),
            job("named/main", 2, behaviour="server"),
        ),
    ),
    World(
        name="scan_victims",
        keeps="Of a pod the container with the most above its own declaration; a tie goes by use, then by name.",
        policy=policy(rule(kill(), kill("process", above="150%"), kill("pod", above="200%"))),
        pods=(
            pod("own", (box("a", "8Gi"), box("b", "1Gi"))),
            pod("tie", (box("a"), box("b"), box("c", "1Gi"))),
            pod("none", (box("a", "1Gi"),)),
        ),
        jobs=(
            job("own/a", 7.5),
            job("own/b", 4),
            job("tie/a", 2),
            job("tie/b", 2),
            job("tie/b", 1),
            job("tie/c", 1),
            job("none/new", 9),
        ),
    ),
    World(
        name="scan_maintenance",
        keeps="Under maintenance the driver is not asked.",
        policy=PLAIN,
        pods=(pod("hog", "1Gi"),),
        jobs=(job("hog/main", 9),),
        node=NodeRow(labels={"nvidia.com/mig.config.state": "pending"}),
    ),
)
