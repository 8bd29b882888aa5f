"""The steady state: a node changes little from one cycle to the next, and what has not changed is not worked out again.

Nothing depends on it but speed: `attribute` and `assess` give the same of every cycle alone.
"""

from dataclasses import dataclass, replace

from watchdog.core.assess import Darkness, PodTerms, Setting, Uses, assess_each, assess_pod, short_for
from watchdog.core.assessment import Assessment, Attribution
from watchdog.core.attribute import PodIndex, attribute_by
from watchdog.core.model import Now, Pod, Snapshot
from watchdog.core.mps import Mps
from watchdog.core.policy import Policy
from watchdog.core.rules import hours_at

Findings = tuple[Attribution, tuple[Assessment, ...]]


@dataclass(frozen=True, slots=True)
class _Last:
    """What was asked and what came of it. An equal question has an equal answer; the policy is compared as an object.

    (The rule of an assessment is one of the policy's own, and is told apart from that of a reload by identity.)
    """

    policy: Policy
    question: object
    findings: Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A pod with its terms, and how it stood when it was last asked for."""

    pod: Pod
    terms: PodTerms
    question: object = None
    assessments: tuple[Assessment, ...] = ()


class Assessor:
    """Attributes and assesses one cycle after the other."""

    def __init__(self) -> None:
        self._pods: tuple[Pod, ...] | None = None
        self._index = PodIndex.of(())
        self._terminating = False
        self._last: _Last | None = None
        self._ground: tuple[Policy, object] | None = None
        self._kept: dict[str, _Kept] = {}

    def assess(self, snapshot: Snapshot, pods: tuple[Pod, ...], setting: Setting) -> Findings:
        """Attribute the uses of a snapshot to the pods, and assess the pods."""
        if pods is not self._pods:
            self._pods, self._index = pods, PodIndex.of(pods)
            self._terminating = any(pod.deletion_deadline_s is not None for pod in pods)
        cards = tuple((gpu.uuid, gpu.size, gpu.profile, gpu.listed, gpu.up) for gpu in snapshot.gpus)
        given = (setting.node, setting.own, setting.namespaces, setting.overdue, hours_at(setting.policy, snapshot.at))
        short = short_for(setting.policy, snapshot.gpus)
        hidden = (snapshot.blind, snapshot.unseen, snapshot.missing, snapshot.parents)
        ground = (cards, hidden, given, short)
        question = (ground, snapshot.uses, snapshot.processes, pods, snapshot.at if self._terminating else None)
        last = self._last
        if last is not None and last.policy is setting.policy and last.question == question:
            return last.findings
        attribution = attribute_by(self._index, snapshot)
        dark = Darkness.of(snapshot, setting.node)
        mps = Mps.of(snapshot, attribution)
        # The cards themselves, whose use moves all the time, have a part in nothing; what has, is in the ground.
        self._stand_on(setting.policy, (ground, dark.everywhere, dark.unlisted, mps))
        findings = attribution, self._assess(attribution, snapshot, dark, mps, pods, setting)
        self._last = _Last(setting.policy, question, findings)
        return findings

    def _stand_on(self, policy: Policy, ground: object) -> None:
        """Forget every pod where something has changed that they all depend on."""
        if self._ground is None or self._ground[0] is not policy or self._ground[1] != ground:
            self._kept.clear()
            self._ground = policy, ground

    def _assess(
        self,
        attribution: Attribution,
        snapshot: Snapshot,
        dark: Darkness,
        mps: Mps,
        pods: tuple[Pod, ...],
        setting: Setting,
    ) -> tuple[Assessment, ...]:
        before, self._kept = self._kept, {}

        def judge(pod: Pod, uses: Uses) -> tuple[Assessment, ...]:
            time: Now | None = None if pod.deletion_deadline_s is None else snapshot.at
            kept = before.get(pod.uid)
            if kept is None or kept.pod is not pod:
                kept = _Kept(pod=pod, terms=PodTerms.of(pod, dark.cards, setting, mps))
            if kept.question != (uses, time):
                assessments = assess_pod(pod, uses, kept.terms, snapshot, dark, setting)
                kept = replace(kept, question=(uses, time), assessments=assessments)
            self._kept[pod.uid] = kept
            return kept.assessments

        return assess_each(attribution, pods, judge)
