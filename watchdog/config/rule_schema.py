"""The tables of the policy file about rules: which pods, compared with what, and the ladder of steps."""

from typing import Annotated, Final, Literal

from pydantic import Field

from watchdog.config import amounts, fields, hours, names
from watchdog.config.declaration_schema import Labels, Table
from watchdog.core.policy import Do, Hours, Mark, Mode, Scope, Step

_STEP: Final = Step(above=Mark(amount=0), for_s=0.0, do=Do.WARN)  # the defaults stand in one place

NamespaceName = Annotated[str, names.pattern("the name of a namespace", "jupyter-*")]
PodName = Annotated[str, names.pattern("NAME or NAMESPACE/NAME of a pod", "monitoring/dcgm-exporter-*", slash=True)]
KindName = Annotated[str, names.pattern("the kind of an owner", "StatefulSet", characters="A-Za-z0-9")]


class MatchTable(Table):
    """Which pods a rule is for: all that is set must match; `{}` matches every pod."""

    namespaces: list[NamespaceName] = Field([], description="One of these names is the pod's namespace.")
    pods: list[PodName] = Field([], description="One of these is the pod's name; without a slash in any namespace.")
    labels: Labels = Field({}, description="The pod carries all of these labels.")
    owner_kinds: list[KindName] = Field(
        [],
        description="One of these is the kind of the pod's controller: `Job`, or `Deployment` behind a ReplicaSet; "
        "without a controller `Pod`.",
    )
    namespace_labels: Labels = Field({}, description="The pod's namespace carries all of these labels.")
    node_labels: Labels = Field({}, description="The node carries all of these labels.")


class StepTable(Table):
    """`[[rule.step]]`: one step of a ladder, from the lowest mark to the highest."""

    above: Annotated[Mark, amounts.mark()] = Field(
        description="The mark above which the step counts. For kill and evict never below allowed."
    )
    for_s: Annotated[float, amounts.duration("0s", "30d")] = Field(
        alias="for", description="How long the use must stay above the mark, without interruption."
    )
    do: Annotated[Literal["warn", "kill", "evict"], fields.choice("warn", "kill", "evict")] = Field(
        description="Warn: an Event and a record. Kill: signals, as for too much RAM. Evict: by the Eviction API."
    )
    scope: Annotated[Scope, fields.choice("process", "container", "pod")] = Field(
        _STEP.scope, description="What a kill ends; only for kill."
    )
    grace: Annotated[float, amounts.duration("0s", "1d")] = Field(
        _STEP.grace_s,
        description="From SIGTERM to SIGKILL; `0s` is SIGKILL at once. Only for kill and evict; for evict at least 1s.",
    )
    repeat: Annotated[float, amounts.duration("1s", "30d")] = Field(
        _STEP.repeat_s, description="How often a warning is given again while the incident lasts; only for warn."
    )
    under_pressure: Annotated[bool, fields.flag()] = Field(
        _STEP.under_pressure, description="The step counts only while the card is short of memory."
    )
    unwarned: Annotated[bool, fields.flag()] = Field(
        _STEP.unwarned,
        description="The step may come before any warning, and `check` says nothing of it. Only for kill and evict.",
    )


class RuleTable(Table):
    """`[[rule]]`: what holds for the pods that it matches. The first rule that matches a pod is its rule."""

    name: Annotated[str, fields.line(63, may_be_empty=False)] = Field(
        description="Unique; metrics, Events and records name it."
    )
    match: MatchTable = Field(MatchTable(), description="Which pods the rule is for.")
    account: Annotated[Literal["pod", "container"], fields.choice("pod", "container")] = Field(
        "pod", description="What is compared: a pod's containers together, or each with its own declaration."
    )
    default: Annotated[int | None, amounts.quantity()] = Field(
        None, description='For an account that declares nothing. `"0"` forbids it to use any; unset leaves it alone.'
    )
    mode: Annotated[Mode | None, fields.choice("observe", "enforce")] = Field(
        None, description="`observe`: this rule only observes. It can't enforce where the policy observes."
    )
    active: Annotated[Hours | None, hours.hours()] = Field(
        None, description="Outside of it this rule only observes, by the clock of that time zone."
    )
    step: list[StepTable] = Field([], description="The ladder.")
