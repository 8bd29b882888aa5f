"""The judge: assesses one scene after the other under one policy, working out anew only what has changed."""

from dataclasses import dataclass, replace

from watchdog.core.assess import Darkness, Setting, Terms, assess_pod, short_for
from watchdog.core.assessment import Assessment
from watchdog.core.model import Gpu, Now, Pod, Snapshot
from watchdog.core.policy import Policy
from watchdog.core.rules import hours_at
from watchdog.past.scene import Scene


@dataclass(frozen=True, slots=True)
class _Ground:
    """What the assessment of every pod depends on."""

    cards: object
    dark: object
    labels: object
    hours: tuple[bool, ...]
    short: frozenset[str]


class Judge:
    """Gives what `attribute` and `assess` gave, or would have given, of the node as it was."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._ground: _Ground | None = None
        self._gpus: tuple[Gpu, ...] = ()
        self._cards: object = ()
        self._terms: dict[str, tuple[Pod, Terms]] = {}
        self._found: dict[str, tuple[Assessment, ...]] = {}

    def forget(self, changed: frozenset[str] | None) -> None:
        """These pods are not as they were; None: all."""
        if changed is None:
            self._ground = None
            return
        for uid in changed:
            self._found.pop(uid, None)

    def assess(self, scene: Scene, at: Now) -> tuple[Assessment, ...]:
        """Every account of the scene at a moment; the very same objects where nothing about a pod has changed."""
        self.renew(scene, at)
        return tuple(each for uid in scene.pods for each in self._found[uid])

    def renew(self, scene: Scene, at: Now) -> frozenset[str]:
        """Work out what has changed; the UIDs of the pods that were assessed anew."""
        snapshot = scene.snapshot(at)
        ground = self._ground_of(scene, snapshot)
        if ground != self._ground:
            self._ground = ground
            self._terms.clear()
            self._found.clear()
        setting = Setting(policy=self._policy, node=scene.node, namespaces=scene.namespaces)
        dark = Darkness.of(snapshot, setting.node)
        missing = [pod for uid, pod in scene.pods.items() if uid not in self._found or pod.deletion_deadline_s]
        for pod in missing:
            known, terms = self._terms.get(pod.uid, (None, None))
            if terms is None or known is not pod:
                terms = Terms.of(pod, dark.cards, setting, scene.dark.mps)
                self._terms[pod.uid] = (pod, terms)
            self._found[pod.uid] = assess_pod(pod, scene.uses_of(pod.uid), terms, snapshot, dark, setting)
        return frozenset(pod.uid for pod in missing)

    def of(self, uid: str) -> tuple[Assessment, ...]:
        """The accounts of one pod."""
        return self._found.get(uid, ())

    def _ground_of(self, scene: Scene, snapshot: Snapshot) -> _Ground:
        if scene.gpus is not self._gpus:
            self._gpus = scene.gpus
            self._cards = tuple(replace(gpu, used=None) for gpu in scene.gpus)
        return _Ground(
            cards=self._cards,
            dark=scene.dark,
            labels=(scene.node, scene.namespaces),
            hours=hours_at(self._policy, snapshot.at),
            short=short_for(self._policy, scene.gpus),
        )
