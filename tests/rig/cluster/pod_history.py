"""What happened to a workload, from the changes of its pods."""

from dataclasses import dataclass

from tests.rig.cluster.recorder import Change, Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class PodHistory:
    """All that was seen of the pods of one workload.

    `pods`: how many there were, by UID; `at_once`: the most whose containers ran at the same time. `restarts`: of
    containers in place, by name, the most of one pod. `ends`: exit code and reason of containers that ended.
    `waiting`: why containers waited. `disruptions`: the reasons of the condition DisruptionTarget. `graces_s`: of
    deletions, without the kubelet's own 0 once the containers have ended.
    """

    pods: int
    at_once: int
    restarts: dict[str, int]
    ends: set[tuple[int, str]]
    waiting: set[str]
    disruptions: set[str]
    graces_s: set[int]


def pod_history(recorder: Recorder, namespace: str, app: str) -> PodHistory:
    """Sum up what the recorder has of a workload."""
    changes = list(recorder.of(namespace, app))
    seen = [change.pod for change in changes]
    statuses = [status for pod in seen for status in pod["status"].get("containerStatuses", ())]
    restarts: dict[str, int] = {}
    for status in statuses:
        restarts[status["name"]] = max(restarts.get(status["name"], 0), status["restartCount"])
    return PodHistory(
        pods=len({pod["metadata"]["uid"] for pod in seen}),
        at_once=_at_once(changes),
        restarts=restarts,
        ends={
            (ended["exitCode"], ended["reason"])
            for status in statuses
            for state in (status["state"], status.get("lastState", {}))
            if (ended := state.get("terminated"))
        },
        waiting={status["state"]["waiting"]["reason"] for status in statuses if "waiting" in status["state"]},
        disruptions={
            condition["reason"]
            for pod in seen
            for condition in pod["status"].get("conditions", ())
            if condition["type"] == "DisruptionTarget"
        },
        graces_s={pod["metadata"].get("deletionGracePeriodSeconds", 0) for pod in seen} - {0},
    )


def _at_once(changes: list[Change]) -> int:
    most, running = 0, set()
    for change in changes:
        uid = change.pod["metadata"]["uid"]
        states = [status["state"] for status in change.pod["status"].get("containerStatuses", ())]
        if change.type != "DELETED" and any("running" in state for state in states):
            running.add(uid)
        else:
            running.discard(uid)
        most = max(most, len(running))
    return most
