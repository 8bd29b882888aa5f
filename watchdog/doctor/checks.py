"""All checks, in the order in which they are told, and all that they can find."""

from collections.abc import Iterable
from typing import Final

from watchdog.core.policy import Policy
from watchdog.doctor import topics_driver, topics_journal, topics_policy, topics_system
from watchdog.doctor.check_cluster import check_namespaces, check_node_object, check_pods
from watchdog.doctor.check_driver import check_driver
from watchdog.doctor.check_journal import check_journal, check_listen
from watchdog.doctor.check_policy import check_policy, check_running
from watchdog.doctor.check_system import check_processes, check_system
from watchdog.doctor.facts import Facts
from watchdog.doctor.finding import Diagnosis, Finding, Topic

TOPICS: Final[tuple[Topic, ...]] = (
    *topics_driver.TOPICS,
    *topics_system.TOPICS,
    *topics_policy.TOPICS,
    *topics_journal.TOPICS,
)
_DEFAULTS: Final = Policy(sha256="", source="")  # where there is no policy that can be followed


def diagnose(facts: Facts) -> Diagnosis:
    """Judge all that was read; the same facts give the same findings."""
    policy = facts.policy.policy
    return Diagnosis(findings=tuple(_findings(facts, policy)), mode=None if policy is None else policy.mode)


def _findings(facts: Facts, policy: Policy | None) -> Iterable[Finding]:
    yield from check_driver(facts.driver)
    yield from check_system(facts.system)
    known = policy or _DEFAULTS
    yield from check_processes(facts.processes, known.safety, facts.system.descriptors)
    yield from check_policy(facts.policy)
    yield from check_running(facts.policy, facts.listen)
    yield from check_pods(facts.cluster, facts.processes, known.stale_after_s)
    yield from check_node_object(facts.cluster, known)
    yield from check_namespaces(facts.cluster, known)
    yield from check_journal(facts.journal, known.journal.max_size)
    yield from check_listen(facts.listen)
