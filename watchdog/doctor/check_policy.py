"""The policy: is it there, is it right, and does the daemon go by it."""

from collections.abc import Iterable
from typing import Final

import watchdog.doctor.topics_policy as topic
from watchdog.core.policy import Policy
from watchdog.doctor.facts import ListenFacts, PolicyFacts
from watchdog.doctor.finding import Finding
from watchdog.node.driver import DriverReading

_MOST: Final = 5


def check_policy(facts: PolicyFacts) -> Iterable[Finding]:
    """The first mistakes of a policy that has some; otherwise what it asks for and what is odd about it."""
    if facts.policy is None:
        yield from _mistakes(facts)
        return
    policy = facts.policy
    yield topic.POLICY.say("valid", path=facts.path)
    yield topic.MODE.say(policy.mode)
    for text in policy.warnings:
        yield topic.WARNINGS.say("warning", warning=text)
    if not policy.warnings:
        yield topic.WARNINGS.say("none")


def check_mps(reading: DriverReading, policy: Policy) -> Iterable[Finding]:
    """Whether the policy meets clients of MPS servers; nothing where no process is listed."""
    clients = {use.pid for use in reading.uses if use.mps}
    if not reading.uses:
        return
    case = "accepted" if policy.safety.signal_mps_clients else "withheld"
    yield topic.MPS.say("none" if not clients else case if policy.mode == "enforce" else "observed", count=len(clients))


def check_running(facts: PolicyFacts, listen: ListenFacts) -> Iterable[Finding]:
    """Whether the daemon that answers here goes by this very policy; nothing where none answers."""
    if not listen.policy_sha256:
        return
    is_same = facts.policy is not None and facts.policy.sha256 == listen.policy_sha256
    case = "same" if is_same else "kept" if facts.policy is None else "another"
    yield topic.RUNNING.say(case, listen=listen.listen, path=facts.path)


def _mistakes(facts: PolicyFacts) -> Iterable[Finding]:
    if not facts.is_there:
        yield topic.POLICY.say("absent", path=facts.path)
        return
    for problem in facts.problems[:_MOST]:
        yield topic.POLICY.say("mistake", problem=problem, path=facts.path)
    if len(facts.problems) > _MOST:
        yield topic.POLICY.say("more", count=len(facts.problems) - _MOST, path=facts.path)
