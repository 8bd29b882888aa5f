"""Generated histories of a small node: memory rising and falling, pods coming and going, darkness, gaps, old lists."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st

from tests.past.life import State
from tests.worlds import VERIFF, Gi, Mi, container, gpu, owner, pod, policy, rule, step
from watchdog.core.model import Gpu, Pod
from watchdog.core.policy import Allowance, Backoff, Brakes, Breaker, Declaration, Match, Policy, Pressure, Window

# A history takes a second or more to live through and to replay: of these `make deep` tries fewer.
FEWER: Final = settings(max_examples=max(20, settings().max_examples // 3))
PER_GPU = Declaration(resource="nvidia.com/gpumem", unit=Mi, per="gpu")
NOTE = Declaration(annotation="vram", unit=1)
_CARDS = (gpu(0, 40 * Gi), gpu(1, 40 * Gi))
_STEPS = (
    (step("90%", 5, "warn"), step("100%", 8, "kill"), step("150%", 0, "kill")),
    (step("100%", 3, "warn"), step("+1Gi".replace("1Gi", str(Gi)), 20, "kill", "process")),
    (step("110%", 15, "evict"), step("120%", 30, "kill", "pod")),
    (step(str(12 * Gi), 6, "kill"),),
    (step("100%", 4, "kill", under_pressure=True), step("200%", 2, "kill")),
)
_BRAKES = (
    Brakes(),
    Brakes(owner=Window(count=1, per_s=30.0), owner_backoff=Backoff(first_s=10.0, factor=2.0, max_s=40.0)),
    Brakes(node=Window(count=2, per_s=60.0), breaker=Breaker(offenders=Fraction(1, 2), of_at_least=2, hold_s=20.0)),
)


@dataclass(frozen=True, kw_only=True)
class History:
    """The cycles of a node (seconds, state), in the lives of one daemon after the other."""

    lives: tuple[tuple[tuple[float, State], ...], ...]
    seed: int

    @property
    def cycles(self) -> list[tuple[float, State]]:
        return [each for life in self.lives for each in life]


@st.composite
def histories(draw: st.DrawFn, *, granule: int, lives: int = 1) -> History:
    """Histories whose amounts are multiples of a granule; a restart lies between two lives."""
    seed = draw(st.integers(0, 2**32))
    return history(random.Random(seed), draw(st.integers(5, 60)), granule, lives, seed)


def history(dice: random.Random, changes: int, granule: int, lives: int = 1, seed: int = 0) -> History:
    second, made = 0.0, []
    state = State(pods=tuple(_pod(dice, number) for number in range(dice.randint(1, 4))), gpus=_CARDS)
    for _ in range(lives):
        cycles = []
        for _ in range(changes // lives + 1):
            state = _changed(dice, state, granule, second)
            for _ in range(dice.choice([1, 1, 2, 5, 9, 12, 25])):
                second += dice.choice([1.0] * 20 + [2.0, 3.0, 12.0])
                cycles.append((second, state))
        made.append(tuple(cycles))
        second += dice.choice([1.0, 4.0, 30.0])
    return History(lives=tuple(made), seed=seed)


def policies() -> st.SearchStrategy[Policy]:
    """Policies of every kind of step, account, declaration and brake."""
    return st.integers(0, 2**32).map(lambda seed: under(random.Random(seed)))


def under(dice: random.Random) -> Policy:
    default = dice.choice([None, None, 2 * Gi])
    rules = [
        rule(*dice.choice(_STEPS), name=f"rule-{number}", account=dice.choice(["pod", "container"]), default=default)
        for number in range(2)
    ]
    return policy(
        replace(rules[0], match=Match(namespaces=("ns-0",))),
        rules[1],
        declarations=tuple(dice.sample([VERIFF, PER_GPU, NOTE], 3)),
        allowance=dice.choice([Allowance(), policy().allowance]),
        brakes=dice.choice(_BRAKES),
        stale_after_s=dice.choice([15.0, 180.0]),
        pressure=Pressure(free_below=Fraction(30, 100)),
    )


def _pod(dice: random.Random, number: int) -> Pod:
    uid = f"uid-{number}"
    containers = []
    for name in ["main", "side"][: dice.randint(1, 2)]:
        declared, resources = dice.choice(["2Gi", "8Gi", None]), dice.choice([{}, {"nvidia.com/gpumem": "4096"}])
        containers.append(container(name, declared, of=uid, resources=resources))
    return pod(
        uid,
        *containers,
        namespace=f"ns-{number % 2}",
        owner=owner(name=f"web-{number % 2}"),
        priority=dice.choice([0, 10]),
        annotations={"vram": "4Gi"} if dice.random() < 0.1 else {},
    )


def _changed(dice: random.Random, state: State, granule: int, second: float) -> State:
    """The state after something has happened."""
    kind = dice.random()
    if kind < 0.1:
        return replace(state, dark=_darkness(dice), gpus=_lost(dice))
    if kind < 0.15:
        return replace(state, synced_s=second - dice.choice([0.0, 12.0, 20.0]) if state.synced_s is None else None)
    if kind < 0.25:
        number = dice.randrange(5)
        pods = [each for each in state.pods if each.uid != f"uid-{number}"]
        pods += [_pod(dice, number)] if len(pods) == len(state.pods) or dice.random() < 0.7 else []
        used = {where: amount for where, amount in state.used.items() if _lives(where[0], pods)}
        return replace(state, pods=tuple(pods), used=used)
    return replace(state, used=_moved(dice, state, granule))


def _moved(dice: random.Random, state: State, granule: int) -> Mapping[tuple[str, int], int | None]:
    used = dict(state.used)
    for _ in range(dice.choice([1, 1, 2])):
        places = [f"{each.uid}/{own.name}" for each in state.pods for own in each.containers]
        places += [f"{each.uid}/unknown" for each in state.pods if dice.random() < 0.1]
        if not places:
            break
        where = (dice.choice(places), dice.randrange(2))
        amount = dice.choice([0, 1, 2, 4, 7, 8, 9, 10, 12, 14, 20]) * Gi + dice.randint(-3, 3) * granule
        used[where] = None if dice.random() < 0.07 else max(amount, 0)
        if dice.random() < 0.15:
            del used[where]
    return used


def _lives(where: str, pods: list[Pod]) -> bool:
    return any(each.uid == where.partition("/")[0] for each in pods)


def _darkness(dice: random.Random) -> Mapping[str, object]:
    return dice.choice([{}, {}, {"blind": True}, {"unseen": frozenset({"GPU-0"})}])


def _lost(dice: random.Random) -> tuple[Gpu, ...]:
    full = tuple(replace(card, used=dice.choice([0, 20, 35]) * Gi) for card in _CARDS)
    return full if dice.random() < 0.7 else (replace(full[0], listed=False, up=dice.random() < 0.5), full[1])
