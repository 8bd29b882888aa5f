"""The tables of the policy file about declarations: where GPU memory is declared, and what comes on top of it."""

from fractions import Fraction
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from watchdog.config import amounts, fields, names
from watchdog.core.policy import Allowance, Special

_ALLOWANCE: Final = Allowance()  # the defaults stand in one place
_CONTEXTS: Final = fields.whole(0, 100_000)

Labels = dict[Annotated[str, names.key("the key of a label")], Annotated[str, names.label_value()]]


class Table(BaseModel):
    """A table of the file: every key is known and of its exact type, or the file is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class UnlessTable(Table):
    """A resource that, from a number on, makes the declaration not apply."""

    resource: Annotated[str, names.resource()] = Field(description="The resource that the same container asks for.")
    at_least: Annotated[int, fields.whole(1, 10**15)] = Field(
        description="From this number on the declaration does not apply."
    )


class OwnAllowanceTable(Table):
    """An allowance of its own; a key that is left out is taken from `[allowance]`."""

    per_context: Annotated[int | None, amounts.quantity()] = Field(
        None, description="In place of `[allowance]` `per_context`."
    )
    max_contexts: Annotated[int | None, _CONTEXTS] = Field(None, description="In place of `max_contexts`.")
    percent: Annotated[Fraction | None, amounts.percent()] = Field(None, description="In place of `percent`.")


class AllowanceTable(Table):
    """`[allowance]`: what the driver takes, on top of what was declared."""

    per_context: Annotated[int, amounts.quantity()] = Field(
        _ALLOWANCE.per_context, description="For each CUDA context: each process on each GPU that it uses."
    )
    max_contexts: Annotated[int, _CONTEXTS] = Field(
        _ALLOWANCE.max_contexts, description="At most so many contexts of an account count."
    )
    percent: Annotated[Fraction, amounts.percent()] = Field(
        _ALLOWANCE.percent, description="Of the declared amount, on top of it."
    )


class DeclarationTable(Table):
    """`[[declaration]]`: one place where GPU memory is declared."""

    resource: Annotated[
        str | None,
        names.resource(wild=True),
    ] = Field(None, description="A resource of the container. Exactly one of `resource`, `annotation`, `label`.")
    annotation: Annotated[str | None, names.key("the key of an annotation", wild=True, container=True)] = Field(
        None, description="An annotation of the pod. Tenants write it, and no scheduler accounts for it."
    )
    label: Annotated[str | None, names.key("the key of a label", wild=True, container=True)] = Field(
        None, description="A label of the pod. Tenants write it, and no scheduler accounts for it."
    )
    unit: Annotated[int | Special, amounts.unit()] = Field(
        description='What the number 1 stands for: "1" for bytes, "1Mi", "256Mi", or a unit that depends on the cards.'
    )
    per: Annotated[Literal["total", "gpu"], fields.choice("total", "gpu")] = Field(
        "total", description='Whether the amount is for all GPUs of the container together, or for each ("gpu").'
    )
    shares: Annotated[str | int | None, amounts.shares()] = Field(
        None, description='Into how many shares a card is cut; required with `unit = "share"`, and only there.'
    )
    node_labels: Labels = Field({}, description="The declaration applies only on nodes that carry these labels.")
    unless: UnlessTable | None = Field(None, description="A resource that makes the declaration not apply.")
    limit_annotation: Annotated[str, names.key("the key of an annotation", container=True, optional=True)] = Field(
        "", description="An annotation in which a tenant may name a limit above the request, in the same unit."
    )
    allowance: OwnAllowanceTable | None = Field(None, description="Its own allowance, in place of `[allowance]`.")
