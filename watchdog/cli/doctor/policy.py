"""Checks of the policy file, with their texts."""

from collections.abc import Iterable
from typing import Final

from watchdog.cli.doctor.facts import ListenFacts, PolicyFacts
from watchdog.cli.doctor.finding import Finding, Topic, missing, ok, warning
from watchdog.core.policy import Policy
from watchdog.node.driver import DriverReading

POLICY: Final = Topic(
    name="policy",
    means="There is a policy without mistakes. Without one `run` does not start.",
    cases={
        "valid": ok("{path} is a valid policy"),
        "mistake": missing("mistake: {problem}", "fix the file; `gpu-watchdog check {path}` lists every mistake"),
        "more": missing("more mistakes in {path}: {count}", "`gpu-watchdog check {path}` lists every mistake"),
        "absent": missing(
            "there is no policy at {path}",
            "give one with --policy; config/policy.toml of the project is a starting point",
        ),
    },
)
MODE: Final = Topic(
    name="mode",
    means="What the policy asks for. Observing is fine: it measures, decides and records, but takes no action.",
    cases={
        "observe": ok("the policy only observes: no action is taken"),
        "enforce": ok("the policy enforces"),
    },
)
WARNINGS: Final = Topic(
    name="policy_warnings",
    means="Nothing in the policy looks unintended.",
    cases={
        "none": ok("the policy has no warnings"),
        "warning": warning("warning: {warning}", "change the policy unless this is intended"),
    },
)
RUNNING: Final = Topic(
    name="policy_running",
    means="The daemon that answers on `--listen` uses this policy.",
    cases={
        "same": ok("the daemon on {listen} uses this policy"),
        "kept": warning(
            "the daemon on {listen} keeps using the last valid policy instead of {path}",
            "fix {path}: the daemon reloads it when it changes",
        ),
        "another": warning(
            "the daemon on {listen} uses another policy than {path}",
            "check that --policy names the file that the daemon reads; otherwise look for policy_refused in its log",
        ),
    },
)
MPS: Final = Topic(
    name="mps",
    means="If pods share an MPS server, killing one client can make the others fail.",
    cases={
        "none": ok("the driver lists no MPS clients"),
        "observed": ok("MPS clients: {count}; the policy only observes"),
        "withheld": warning(
            "MPS clients: {count}. The policy enforces, but kills and evictions that would end a client of a server "
            "outside its own pod are withheld",
            "docs/sharing.md explains which these are; if all clients of a server belong to one owner, set "
            "signal_mps_clients = true under [safety]",
        ),
        "accepted": warning(
            "MPS clients: {count}. The policy enforces, and signal_mps_clients lets it kill clients although the other "
            "clients of their server can fail with them",
            "remove signal_mps_clients, unless all clients of a server belong to one owner",
        ),
    },
)
POLICY_TOPICS: Final = (POLICY, RUNNING, MODE, WARNINGS, MPS)


_MOST: Final = 5


def check_policy(facts: PolicyFacts) -> Iterable[Finding]:
    """The first few mistakes of the policy; without any, its mode and warnings."""
    if facts.policy is None:
        yield from _mistakes(facts)
        return
    policy = facts.policy
    yield POLICY.finding("valid", path=facts.path)
    yield MODE.finding(policy.mode)
    for text in policy.warnings:
        yield WARNINGS.finding("warning", warning=text)
    if not policy.warnings:
        yield WARNINGS.finding("none")


def check_mps(reading: DriverReading, policy: Policy) -> Iterable[Finding]:
    """Whether there are MPS clients and what the policy does with them; nothing if no process is listed."""
    clients = {use.pid for use in reading.uses if use.mps}
    if not reading.uses:
        return
    case = "accepted" if policy.safety.signal_mps_clients else "withheld"
    yield MPS.finding("none" if not clients else case if policy.mode == "enforce" else "observed", count=len(clients))


def check_running(facts: PolicyFacts, listen: ListenFacts) -> Iterable[Finding]:
    """Whether the daemon that answers here uses this policy; nothing if none answers."""
    if not listen.policy_sha256:
        return
    is_same = facts.policy is not None and facts.policy.sha256 == listen.policy_sha256
    case = "same" if is_same else "kept" if facts.policy is None else "another"
    yield RUNNING.finding(case, listen=listen.listen, path=facts.path)


def _mistakes(facts: PolicyFacts) -> Iterable[Finding]:
    if not facts.is_there:
        yield POLICY.finding("absent", path=facts.path)
        return
    for problem in facts.problems[:_MOST]:
        yield POLICY.finding("mistake", problem=problem, path=facts.path)
    if len(facts.problems) > _MOST:
        yield POLICY.finding("more", count=len(facts.problems) - _MOST, path=facts.path)
