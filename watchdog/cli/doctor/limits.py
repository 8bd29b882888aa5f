"""Checks of what pods declare: whether it can be determined here, and whether its unit can be right."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from watchdog.cli.doctor.facts import Facts
from watchdog.cli.doctor.finding import CheckResult, ok, to_enforce, warning
from watchdog.config.known_units import schemes_of
from watchdog.core.assessment import Verdict
from watchdog.core.declare import NOT_LISTED
from watchdog.report.sentences.usage import title, unit_suspicion

_MOST: Final = 5  # accounts of one finding


def _is_assessed(facts: Facts) -> bool:
    """Whether the driver responds and the pods are known, so that there are accounts."""
    return facts.driver.answer is not None and facts.cluster.pods.synced is not None


@to_enforce(given=lambda facts: facts.driver.answer is not None and facts.cluster.node.known)
def node_cards(facts: Facts) -> Iterator[CheckResult]:
    """The driver lists as many GPUs as the Node object shows by its labels and its capacity."""
    gaps, offered = facts.processes.card_gaps, facts.processes.cards_offered
    for gap in gaps:
        yield warning(
            f"{gap.problem.cause}; limits that depend on it are unknown or those of whole cards", gap.problem.remedy
        )
    if offered:
        yield warning(
            f"{offered}. Another plugin offers each card several times, or no label says that cards are shared; pods "
            "that declare no memory count as having whole cards",
            "none is needed with HAMi; with time-slicing, give GPU feature discovery the device plugin's configuration",
        )
    if not (gaps or offered):
        yield ok("the GPUs that the driver lists agree with the Node object")


@to_enforce(given=lambda facts: facts.cluster.node.known and facts.policy.policy is not None)
def node_schemes(facts: Facts) -> Iterator[CheckResult]:
    """The policy reads the resources of GPU sharing systems that the node offers."""
    keys = [each.resource or "" for each in facts.known_policy.declarations]
    has_default = any(rule.default is not None for rule in facts.known_policy.rules)
    offered = (key for key, number in facts.cluster.node.capacity.items() if number not in ("", "0"))
    unread = [key for key in sorted(offered) if not any(fnmatchcase(key, pattern) for pattern in keys)]
    found = [(key, " or ".join(schemes_of(key))) for key in unread if schemes_of(key)]
    for resource, scheme in found:
        follows = "a default applies to its pods, and may kill them" if has_default else "its pods are left alone"
        yield warning(
            f"the node offers {resource}, which scheme {scheme} reads, and the policy does not select that: {follows}",
            "add it to schemes, or write a [[declaration]]; `gpu-watchdog check --schemes` says what to look up",
        )
    if not found:
        yield ok("the policy reads every resource of a GPU sharing system that the node offers")


@to_enforce(given=_is_assessed)
def limits_known(facts: Facts) -> Iterator[CheckResult]:
    """The limit of every account can be determined. No action is taken on the others."""
    unknown = [(title(each), each.limit_unknown) for each in facts.processes.assessments if each.limit_unknown]
    for account, cause in unknown[:_MOST]:
        yield warning(f"the limit of {account} is unknown: {cause}", "remove the cause; until then it is left alone")
    count = len(unknown) - _MOST
    if count > 0:
        yield warning(f"more accounts with an unknown limit: {count}", "`gpu-watchdog scan` lists them")
    if not unknown:
        yield ok("the limit of every account can be determined")


@to_enforce(given=_is_assessed)
def limits_checked(facts: Facts) -> Iterator[CheckResult]:
    """The node lists every resource by which its pods declare GPU memory."""
    remarks = ((each, one) for each in facts.processes.assessments for one in each.misdeclarations)
    by_pod = {(each.pod.title, one.source): one.why for each, one in remarks if one.why.startswith(NOT_LISTED)}
    for (pod, source), why in [*by_pod.items()][:_MOST]:
        yield warning(
            f"{source}, pod {pod}: {why}",
            "ask its owner why it names its node itself; or let the node list the resource, by its device plugin or "
            "[capacity], if pods may declare by it",
        )
    count = len(by_pod) - _MOST
    if count > 0:
        yield warning(f"more such declarations: {count}", "`gpu-watchdog scan` lists them")
    if not by_pod:
        yield ok("the node lists every resource by which its pods declare GPU memory")


@to_enforce(given=_is_assessed)
def limits_plausible(facts: Facts) -> Iterator[CheckResult]:
    """No account uses so many times what it declares that the unit must be wrong."""
    over = [each for each in facts.processes.assessments if each.verdict is Verdict.OVER]
    found = [(each, unit_suspicion(each.used_at_least, each.declared, each.declared_by)) for each in over]
    odd = [(title(each), what) for each, what in found if what]
    for account, suspicion in odd[:_MOST]:
        yield warning(
            f"{account}: {suspicion}",
            "compare what pods write with `gpu-watchdog check --schemes`, and correct the unit before you enforce",
        )
    count = len(odd) - _MOST
    if count > 0:
        yield warning(f"more such accounts: {count}", "`gpu-watchdog scan` lists them")
    if not odd:
        yield ok("no account uses hundreds of times what it declares")
