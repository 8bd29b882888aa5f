"""All checks, in the order in which they are told, and all that they can find."""

from collections.abc import Iterable
from typing import Final

from watchdog.core.policy import Policy
from watchdog.doctor import (
    topics_api,
    topics_cluster,
    topics_container,
    topics_driver,
    topics_journal,
    topics_policy,
    topics_rights,
    topics_switches,
    topics_system,
)
from watchdog.doctor.check_api import check_api, check_node_name
from watchdog.doctor.check_cluster import check_capacity, check_namespaces, check_node_object
from watchdog.doctor.check_container import check_container
from watchdog.doctor.check_driver import check_driver
from watchdog.doctor.check_journal import check_journal, check_listen
from watchdog.doctor.check_pods import check_pods
from watchdog.doctor.check_policy import check_mps, check_policy, check_running
from watchdog.doctor.check_rights import check_rights
from watchdog.doctor.check_switches import check_switches
from watchdog.doctor.check_system import check_processes, check_system
from watchdog.doctor.facts import DEFAULTS, Facts
from watchdog.doctor.finding import Diagnosis, Finding, State, Topic

TOPICS: Final[tuple[Topic, ...]] = (
    *topics_driver.TOPICS,
    *topics_system.TOPICS,
    *topics_container.TOPICS,
    *topics_policy.TOPICS,
    *topics_api.CONNECTION,
    *topics_rights.TOPICS,
    *topics_api.PLACE,
    *topics_cluster.TOPICS,
    *topics_switches.TOPICS,
    *topics_journal.TOPICS,
)


def diagnose(facts: Facts) -> Diagnosis:
    """Judge all that was read; the same facts give the same findings."""
    policy = facts.policy.policy
    return Diagnosis(findings=tuple(_findings(facts, policy)), mode=None if policy is None else policy.mode)


def _findings(facts: Facts, policy: Policy | None) -> Iterable[Finding]:
    yield from check_driver(facts.driver)
    yield from check_system(facts.system)
    known = policy or DEFAULTS
    yield from check_processes(facts.processes, known.safety, facts.system.descriptors)
    yield from check_container(facts.container, facts.policy, facts.processes.footing.own)
    yield from check_policy(facts.policy)
    yield from check_mps(facts.driver.reading, known)
    yield from check_running(facts.policy, facts.listen)
    yield from check_api(facts.api)
    yield from check_rights(facts.api, facts.policy.path)
    named = tuple(check_node_name(facts.api, facts.cluster, facts.processes.footing.own))
    yield from named
    if facts.api is None or facts.api.ended == "asked":
        if all(finding.state is not State.MISSING for finding in named):
            yield from check_pods(facts.cluster, facts.processes, known.stale_after_s)
            yield from check_node_object(facts.cluster, known)
            yield from check_capacity(facts.cluster, known)
            yield from check_switches(facts.cluster, known)
        yield from check_namespaces(facts.cluster, known)
    yield from check_journal(facts.journal, known.journal.max_size)
    yield from check_listen(facts.listen)
