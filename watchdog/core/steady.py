"""Assessment from cycle to cycle: a pod of which nothing has changed is not assessed again.

This only saves time: `attribute` and `assess` give the same results for each cycle by itself. Quiet ticks save nothing
while a single process allocates: then, with 1,000 processes in 250 pods, this takes a tenth of the time.
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
        self._common: tuple[Policy, object] | None = None
        self._cached: dict[str, _CachedPod] = {}

    def assess(self, snapshot: Snapshot, inputs: Inputs) -> tuple[Attribution, tuple[Assessment, ...]]:
        """Attribute the uses of a snapshot to the pods, and assess the pods."""
        pods = inputs.pods.pods
        if pods is not self._pods:
            self._pods, self._index = pods, PodIndex.of(pods)
        attribution = attribute_by(self._index, snapshot)
        coverage = Coverage.of(snapshot, inputs.node)
        mps = Mps.of(snapshot, attribution)
        # The memory in use of the cards changes all the time and is not an input; what else matters is compared.
        cards = tuple((gpu.uuid, gpu.size, gpu.profile, gpu.listed, gpu.up) for gpu in snapshot.gpus)
        sources = (inputs.node, inputs.own, inputs.namespaces, inputs.overdue, hours_at(inputs.policy, snapshot.at))
        hidden = (snapshot.blind, snapshot.unseen, snapshot.missing, snapshot.parents)
        short = short_for(inputs.policy, snapshot.gpus)
        common = (cards, hidden, sources, short, coverage.everywhere, coverage.unlisted, mps)
        self._set_common_inputs(inputs.policy, common)
        return attribution, self._assess(attribution, snapshot, coverage, mps, inputs)

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
