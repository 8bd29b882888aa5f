"""Worlds in which something holds a daemon back: brakes, switches, what is not known, and what is protected."""

from typing import Final

from tests.golden.parts import (
    CLIENT,
    Card,
    Driver,
    Marks,
    NodeRow,
    Passes,
    Pods,
    Ready,
    Runs,
    Signalled,
    StopFile,
    Uses,
    World,
    Writes,
    box,
    card,
    ended,
    held,
    job,
    noted,
    of,
    pod,
    until,
)
from tests.golden.policies import WARN, declared, kill, policy, rule
from tests.stub import LISTS, StubReturn

ONE: Final = (pod("hog", "1Gi"),)
OVER: Final = (job("hog/main", 9),)
DEAF: Final = (job("hog/main", 9, behaviour="deaf"),)
SLOW: Final = policy(rule(WARN, kill(after="1h")))
QUICK: Final = policy(rule(kill()))
BRAKED: Final = "[brakes]\n{}\n"
# Above its neighbours by more the later it stands: who comes first is decided by that.
CROWD: Final = tuple(job(f"p{n}/main", 2 + n) for n in range(4))
REPLICAS: Final = tuple(
    pod(f"p{n}", "1Gi", metadata={"labels": {"pod-template-hash": "5d4"}, **of("ReplicaSet", "web-5d4")})
    for n in range(4)
)
OWNERS: Final = tuple(pod(f"p{n}", "1Gi", namespace="a" if n % 2 else "b") for n in range(4))
MIG: Final = NodeRow(labels={"nvidia.com/mig.config.state": "pending"})

HELD: Final = (
    World(
        name="brake_owner",
        keeps="No more than so many actions an owner; the others wait, and that is told once each.",
        policy=policy(rule(kill()), more=BRAKED.format('owner = "1 per 10m"')),
        pods=REPLICAS,
        jobs=CROWD,
        actions=(ended(), held("owner", 3), Passes()),
        explain="ns/p0",
    ),
    World(
        name="brake_owner_backoff",
        keeps="An owner whose pods offend again waits.",
        policy=policy(rule(kill()), more=BRAKED.format('owner_backoff = { first = "1h", factor = 2, max = "1h" }')),
        pods=REPLICAS,
        jobs=CROWD,
        actions=(ended(), held("owner_backoff", 3), Passes()),
    ),
    World(
        name="brakes_namespace_and_node",
        keeps="No more than so many actions a namespace and a node; the first brake that holds is named.",
        policy=policy(rule(kill()), more=BRAKED.format('namespace = "1 per 10m"\nnode = "2 per 10m"')),
        pods=(*OWNERS, pod("p4", "1Gi", namespace="c")),
        jobs=(*CROWD, job("p4/main", 6)),
        actions=(ended(count=2), held("namespace"), held("node", 2), Passes()),
    ),
    World(
        name="breaker",
        keeps="Where most owners are over at once nobody is hit.",
        policy=policy(
            rule(kill()), more=BRAKED.format('breaker = { offenders = "50%", of_at_least = 3, hold = "10m" }')
        ),
        pods=OWNERS,
        jobs=CROWD,
        actions=(held("breaker", 4), Passes()),
    ),
    World(
        name="brakes_of_observing",
        keeps="Observing counts by the same brakes.",
        policy=policy(rule(kill()), mode="observe", more=BRAKED.format('owner = "1 per 10m"')),
        pods=REPLICAS,
        jobs=CROWD,
        actions=(until("would_act_total", action="kill"), held("owner", 3), Passes()),
    ),
    World(
        name="stop_file",
        keeps="The stop file ends the grace and all enforcement.",
        policy=policy(rule(kill(grace="1m"))),
        pods=ONE,
        jobs=DEAF,
        actions=(Signalled(), StopFile(), ended("interrupted"), Passes()),
    ),
    World(
        name="stop_and_resume",
        keeps="`stop` beside a daemon, which goes on measuring and deciding; after `resume` it enforces again.",
        policy=QUICK,
        pods=ONE,
        jobs=(job("hog/main", 0.5),),
        actions=(
            Runs("stop"),
            Uses("hog/main", 9),
            until("would_act_total", action="kill"),
            until("enforcement_suspended", reason="stop_file"),
            Runs("resume"),
            ended(),
            Passes(),
        ),
    ),
    World(
        name="annotation_observes",
        keeps="The node's annotation turns enforcement off.",
        policy=QUICK,
        pods=ONE,
        jobs=OVER,
        node=NodeRow(annotations={"gpu-memory-watchdog/mode": "observe"}),
        actions=(Passes(2),),
    ),
    World(
        name="stale_pods",
        keeps="On a pod list that is too old nobody is hit, and the daemon is not ready.",
        policy=policy(rule(kill()), top='stale_after = "3s"\n'),
        pods=ONE,
        jobs=(job("hog/main", 0.5),),
        actions=(Passes(), Pods(None), Ready(503), Uses("hog/main", 9), held("stale"), Passes()),
    ),
    World(
        name="maintenance",
        keeps="Under maintenance the driver is let go, and nobody is hit.",
        policy=SLOW,
        pods=ONE,
        jobs=OVER,
        node=NodeRow(),
        actions=(ended(action="warn"), Marks(MIG), Ready(503), until("gpu_up", 0), Passes()),
    ),
    World(
        name="terminating",
        keeps="A pod that is being deleted is left alone until its deadline has passed.",
        policy=QUICK,
        pods=(
            pod("going", "1Gi", metadata={"deletionTimestamp": "2099-01-01T00:00:00Z"}),
            pod("overdue", "1Gi", metadata={"deletionTimestamp": "2020-01-01T00:00:00Z"}),
        ),
        jobs=(job("going/main", 9), job("overdue/main", 9)),
        actions=(ended(), Passes()),
    ),
    World(
        name="mps_client",
        keeps="A client of a shared MPS server lives, and so does its server.",
        policy=QUICK,
        pods=(pod("hog", "1Gi"), pod("calm", "4Gi")),
        jobs=(
            job("", 0.03, behaviour="server"),
            job("hog/main", 9, lists=CLIENT),
            job("calm/main", 1, lists=CLIENT),
        ),
        actions=(held("mps"), Passes()),
    ),
    World(
        name="restarted_container",
        keeps="A container that has restarted under an ID that the list lacks does not make its sidecar the victim.",
        policy=QUICK,
        pods=(pod("trainer", (box("main", "4Gi", is_new=True), box("side", "1Gi"))),),
        jobs=(job("trainer/main", 9), job("trainer/side", 0.75)),
        actions=(Passes(2),),
    ),
    World(
        name="init_phase",
        keeps="While an init container runs, only it and its sidecars count.",
        policy=QUICK,
        pods=(
            pod(
                "trainer",
                (
                    box("proxy", "1Gi", init="sidecar"),
                    box("load", "1Gi", init="plain"),
                    box("main", "8Gi", is_new=True),
                ),
            ),
        ),
        jobs=(job("trainer/proxy", 0.75), job("trainer/load", 5)),
        actions=(ended(), Passes()),
    ),
    World(
        name="spoofed_cgroup",
        keeps="Who makes a path of another pod below its own cgroup is killed itself.",
        policy=QUICK,
        pods=(pod("thief", "1Gi"), pod("victim", "1Gi")),
        jobs=(job("thief/main", 9, spoofs="victim/main"), job("victim/main", 1)),
        actions=(ended(), Passes()),
    ),
    World(
        name="list_fails",
        keeps="While the process list fails nobody is judged by what was known before.",
        policy=SLOW,
        pods=ONE,
        jobs=OVER,
        actions=(
            ended(action="warn"),
            Driver((StubReturn(call=LISTS[0], code=999),)),
            until("accounts", 1, verdict="unknown"),
            Passes(),
        ),
    ),
    World(
        name="lost_card",
        keeps="A card that is lost stays as a row that is not up, and what declares it stays.",
        policy=SLOW,
        pods=(pod("large", "60Gi"), pod("hog", "1Gi")),
        jobs=(job("large/main", {1: 30}), job("hog/main", 9)),
        cards=(card(0), card(1)),
        actions=(
            ended(action="warn"),
            Driver((StubReturn(call="*", code=15, gpu="GPU-1"),)),
            until("gpu_up", 0, gpu="GPU-1"),
            Passes(),
        ),
    ),
    World(
        name="bad_reload",
        keeps="A policy that is bad changes nothing but a metric.",
        policy=SLOW,
        pods=ONE,
        jobs=OVER,
        actions=(
            ended(action="warn"),
            Writes("mode = = 1"),
            until("policy_last_reload_successful", 0),
            Passes(),
        ),
    ),
    World(
        name="good_reload",
        keeps="A policy that changes who is protected is in force at the next pass.",
        policy=policy(rule(kill(after="1h"))),
        pods=ONE,
        jobs=OVER,
        actions=(
            Passes(),
            Writes(policy(rule(kill()), more='[protect]\nnamespaces = ["ns"]\n')),
            held("protected"),
            Passes(),
        ),
    ),
    World(
        name="pressure",
        keeps="On a short card one victim after the other, by rank, and no more than it takes.",
        policy=policy(
            rule(kill(after="1s", grace="0s", more="under_pressure = true"), kill(grace="0s")),
            declarations=declared('resource = "veriff.com/gpu-memory"', more='limit_annotation = "vram-limit"'),
            more='[pressure]\nfree_below = "25%"\n',
        ),
        pods=tuple(
            pod(name, "8Gi", priority=priority, metadata=noted(**{"vram-limit": "20Gi"}))
            for name, priority in (("little", 0), ("much", 0), ("important", 1000), ("within", 0))
        ),
        jobs=(job("little/main", 12), job("much/main", 13), job("important/main", 14), job("within/main", 2)),
        cards=(card(0, 80, base=14 * 2**30),),
        free_delay_ms=700.0,
        actions=(Passes(), Card(34), ended(count=2), Passes(3)),
    ),
)
