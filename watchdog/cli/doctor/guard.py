"""Checks that admission policies limit this account's rights to change something."""

from collections.abc import Iterator

from watchdog.cli.doctor.api import rights_command
from watchdog.cli.doctor.facts import Facts
from watchdog.cli.doctor.finding import CheckResult, missing, ok, to_enforce, warning
from watchdog.kube.kinds import Piece


@to_enforce()
def guard_nodes(facts: Facts) -> Iterator[CheckResult]:
    """An admission policy rejects changes of other nodes, and of anything but the entry of `[capacity]` on this one.

    Checked by dry runs, which change nothing, if the account may change the status of nodes.
    """
    return _guard(facts, Piece.CAPACITY, "changes of other nodes, and of other things on this one")


@to_enforce()
def guard_evictions(facts: Facts) -> Iterator[CheckResult]:
    """An admission policy rejects evictions without a pod's UID, and in kube-system.

    Checked by a dry run for a pod that does not exist, if the account may evict.
    """
    return _guard(facts, Piece.EVICT, "evictions from kube-system, and those without a pod's UID")


def _guard(facts: Facts, piece: Piece, forbidden: str) -> Iterator[CheckResult]:
    probes = [probe for probe in facts.api.probes if probe.piece is piece]
    accepted = next((probe for probe in probes if probe.rejected is False), None)
    unclear = next((probe for probe in probes if probe.rejected is None), None)
    command, instead = rights_command(facts)
    if accepted is not None and any(right.piece is piece for right in facts.api.rights):
        yield missing(
            f"no admission policy limits this account: it may {accepted.what}",
            f"as an administrator: `{command} | kubectl apply -f -`{instead}; an account that may do everything, and "
            "Kubernetes 1.29 and older, can't be limited",
        )
    elif accepted is not None:
        yield missing(
            f"no admission policy limits this account: it may {accepted.what}, and the policy does not need that right",
            "remove the role that grants it (`kubectl get clusterrolebindings -o wide` shows the account's roles), or "
            "use an account with only the rights that the policy needs",
        )
    elif unclear is not None:
        yield warning(
            f"whether an admission policy limits this account is unknown: {unclear.problem}", "run doctor again"
        )
    elif probes:
        yield ok(f"the API server rejects {forbidden}, by dry runs")
