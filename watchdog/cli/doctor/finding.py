"""What doctor finds: a state, what it is about, and the remedy; and the diagnosis that all findings make up."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from watchdog.core.errors import Problem
from watchdog.core.policy import Mode


class FindingState(StrEnum):
    """As it should be, worth checking, or a blocker."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


class Purpose(StrEnum):
    """What something is needed for; enforcing also needs everything that observing needs."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


BOTH: Final = (Purpose.OBSERVE, Purpose.ENFORCE)
ENFORCING: Final = (Purpose.ENFORCE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check. `name` is stable; several findings share it if several things are wrong."""

    name: str
    case: str
    state: FindingState
    purposes: tuple[Purpose, ...]
    what: str
    remedy: str = ""

    def blocks(self, purpose: Purpose) -> bool:
        """Whether this blocks observing or enforcing."""
        return self.state is FindingState.MISSING and purpose in self.purposes


@dataclass(frozen=True, slots=True)
class Case:
    """One possible result of a check, as texts with `{names}` for what varies."""

    state: FindingState
    what: str
    remedy: str = ""


def ok(what: str) -> Case:
    """As it should be."""
    return Case(FindingState.OK, what)


def warning(what: str, remedy: str) -> Case:
    """Worth checking, but not blocking anything."""
    return Case(FindingState.WARNING, what, remedy)


def missing(what: str, remedy: str) -> Case:
    """Blocks what it is needed for."""
    return Case(FindingState.MISSING, what, remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A check: its stable name, what it is needed for, and every possible result."""

    name: str
    means: str
    purposes: tuple[Purpose, ...] = BOTH
    cases: Mapping[str, Case]

    def finding(self, case: str, **values: object) -> Finding:
        """The finding for one of the cases."""
        chosen = self.cases[case]
        return Finding(
            name=self.name,
            case=case,
            state=chosen.state,
            purposes=self.purposes,
            what=chosen.what.format(**values),
            remedy=chosen.remedy.format(**values),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All findings, and the policy's mode; None without a valid policy."""

    findings: tuple[Finding, ...]
    mode: Mode | None

    @property
    def observe(self) -> bool:
        """Whether nothing is missing for observing."""
        return not self.lacking(Purpose.OBSERVE)

    @property
    def enforce(self) -> bool:
        """Whether nothing is missing for enforcing, which also needs everything that observing needs."""
        return not self.lacking(Purpose.ENFORCE)

    @property
    def suffices(self) -> bool:
        """Whether the node can do what its policy asks for."""
        return self.observe if self.mode == "observe" else self.enforce

    def lacking(self, purpose: Purpose) -> tuple[str, ...]:
        """The names of what is missing for a purpose, each once."""
        return tuple(dict.fromkeys(finding.name for finding in self.findings if finding.blocks(purpose)))


def remedied(problem: Problem | None, otherwise: str) -> dict[str, str]:
    """The values of `{problem}` and `{remedy}`; `otherwise` is the remedy if the problem has none of its own."""
    problem = problem or Problem("")
    return {"problem": problem.cause, "remedy": problem.remedy or otherwise}
