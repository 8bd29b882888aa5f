"""The pod list, from a file or from the API."""

from collections.abc import Iterable

import watchdog.doctor.topics_cluster as topic
from watchdog.core.assessment import Reason
from watchdog.core.model import Gap, PodList
from watchdog.core.units import format_duration
from watchdog.doctor.facts import ClusterFacts, ProcessFacts
from watchdog.doctor.finding import Finding
from watchdog.doctor.remedied import remedied
from watchdog.export.phrases import span


def check_pods(facts: ClusterFacts, processes: ProcessFacts, stale_after_s: float) -> Iterable[Finding]:
    """The pod list: named, readable, fresh, of this node, with the IDs of containers."""
    if facts.pods_path is None:
        yield from _by_api(facts, processes)
        return
    path, pods = facts.pods_path, facts.pods
    about_file = [gap for gap in pods.gaps if gap.what.startswith("pod file")]
    if pods.synced is None:
        yield topic.PODS.say("unreadable", path=path, **_remedied(about_file))
        return
    yield topic.PODS.say("read" if pods.pods else "empty", path=path, count=len(pods.pods))
    yield from _age(facts.age_s, stale_after_s)
    yield from _readable([gap for gap in pods.gaps if gap not in about_file], pods)
    if not pods.pods:
        return
    for gap in about_file:
        said, _, remedy = gap.why.rpartition("; ")
        yield topic.PODS_NODE.say("elsewhere", path=path, said=said, remedy=remedy)
    if not about_file:
        yield topic.PODS_NODE.say("here", node=facts.node_name)
    yield from _contents(pods, processes)


def _by_api(facts: ClusterFacts, processes: ProcessFacts) -> Iterable[Finding]:
    pods = facts.pods
    if not facts.by_api:
        yield topic.PODS.say("none_named")
    elif pods.synced is None:
        if "pods" not in facts.unlisted:
            yield topic.PODS.say("api_unread", **_remedied(pods.gaps))
    else:
        yield topic.PODS.say("api" if pods.pods else "api_empty", node=facts.node_name, count=len(pods.pods))
        yield from _readable(pods.gaps, pods)
        if pods.pods:
            yield from _contents(pods, processes, none="none_started")


def _remedied(gaps: Iterable[Gap]) -> dict[str, str]:
    return remedied(next((gap.why for gap in gaps), "it can't be read"), "write it anew")


def _age(age_s: float | None, stale_after_s: float) -> Iterable[Finding]:
    if age_s is None:
        return
    if age_s < -1:
        yield topic.PODS_FRESH.say("future")
        return
    case = "fresh" if age_s <= stale_after_s else "old"
    yield topic.PODS_FRESH.say(case, age=span(max(age_s, 0)), limit=format_duration(stale_after_s))


def _readable(others: Iterable[Gap], pods: PodList) -> Iterable[Finding]:
    """Pods that could not be decoded; gaps of the list itself are told elsewhere."""
    others = list(others)
    for gap in others:
        yield topic.PODS_READABLE.say("some", what=gap.what, why=gap.why)
    if pods.pods and not others:
        yield topic.PODS_READABLE.say("all")


def _contents(pods: PodList, processes: ProcessFacts, none: str = "none") -> Iterable[Finding]:
    """What the list tells of containers; `none` is the case where that is nothing."""
    known = sum(bool(container.ids) for pod in pods.pods for container in pod.containers)
    yield topic.PODS_CONTAINERS.say("known" if known else none, count=known)
    yield from _unknown(processes)


def _unknown(processes: ProcessFacts) -> Iterable[Finding]:
    if processes.attribution is None or not processes.listed:
        return
    unknown = {each.pid for each in processes.attribution.unattributed if each.reason is Reason.UNKNOWN_POD}
    if unknown:
        yield topic.PODS_KNOWN.say("some", count=len(unknown), pid=min(unknown))
    else:
        yield topic.PODS_KNOWN.say("all")
