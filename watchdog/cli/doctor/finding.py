"""What doctor finds: a state, what it is about, and the remedy; and what follows from all of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from watchdog.core.errors import Problem
from watchdog.core.policy import Mode


class FindingState(StrEnum):
    """How it stands: as it should be, worth a look, or in the way."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


class Purpose(StrEnum):
    """What for something is needed; who enforces needs all that observing takes."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


BOTH: Final = (Purpose.OBSERVE, Purpose.ENFORCE)
ENFORCING: Final = (Purpose.ENFORCE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at. `name` is stable; several findings share one where several things are at fault."""

    name: str
    case: str
    state: FindingState
    purposes: tuple[Purpose, ...]
    what: str
    remedy: str = ""

    def lacks(self, purpose: Purpose) -> bool:
        """Whether this stands in the way of observing, or of enforcing."""
        return self.state is FindingState.MISSING and purpose in self.purposes


@dataclass(frozen=True, slots=True)
class Case:
    """One way in which a thing can stand, as texts with `{names}` for what differs."""

    state: FindingState
    what: str
    remedy: str = ""


def ok(what: str) -> Case:
    """As it should be."""
    return Case(FindingState.OK, what)


def warning(what: str, remedy: str) -> Case:
    """Worth a look, and in nobody's way."""
    return Case(FindingState.WARNING, what, remedy)


def missing(what: str, remedy: str) -> Case:
    """In the way of what it is needed for."""
    return Case(FindingState.MISSING, what, remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A thing that is looked at: its stable name, what it is needed for, and every way in which it can stand."""

    name: str
    means: str
    purposes: tuple[Purpose, ...] = BOTH
    cases: Mapping[str, Case]

    def say(self, case: str, **values: object) -> Finding:
        """Make the finding of one of the cases."""
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
    """All findings, and what the policy asks for: None where there is no policy that can be followed."""

    findings: tuple[Finding, ...]
    mode: Mode | None

    @property
    def observe(self) -> bool:
        """Whether nothing is missing for observing."""
        return not self.lacking(Purpose.OBSERVE)

    @property
    def enforce(self) -> bool:
        """Whether nothing is missing for enforcing; whatever observing needs, enforcing needs too."""
        return not self.lacking(Purpose.ENFORCE)

    @property
    def suffices(self) -> bool:
        """Whether the node can do what its policy asks."""
        return self.observe if self.mode == "observe" else self.enforce

    def lacking(self, purpose: Purpose) -> tuple[str, ...]:
        """The names of what is missing for a purpose, each once."""
        return tuple(dict.fromkeys(finding.name for finding in self.findings if finding.lacks(purpose)))


def remedied(problem: Problem | None, otherwise: str) -> dict[str, str]:
    """The values of a finding's `{problem}` and `{remedy}`; `otherwise` where the problem has no remedy of its own."""
    problem = problem or Problem("")
    return {"problem": problem.cause, "remedy": problem.remedy or otherwise}
