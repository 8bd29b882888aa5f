"""Attribution and assessment from cycle to cycle: what has not changed is not computed again.

This only saves time: `attribute` and `assess` give the same results for each cycle by itself.
"""

from dataclasses import dataclass, replace

from watchdog.core.assess import Coverage, PodTerms, Uses, assess_each, assess_pod, short_for
from watchdog.core.assessment import Assessment, Attribution
from watchdog.core.attribute import PodIndex, attribute_by
from watchdog.core.inputs import Inputs
from watchdog.core.model import Now, Pod, Snapshot
from watchdog.core.mps import Mps
from watchdog.core.policy import Policy
from watchdog.core.rules import hours_at

Findings = tuple[Attribution, tuple[Assessment, ...]]


@dataclass(frozen=True, slots=True)
class _Last:
    """The inputs of the last assessment and its result, which is reused for equal inputs and the identical policy.

    (The rule of an assessment is an object of the policy, distinguished from that of a reload by identity.)
    """

    policy: Policy
    inputs_key: object
    findings: Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedPod:
    """A pod with its terms, and its last assessments with their inputs."""

    pod: Pod
    terms: PodTerms
    inputs_key: object = None
    assessments: tuple[Assessment, ...] = ()


class Assessor:
    """Attributes and assesses one cycle after the other."""

    def __init__(self) -> None:
        self._pods: tuple[Pod, ...] | None = None
        self._index = PodIndex.of(())
        self._terminating = False
        self._last: _Last | None = None
        self._common: tuple[Policy, object] | None = None
        self._cached: dict[str, _CachedPod] = {}

    def assess(self, snapshot: Snapshot, inputs: Inputs) -> Findings:
        """Attribute the uses of a snapshot to the pods, and assess the pods."""
        pods = inputs.pods.pods
        if pods is not self._pods:
            self._pods, self._index = pods, PodIndex.of(pods)
            self._terminating = any(pod.deletion_deadline_s is not None for pod in pods)
        cards = tuple((gpu.uuid, gpu.size, gpu.profile, gpu.listed, gpu.up) for gpu in snapshot.gpus)
        sources = (inputs.node, inputs.own, inputs.namespaces, inputs.overdue, hours_at(inputs.policy, snapshot.at))
        short = short_for(inputs.policy, snapshot.gpus)
        hidden = (snapshot.blind, snapshot.unseen, snapshot.missing, snapshot.parents)
        common = (cards, hidden, sources, short)
        inputs_key = (common, snapshot.uses, snapshot.processes, pods, snapshot.at if self._terminating else None)
        last = self._last
        if last is not None and last.policy is inputs.policy and last.inputs_key == inputs_key:
            return last.findings
        attribution = attribute_by(self._index, snapshot)
        coverage = Coverage.of(snapshot, inputs.node)
        mps = Mps.of(snapshot, attribution)
        # The memory in use of the cards changes all the time and is not an input; what else matters is compared.
        self._set_common_inputs(inputs.policy, (common, coverage.everywhere, coverage.unlisted, mps))
        findings = attribution, self._assess(attribution, snapshot, coverage, mps, inputs)
        self._last = _Last(inputs.policy, inputs_key, findings)
        return findings

    def _set_common_inputs(self, policy: Policy, common: object) -> None:
        """Forget every pod if something that they all depend on has changed."""
        if self._common is None or self._common[0] is not policy or self._common[1] != common:
            self._cached.clear()
            self._common = policy, common

    def _assess(
        self, attribution: Attribution, snapshot: Snapshot, coverage: Coverage, mps: Mps, inputs: Inputs
    ) -> tuple[Assessment, ...]:
        before, self._cached = self._cached, {}

        def judge(pod: Pod, uses: Uses) -> tuple[Assessment, ...]:
            time: Now | None = None if pod.deletion_deadline_s is None else snapshot.at
            cached = before.get(pod.uid)
            if cached is None or cached.pod is not pod:
                cached = _CachedPod(pod=pod, terms=PodTerms.of(pod, coverage.cards, inputs, mps))
            if cached.inputs_key != (uses, time):
                assessments = assess_pod(pod, uses, cached.terms, snapshot, coverage, inputs)
                cached = replace(cached, inputs_key=(uses, time), assessments=assessments)
            self._cached[pod.uid] = cached
            return cached.assessments

        return assess_each(attribution, inputs.pods.pods, judge)
