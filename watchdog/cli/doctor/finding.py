"""What a check of doctor finds, its remedy, and the diagnosis that all findings make up."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from watchdog.cli.doctor.facts import Facts
from watchdog.core.policy import Mode


class FindingState(StrEnum):
    """Fine, worth checking, or a blocker."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


class Purpose(StrEnum):
    """What something is needed for; enforcing also needs everything that observing needs."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One result of a check."""

    state: FindingState
    what: str
    remedy: str = ""


def ok(what: str) -> CheckResult:
    """Nothing to fix."""
    return CheckResult(FindingState.OK, what)


def warning(what: str, remedy: str) -> CheckResult:
    """Worth checking, but not blocking anything."""
    return CheckResult(FindingState.WARNING, what, remedy)


def missing(what: str, remedy: str) -> CheckResult:
    """Blocks what it is needed for."""
    return CheckResult(FindingState.MISSING, what, remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A result of a check."""

    # That of the check, which is stable; several findings share it if several things are wrong.
    name: str
    purposes: tuple[Purpose, ...]
    state: FindingState
    what: str
    remedy: str = ""


Judge = Callable[[Facts], Iterable[CheckResult]]


@dataclass(frozen=True, slots=True)
class Check:
    """A check, named after its function, whose docstring describes it in docs/doctor.md."""

    judge: Judge
    purposes: tuple[Purpose, ...]
    # Whether it is made; otherwise it is left out.
    given: Callable[[Facts], bool]

    @property
    def name(self) -> str:
        """The stable name."""
        return self.judge.__name__

    def findings(self, facts: Facts) -> Iterator[Finding]:
        """Run the check."""
        for result in self.judge(facts) if self.given(facts) else ():
            yield Finding(
                name=self.name, purposes=self.purposes, state=result.state, what=result.what, remedy=result.remedy
            )


def to_observe(given: Callable[[Facts], bool] = lambda _: True) -> Callable[[Judge], Check]:
    """Make a function a check of something that is needed for observing, and so for enforcing."""
    return lambda judge: Check(judge, (Purpose.OBSERVE, Purpose.ENFORCE), given)


def to_enforce(given: Callable[[Facts], bool] = lambda _: True) -> Callable[[Judge], Check]:
    """Make a function a check of something that is only needed for enforcing."""
    return lambda judge: Check(judge, (Purpose.ENFORCE,), given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All findings, and what their summary depends on."""

    findings: tuple[Finding, ...]
    # The policy's; None without a valid policy.
    mode: Mode | None
    # Whether a stop file was seen.
    is_stopped: bool = False

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
        return tuple(
            dict.fromkeys(
                finding.name
                for finding in self.findings
                if finding.state is FindingState.MISSING and purpose in finding.purposes
            )
        )
