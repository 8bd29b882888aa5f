"""Checks of the policy file, each with what it says."""

from collections.abc import Iterable
from typing import Final

from watchdog.cli.doctor.facts import ListenFacts, PolicyFacts
from watchdog.cli.doctor.finding import Finding, Topic, missing, ok, warning
from watchdog.core.policy import Policy
from watchdog.node.driver import DriverReading

POLICY: Final = Topic(
    name="policy",
    means="There is a policy, and no mistake in it. Without one `run` does not start.",
    cases={
        "valid": ok("{path} is a valid policy"),
        "mistake": missing("mistake: {problem}", "mend the file; `gpu-watchdog check {path}` lists every mistake"),
        "more": missing("more mistakes in {path}: {count}", "`gpu-watchdog check {path}` lists every mistake"),
        "absent": missing(
            "there is no policy {path}", "name one with --policy; config/policy.toml of the project is a beginning"
        ),
    },
)
MODE: Final = Topic(
    name="mode",
    means="What the policy asks for. To observe is fine: it measures, decides and records, and acts on nobody.",
    cases={
        "observe": ok("the policy observes: nobody is acted on"),
        "enforce": ok("the policy enforces"),
    },
)
WARNINGS: Final = Topic(
    name="policy_warnings",
    means="Nothing in the policy looks unintended.",
    cases={
        "none": ok("the policy gives no warning"),
        "warning": warning("odd: {warning}", "change the policy if it is not meant"),
    },
)
RUNNING: Final = Topic(
    name="policy_running",
    means="The daemon that answers on `--listen` goes by this very policy.",
    cases={
        "same": ok("the daemon on {listen} goes by this policy"),
        "kept": warning(
            "a daemon runs here ({listen}) and goes on with the last good policy, not with {path}",
            "mend {path}: the daemon reads it again when it changes",
        ),
        "another": warning(
            "the daemon on {listen} goes by another policy than {path}",
            "see that --policy names the file that the daemon reads; otherwise look for policy_refused in its log",
        ),
    },
)
MPS: Final = Topic(
    name="mps",
    means="Where pods share an MPS server, ending one client can break the work of the others.",
    cases={
        "none": ok("the driver lists no client of an MPS server"),
        "observed": ok("clients of MPS servers: {count}; the policy only observes"),
        "withheld": warning(
            "clients of MPS servers: {count}. The policy enforces, and kills and evictions are withheld that would end "
            "a client of a server outside its own pod",
            "docs/sharing.md says which these are; where all clients of a server belong to one owner, [safety] "
            "signal_mps_clients = true",
        ),
        "accepted": warning(
            "clients of MPS servers: {count}. The policy enforces, and signal_mps_clients lets it end clients although "
            "the other clients of their server can fail with them",
            "take signal_mps_clients away, unless all clients of a server belong to one owner",
        ),
    },
)
POLICY_TOPICS: Final = (POLICY, RUNNING, MODE, WARNINGS, MPS)


_MOST: Final = 5


def check_policy(facts: PolicyFacts) -> Iterable[Finding]:
    """The first mistakes of a policy that has some; otherwise what it asks for and what is odd about it."""
    if facts.policy is None:
        yield from _mistakes(facts)
        return
    policy = facts.policy
    yield POLICY.say("valid", path=facts.path)
    yield MODE.say(policy.mode)
    for text in policy.warnings:
        yield WARNINGS.say("warning", warning=text)
    if not policy.warnings:
        yield WARNINGS.say("none")


def check_mps(reading: DriverReading, policy: Policy) -> Iterable[Finding]:
    """Whether the policy meets clients of MPS servers; nothing where no process is listed."""
    clients = {use.pid for use in reading.uses if use.mps}
    if not reading.uses:
        return
    case = "accepted" if policy.safety.signal_mps_clients else "withheld"
    yield MPS.say("none" if not clients else case if policy.mode == "enforce" else "observed", count=len(clients))


def check_running(facts: PolicyFacts, listen: ListenFacts) -> Iterable[Finding]:
    """Whether the daemon that answers here goes by this very policy; nothing where none answers."""
    if not listen.policy_sha256:
        return
    is_same = facts.policy is not None and facts.policy.sha256 == listen.policy_sha256
    case = "same" if is_same else "kept" if facts.policy is None else "another"
    yield RUNNING.say(case, listen=listen.listen, path=facts.path)


def _mistakes(facts: PolicyFacts) -> Iterable[Finding]:
    if not facts.is_there:
        yield POLICY.say("absent", path=facts.path)
        return
    for problem in facts.problems[:_MOST]:
        yield POLICY.say("mistake", problem=problem, path=facts.path)
    if len(facts.problems) > _MOST:
        yield POLICY.say("more", count=len(facts.problems) - _MOST, path=facts.path)
