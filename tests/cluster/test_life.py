"""What a kill and an eviction come to under the real controllers, for workloads that go over again and again.

docs/enforcing.md says this to operators; its figures are those that `pytest -s` prints here with LIFE_S=120.
"""

import os
import time
from collections.abc import Iterator

import pytest

from tests.cluster import workloads
from tests.cluster.life import Life, elapsed, life, table
from tests.cluster.node import Cluster

pytestmark = [pytest.mark.node, pytest.mark.slow]

JOBS = ("job", "job-in-place", "job-ignore", "job-polite")
KINDS = ("deployment", "statefulset", "notebook", "bare", "bare-once", *JOBS)
APPS = {"kill": (*KINDS, "pair"), "process": ("notebook", "models"), "pod": ("pair",), "evict": KINDS}
DEEDS = {
    "kill": 'do = "kill"\nscope = "container"',
    "process": 'do = "kill"\nscope = "process"',
    "pod": 'do = "kill"\nscope = "pod"',
    "evict": 'do = "evict"',
}
LEAST_S = float(os.environ.get("LIFE_S", "0"))
# All has shown itself after a minute or so; on a machine that does much else it took more than 90 s.
LIMIT_S = 300.0
RESTARTS = (
    *(("kill", app, "main", 2) for app in ("deployment", "statefulset", "bare", "pair")),
    ("kill", "notebook", "main", 1),
    ("pod", "pair", "side", 1),
)
VERDICTS = (
    *(("kill", name, "Failed") for name in ("job", "job-in-place", "job-ignore")),
    *(("evict", name, "Failed") for name in ("job", "job-in-place")),
    ("evict", "job-polite", "Failed or Complete"),
    ("kill", "job-polite", "Complete"),
)


@pytest.fixture(scope="module")
def lived(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    """Every kind of workload under every kind of action at once, without brakes, until all has shown itself."""
    began = time.monotonic()
    with life(cluster, tmp_path_factory.mktemp("life"), DEEDS) as made:
        made.apply("kill", *workloads.every_kind(), workloads.pair())
        made.apply("evict", *workloads.every_kind())
        made.apply("process", workloads.notebook(), workloads.models())
        made.apply("pod", workloads.pair())
        made.wait(
            lambda: not unseen(made) and elapsed(began) > LEAST_S,
            lambda: f"what has not shown itself: {'; '.join(unseen(made))}",
            LEAST_S + LIMIT_S,
        )
        print(f"\n{table(made, APPS, elapsed(began))}")
        yield made


def unseen(of: Life) -> list[str]:
    """What is still to come: loops that have not turned often enough, Jobs that have not ended; with what there is."""
    return [f"{what} is {seen}" for what, (is_there, seen) in awaited(of).items() if not is_there]


def awaited(of: Life) -> dict[str, tuple[bool, object]]:
    """What the tests look at: whether it has come about, and what has been seen of it."""
    actions = {app: len(of.actions("process", app)) for app in APPS["process"]}
    found: dict[str, tuple[bool, object]] = {
        "process notebook: actions, 8 or more,": (actions["notebook"] >= 8, actions),
        "process models: actions, 1 or more,": (actions["models"] >= 1, actions),
    }
    for room, app, name, least in RESTARTS:
        restarts = of.told(room, app).restarts
        found[f"{room} {app}: restarts of {name}, {least} or more,"] = (restarts.get(name, 0) >= least, restarts)
    for app in ("deployment", "statefulset", "bare"):
        waiting = of.told("kill", app).waiting
        found[f"kill {app}: back-off"] = ("CrashLoopBackOff" in waiting, waiting)
    for room, name, verdict in VERDICTS:
        verdicts = of.verdicts(room, name)
        is_there = any(each in verdicts for each in verdict.split(" or "))
        found[f"{room} {name}: {verdict}"] = (is_there, (verdicts, of.job(room, name)["startTime"]))
    at_once = of.told("evict", "deployment").at_once
    found["evict deployment: at once, 2 or more,"] = (at_once >= 2, at_once)
    for app in ("deployment", "statefulset", "notebook", "job-ignore"):
        pods = of.told("evict", app).pods
        found[f"evict {app}: pods, 3 or more,"] = (pods >= 3, pods)
    for room, app, phase in (("kill", "bare-once", "Failed"), ("evict", "bare", None), ("evict", "bare-once", None)):
        pod = of.cluster.pods.get(app, of.rooms[room].namespace)
        seen = pod["status"]["phase"] if pod is not None else None
        found[f"{room} {app}: {phase or 'gone'}"] = (seen == phase, seen)
    return found


@pytest.mark.parametrize("app", ["deployment", "statefulset", "bare"])
def test_a_kill_restarts_the_container_in_its_pod(lived: Life, app: str) -> None:
    """No new pod: exit code 137, reason Error, restarted by the kubelet, which waits longer each time."""
    seen = lived.told("kill", app)
    assert (seen.pods, seen.ends, seen.disruptions, seen.graces_s) == (1, {(137, "Error")}, set(), set())
    assert seen.restarts["main"] >= 2
    assert "CrashLoopBackOff" in seen.waiting
    assert seen.restarts["main"] <= len(lived.actions("kill", app)) <= seen.restarts["main"] + 1


@pytest.mark.parametrize("name", ["job", "job-ignore"])
def test_a_kill_counts_against_a_job(lived: Life, name: str) -> None:
    """A killed pod is a failure, also where disruptions are ignored; past backoffLimit the Job has failed for good."""
    assert lived.told("kill", name).pods == 2
    assert lived.job("kill", name)["failed"] == 2
    assert lived.verdicts("kill", name)["Failed"] == "BackoffLimitExceeded"
    assert len(lived.actions("kill", name)) == 2


def test_a_kill_in_a_job_that_restarts_in_place_counts_too(lived: Life) -> None:
    """With restartPolicy OnFailure the same pod is tried again; the Job fails once its restarts reach backoffLimit."""
    seen = lived.told("kill", "job-in-place")
    assert (seen.pods, seen.ends) == (1, {(137, "Error")})
    assert seen.restarts["main"] in (1, 2)
    assert lived.verdicts("kill", "job-in-place")["Failed"] == "BackoffLimitExceeded"


def test_a_killed_bare_pod_that_does_not_restart_has_failed(lived: Life) -> None:
    """With restartPolicy Never it stays as it ended, with its exit code and its Events, and is hit no more."""
    seen = lived.told("kill", "bare-once")
    assert (seen.pods, seen.ends, seen.restarts) == (1, {(137, "Error")}, {"main": 0})
    assert len(lived.actions("kill", "bare-once")) == 1
    found = lived.cluster.pods.get("bare-once", lived.rooms["kill"].namespace)
    assert found is not None
    assert found["status"]["phase"] == "Failed"


def test_a_job_that_ends_with_0_at_sigterm_is_done(lived: Life) -> None:
    """A grace lets a program end as if its work was done, and the Job is complete: nobody sees a failure."""
    seen = lived.told("kill", "job-polite")
    assert (seen.pods, seen.ends, seen.phases & {"Succeeded", "Failed"}) == (1, {(0, "Completed")}, {"Succeeded"})
    assert lived.verdicts("kill", "job-polite")["Complete"] == "CompletionsReached"


def test_the_scope_process_leaves_the_server_of_a_notebook_alone(lived: Life) -> None:
    """The kernel dies, the server starts the next one: no restart that Kubernetes sees, and nothing slows it down."""
    seen = lived.told("process", "notebook")
    assert (seen.pods, seen.restarts, seen.ends, seen.waiting - {"ContainerCreating"}) == (1, {"main": 0}, set(), set())
    log = lived.cluster.pods.log("notebook-0", lived.rooms["process"].namespace)
    ended = [line for line in log if "ended" in line]
    assert len(ended) >= 7
    assert all("by signal 15" in line for line in ended)


def test_the_scope_container_takes_the_server_of_a_notebook_too(lived: Life) -> None:
    """The same notebook under scope container: the container restarts, with all kernels of its user."""
    seen = lived.told("kill", "notebook")
    assert seen.pods == 1
    assert seen.restarts["main"] >= 1


def test_the_scope_process_ends_one_of_two_models(lived: Life) -> None:
    """Two processes that are too much together: one is ended, and the pod is within."""
    assert len(lived.actions("process", "models")) == 1
    log = lived.cluster.pods.log("models", lived.rooms["process"].namespace)
    assert len([line for line in log if "ended by signal" in line]) == 1
    assert lived.told("process", "models").restarts == {"main": 0}


def test_the_scope_says_which_containers_of_a_pod_end(lived: Life) -> None:
    """Scope container: the one that goes over, alone. Scope pod: its neighbour too, with the same exit code."""
    assert lived.told("kill", "pair").restarts["side"] == 0
    seen = lived.told("pod", "pair")
    assert seen.restarts["side"] >= 1
    assert (seen.pods, seen.ends) == (1, {(137, "Error")})


@pytest.mark.parametrize("app", ["deployment", "statefulset", "notebook"])
def test_an_evicted_pod_of_a_controller_is_made_anew(lived: Life, app: str) -> None:
    """A new pod each time, with the policy's grace and not its own; the kubelet's back-off never comes into it."""
    seen = lived.told("evict", app)
    assert seen.pods >= 3
    assert (seen.restarts, seen.disruptions) == ({"main": 0}, {"EvictionByEvictionAPI"})
    # 0 is the kubelet's own, once the containers have ended.
    assert seen.graces_s - {0} == {1}
    assert "CrashLoopBackOff" not in seen.waiting


def test_a_new_pod_of_a_deployment_runs_beside_the_evicted_one(lived: Life) -> None:
    """A Deployment does not wait for the end of the old pod, and in its grace both hold memory; a StatefulSet does."""
    assert lived.told("evict", "deployment").at_once >= 2
    assert lived.told("evict", "statefulset").at_once == 1


@pytest.mark.parametrize("app", ["bare", "bare-once"])
def test_an_evicted_bare_pod_is_gone(lived: Life, app: str) -> None:
    """Nobody makes it again, whatever its restartPolicy, and its object goes with it."""
    assert lived.told("evict", app).pods == 1
    assert lived.cluster.pods.get(app, lived.rooms["evict"].namespace) is None


@pytest.mark.parametrize("name", ["job", "job-in-place"])
def test_an_eviction_counts_against_a_job(lived: Life, name: str) -> None:
    """An evicted pod is a failure of the Job."""
    assert lived.told("evict", name).pods == 2
    assert lived.job("evict", name)["failed"] == 2
    assert lived.verdicts("evict", name)["Failed"] == "BackoffLimitExceeded"


def test_an_eviction_counts_against_a_job_that_ends_with_0_unless_its_controller_is_late(lived: Life) -> None:
    """A pod that is being deleted is a failure, unless it has succeeded by the time the Job's controller looks at it.

    isPodFailed in k8s.io/kubernetes/pkg/controller/job/job_controller.go; the controller is late on a busy machine.
    """
    verdicts, status = lived.verdicts("evict", "job-polite"), lived.job("evict", "job-polite")
    if "Complete" in verdicts:
        assert (verdicts["Complete"], status["succeeded"]) == ("CompletionsReached", 1)
    else:
        assert (verdicts["Failed"], status["failed"]) == ("BackoffLimitExceeded", 2)


def test_a_job_that_ignores_disruptions_is_never_done_with_evictions(lived: Life) -> None:
    """With podFailurePolicy Ignore on DisruptionTarget no eviction counts: the Job goes on and makes pods for ever."""
    assert lived.told("evict", "job-ignore").pods >= 3
    assert lived.job("evict", "job-ignore").get("failed", 0) == 0
    assert lived.verdicts("evict", "job-ignore") == {}
