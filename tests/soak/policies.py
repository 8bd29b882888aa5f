"""Generated policies: a plain description, which the oracle reads, and the compiled policy, which the daemon gets."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

from tests.soak.cluster import KEYS, LABEL
from watchdog.core.policy import (
    Allowance,
    Backoff,
    Brakes,
    Breaker,
    Declaration,
    Do,
    Match,
    Mode,
    Policy,
    Protect,
    Rule,
    Safety,
    Scope,
    Step,
    Threshold,
    Window,
)

NAMESPACES: Final = ("team-a", "team-b", "kube-system")
MarkKind = Literal["percent", "plus", "amount"]
StepName = tuple[MarkKind, int, float, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """A step: its mark is `number` percent of allowed, bytes above allowed, or bytes."""

    kind: MarkKind
    number: int
    for_s: float
    do: Literal["warn", "kill", "evict"]
    scope: Scope = "container"
    grace_s: float = 10.0

    @property
    def name(self) -> StepName:
        """What it is known by."""
        return (self.kind, self.number, self.for_s, self.do)

    def threshold_bytes(self, allowed: int) -> int:
        """Bytes above which it counts."""
        threshold_bytes = {
            "percent": allowed * self.number // 100,
            "plus": allowed + self.number,
            "amount": self.number,
        }
        return threshold_bytes[self.kind] if self.do == "warn" else max(threshold_bytes[self.kind], allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePlan:
    """A rule for the pods of a namespace and tier; None: of any."""

    name: str
    namespace: str | None
    tier: str | None
    account: Literal["pod", "container"]
    default: int | None
    mode: Mode | None
    steps: tuple[StepPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrakePlan:
    """Brakes: windows as (count, seconds), back-off as (first, factor, max), breaker as (percent, at least, hold)."""

    node: tuple[int, float] | None = None
    namespace: tuple[int, float] | None = None
    owner: tuple[int, float] | None = None
    backoff: tuple[float, int, float] | None = None
    breaker: tuple[int, int, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPlan:
    """A whole policy. `percent` and `per_context` are the allowance."""

    number: int
    mode: Mode
    interval_s: float
    stale_after_s: float
    release_timeout_s: float
    percent: int
    per_context: int
    max_contexts: int
    rules: tuple[RulePlan, ...]
    spared_namespace: str | None
    priority_at_least: int
    annotation: str
    brakes: BrakePlan
    signal_mps_clients: bool = False

    def compiled(self) -> Policy:
        """The policy as the daemon gets it."""
        protect = Protect(
            namespaces=() if self.spared_namespace is None else (self.spared_namespace,),
            priority_at_least=self.priority_at_least,
            annotation=self.annotation,
        )
        return Policy(
            sha256=f"{self.number:064}",
            source="policy.toml",
            mode=self.mode,
            interval_s=self.interval_s,
            stale_after_s=self.stale_after_s,
            release_timeout_s=self.release_timeout_s,
            declarations=_DECLARATIONS,
            allowance=Allowance(
                per_context=self.per_context, max_contexts=self.max_contexts, percent=Fraction(self.percent, 100)
            ),
            rules=tuple(_rule(rule) for rule in self.rules),
            protect=protect,
            brakes=_brakes(self.brakes),
            safety=Safety(signal_mps_clients=self.signal_mps_clients),
        )


_DECLARATIONS: Final = (
    Declaration(resource=KEYS["bytes"][0], unit=KEYS["bytes"][1]),
    Declaration(resource=KEYS["mib"][0], unit=KEYS["mib"][1]),
    Declaration(resource=KEYS["gpu_mib"][0], unit=KEYS["gpu_mib"][1], per="gpu"),
    Declaration(resource=KEYS["share"][0], unit="share", shares=f"label:{LABEL}"),
    Declaration(annotation=KEYS["note"][0], unit=KEYS["note"][1]),
)


def _rule(rule: RulePlan) -> Rule:
    match = Match(
        namespaces=() if rule.namespace is None else (rule.namespace,),
        labels={} if rule.tier is None else {"tier": rule.tier},
    )
    steps = tuple(_step(step) for step in rule.steps)
    return Rule(name=rule.name, match=match, account=rule.account, default=rule.default, mode=rule.mode, steps=steps)


def _step(step: StepPlan) -> Step:
    mark = {
        "percent": lambda: Threshold(share=Fraction(step.number, 100)),
        "plus": lambda: Threshold(plus=step.number),
        "amount": lambda: Threshold(amount=step.number),
    }[step.kind]()
    return Step(above=mark, for_s=step.for_s, do=Do(step.do), scope=step.scope, grace_s=step.grace_s, repeat_s=60.0)


def _brakes(plan: BrakePlan) -> Brakes:
    def window(pair: tuple[int, float] | None) -> Window | None:
        return None if pair is None else Window(count=pair[0], per_s=pair[1])

    backoff = plan.backoff and Backoff(first_s=plan.backoff[0], factor=float(plan.backoff[1]), max_s=plan.backoff[2])
    breaker = plan.breaker and Breaker(
        offenders=Fraction(plan.breaker[0], 100), of_at_least=plan.breaker[1], hold_s=plan.breaker[2]
    )
    return Brakes(
        node=window(plan.node),
        namespace=window(plan.namespace),
        owner=window(plan.owner),
        owner_backoff=backoff,
        breaker=breaker,
    )
