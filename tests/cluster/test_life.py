"""What a kill and an eviction lead to under the real controllers, for workloads that go over again and again.

docs/enforcing.md says this to operators; its figures are those that `pytest -s` prints here with LIFE_S=120.
"""

import os
import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tests.rig.cluster import workloads
from tests.rig.cluster.life import Life, life
from tests.rig.cluster.node import Cluster

pytestmark = [pytest.mark.node, pytest.mark.slow]

ACTIONS: Final = {
    "kill": 'do = "kill"\nscope = "container"',
    "process": 'do = "kill"\nscope = "process"',
    "pod": 'do = "kill"\nscope = "pod"',
    "evict": 'do = "evict"',
}
LEAST_S: Final = float(os.environ.get("LIFE_S", "0"))
# All of it has happened after a minute or so; on a machine that does much else it took more than 90 s.
LIMIT_S: Final = 300.0
ENDED: Final = {(137, "Error")}
FAILED: Final = {"pods": 2, "failed": 2, "Failed": "BackoffLimitExceeded"}
# No new pod: exit code 137, restarted by the kubelet, which waits longer each time.
RESTARTED: Final = {"pods": 1, "ends": ENDED, "disruptions": set(), "graces_s": set(), "crash_loops": True}
# A new pod each time, with the policy's grace period and not its own; the kubelet's back-off does not apply.
REPLACED: Final = {
    "restarts": {"main": 0},
    "disruptions": {"EvictionByEvictionAPI"},
    "graces_s": {1},
    "crash_loops": False,
}
# What has happened in the end, by the kind of action and the workload.
FACTS: Final[dict[tuple[str, str], Mapping[str, object]]] = {
    ("kill", "deployment"): RESTARTED,
    ("kill", "statefulset"): RESTARTED,
    ("kill", "bare"): RESTARTED,
    # Past backoffLimit the Job has failed for good, also where disruptions are ignored: a kill is none.
    ("kill", "job"): {**FAILED, "actions": 2},
    ("kill", "job-ignore"): {**FAILED, "actions": 2},
    # With restartPolicy OnFailure the same pod is tried again.
    ("kill", "job-in-place"): {"pods": 1, "ends": ENDED, "Failed": "BackoffLimitExceeded"},
    ("kill", "bare-once"): {"pods": 1, "ends": ENDED, "restarts": {"main": 0}, "actions": 1, "phase": "Failed"},
    # A grace period lets a program end as if its work was done: no failure is seen.
    ("kill", "job-polite"): {"pods": 1, "ends": {(0, "Completed")}, "Complete": "CompletionsReached"},
    ("kill", "notebook"): {"pods": 1},
    # The kernel dies, the server starts the next one: no restart that Kubernetes sees, and nothing slows it down.
    ("process", "notebook"): {"pods": 1, "ends": set(), "restarts": {"main": 0}, "crash_loops": False},
    ("process", "models"): {"actions": 1, "restarts": {"main": 0}},
    ("pod", "pair"): {"pods": 1, "ends": ENDED},
    ("evict", "deployment"): REPLACED,
    ("evict", "statefulset"): {**REPLACED, "at_once": 1},
    ("evict", "notebook"): REPLACED,
    # Without a controller it is gone for good, whatever its restartPolicy.
    ("evict", "bare"): {"pods": 1, "phase": None},
    ("evict", "bare-once"): {"pods": 1, "phase": None},
    ("evict", "job"): FAILED,
    ("evict", "job-in-place"): FAILED,
    # With podFailurePolicy Ignore on DisruptionTarget no eviction counts: the Job makes pods for ever.
    ("evict", "job-ignore"): {"failed": 0, "Failed": None, "Complete": None},
}
# What repeats, and how often it is awaited.
LEAST: Final[dict[tuple[str, str], Mapping[str, int]]] = {
    **{("kill", app): {"main": 2} for app in ("deployment", "statefulset", "bare", "pair")},
    ("kill", "notebook"): {"main": 1},
    ("pod", "pair"): {"side": 1},
    ("process", "notebook"): {"actions": 8},
    # A Deployment does not wait for the end of the old pod, and in its grace period both hold memory.
    ("evict", "deployment"): {"pods": 3, "at_once": 2},
    **{("evict", app): {"pods": 3} for app in ("statefulset", "notebook", "job-ignore")},
}


@pytest.fixture(scope="module")
def lived(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    """Every kind of workload under every kind of action at once, without brakes, until all of it has happened."""
    began = time.monotonic()
    with life(cluster, tmp_path_factory.mktemp("life"), ACTIONS) as made:
        made.apply("kill", *workloads.every_kind(), workloads.pair())
        made.apply("evict", *workloads.every_kind())
        made.apply("process", workloads.notebook(), workloads.models())
        made.apply("pod", workloads.pair())
        made.wait(
            lambda: not missing(made) and time.monotonic() - began > LEAST_S,
            lambda: f"what has not happened: {'; '.join(missing(made))}",
            LEAST_S + LIMIT_S,
        )
        print(f"\nafter {time.monotonic() - began:.0f} s:")
        for room, app in sorted({*FACTS, *LEAST}):
            freed = [line["release_s"] for line in made.logged(room, app, "released")]
            free_s = f"{statistics.median(freed):.1f}" if freed else "-"
            print(f"{room:9} {app:12} actions={len(made.actions(room, app))} free_s={free_s} {made.history(room, app)}")
        yield made


def seen(of: Life, room: str, app: str, names: Mapping[str, object]) -> dict[str, Any]:
    """What there is now of these facts about a workload."""
    history = of.history(room, app)
    pod = of.cluster.pods.get(app, of.rooms[room])
    job = {"failed", "Failed", "Complete"} & names.keys()
    verdicts = of.verdicts(room, app) if job else {}
    found = {name: getattr(history, name) for name in history.__slots__} | {
        "actions": len(of.actions(room, app)),
        "main": history.restarts.get("main", 0),
        "side": history.restarts.get("side", 0),
        "crash_loops": "CrashLoopBackOff" in history.waiting,
        "phase": pod["status"]["phase"] if pod is not None else None,
        "failed": of.job(room, app).get("failed", 0) if job else None,
        "Failed": verdicts.get("Failed"),
        "Complete": verdicts.get("Complete"),
    }
    return {name: found[name] for name in names}


def missing(of: Life) -> list[str]:
    """What is still to come, with what there is."""
    found = {key: (seen(of, *key, facts), facts) for key, facts in FACTS.items()}
    counted = {key: (seen(of, *key, least), least) for key, least in LEAST.items()}
    late = [f"{key}: {now}" for key, (now, facts) in found.items() if now != facts]
    late += [f"{key}: {now}" for key, (now, least) in counted.items() if any(now[name] < least[name] for name in least)]
    polite = of.verdicts("evict", "job-polite")
    return late if {"Complete", "Failed"} & polite.keys() else [*late, f"evict job-polite: {polite}"]


@pytest.mark.parametrize(("room", "app"), FACTS, ids=[" ".join(key) for key in FACTS])
def test_what_an_action_leads_to(lived: Life, room: str, app: str) -> None:
    """Pods, restarts, exit codes, conditions and verdicts are as documented."""
    facts = FACTS[room, app]
    assert seen(lived, room, app, facts) == facts


@pytest.mark.parametrize("app", ["deployment", "statefulset", "bare"])
def test_a_container_is_killed_once_a_restart(lived: Life, app: str) -> None:
    """A container that is waiting to be restarted is not killed again."""
    restarts = lived.history("kill", app).restarts["main"]
    assert restarts <= len(lived.actions("kill", app)) <= restarts + 1


def test_the_scope_says_which_processes_and_containers_end(lived: Life) -> None:
    """Process: one kernel, or one of two models; container: the one that goes over, alone."""
    room = lived.rooms["process"]
    kernels = [line for line in lived.cluster.pods.log("notebook-0", room) if "ended" in line]
    assert len(kernels) >= 7
    assert all("by signal 15" in line for line in kernels)
    assert len([line for line in lived.cluster.pods.log("models", room) if "ended by signal" in line]) == 1
    assert lived.history("kill", "pair").restarts["side"] == 0


def test_an_eviction_counts_against_a_job_that_ends_with_0_unless_its_controller_is_late(lived: Life) -> None:
    """A pod that is being deleted is a failure, unless it has succeeded by the time the Job's controller sees it.

    isPodFailed in k8s.io/kubernetes/pkg/controller/job/job_controller.go; the controller is late on a busy machine.
    """
    verdicts, status = lived.verdicts("evict", "job-polite"), lived.job("evict", "job-polite")
    if "Complete" in verdicts:
        assert (verdicts["Complete"], status["succeeded"]) == ("CompletionsReached", 1)
    else:
        assert (verdicts["Failed"], status["failed"]) == ("BackoffLimitExceeded", 2)
