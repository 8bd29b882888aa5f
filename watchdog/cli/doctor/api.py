"""Checks of the connection to the API server, and of this account's rights there."""

import shlex
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

from watchdog.cli.doctor.facts import Facts
from watchdog.cli.doctor.finding import Check, CheckResult, missing, ok, to_enforce, to_observe, warning
from watchdog.kube.credentials import Validity, exceeds_tolerance
from watchdog.kube.kinds import WATCHED_KINDS, Piece, WatchedKind
from watchdog.kube.rights import ROLES_OF_ACTIONS, Role
from watchdog.options import DEFAULT_NAMESPACE, DEFAULT_POLICY, DEFAULT_SERVICE_ACCOUNT
from watchdog.report.text import date_time, span

_SEE_LOG: Final = "check the log of the API server"
_SET_CLOCK: Final = "correct this node's clock (chronyd, systemd-timesyncd)"
_SET_A_CLOCK: Final = (
    "find out which clock is right (`date -u` on both), and correct the other (chronyd, systemd-timesyncd)"
)


def _is_configured(facts: Facts) -> bool:
    return facts.api.ended not in ("unused", "unconfigured")


@to_observe()
def api_config(facts: Facts) -> Iterator[CheckResult]:
    """There is a configuration for the Kubernetes API: a kubeconfig, or the service account of the pod.

    Only checked without `--pods FILE`.
    """
    path, host, problem = facts.options.kubeconfig, facts.api.host, facts.api.problem
    if facts.api.ended == "unconfigured":
        yield missing(problem.cause, problem.remedy or _SEE_LOG)
    elif host and path is not None:
        yield ok(f"the kubeconfig {path} names {host}")
    elif host:
        yield ok(f"this pod's service account is used for {host}")


@to_observe(given=lambda facts: _is_configured(facts) and facts.api.ended != "certificate")
def api(facts: Facts) -> Iterator[CheckResult]:
    """The API server responds."""
    ended, host, version, problem = facts.api.ended, facts.api.host, facts.api.version, facts.api.problem
    if ended in ("unreachable", "odd"):
        yield missing(problem.cause, problem.remedy or _SEE_LOG)
    elif version:
        yield ok(f"{host} responds: Kubernetes {version}")
    elif ended != "late":
        yield ok(f"{host} responds")
    if ended == "late":
        host, waited, asking = host or "the API server", span(facts.api.waited_s), facts.api.asking
        yield missing(
            f"{host} did not answer all requests within {waited}; the last one was for {asking}",
            "check the network, this node's DNS and the load of the API server, then run doctor again",
        )


@to_observe(given=lambda facts: facts.api.ended == "certificate")
def api_certificate(facts: Facts) -> Iterator[CheckResult]:
    """The API server's certificate is accepted.

    If it is not, its dates and the server's clock are read without verification, to determine whether the certificate
    or a clock is wrong; no credentials are sent then.
    """
    host, problem, now_s = facts.api.host, facts.api.problem, facts.api.now_s
    validity, offset_s = facts.api.peer.validity, facts.api.peer.offset_s or 0.0
    state, since_s = _invalid(validity, now_s)
    moment, apart = date_time(since_s), span(abs(now_s - since_s))
    if not state:
        yield missing(problem.cause, problem.remedy or _SEE_LOG)
    elif exceeds_tolerance(offset_s) and not _invalid(validity, now_s + offset_s)[0]:  # valid by the server's clock
        off, from_or_until = _off(offset_s), "from" if state == "early" else "until"
        yield missing(
            f"this node's clock is {off} that of {host}, so its certificate, which is valid {from_or_until} "
            f"{moment}, is refused",
            _SET_CLOCK,
        )
    elif state == "expired":
        yield missing(
            f"the certificate of {host} expired {apart} ago, at {moment}",
            "renew it (kubeadm: `kubeadm certs renew apiserver` on the control plane, then restart the API server)",
        )
    else:
        yield missing(
            f"the certificate of {host} is not valid until {moment}, in {apart}",
            "wait, or reissue it: the issuer's clock was ahead",
        )


def _invalid(validity: Validity, at_s: float) -> tuple[Literal["expired", "early", ""], float]:
    """Whether a validity has expired or not begun yet, and since or until when; empty if it holds or is unknown."""
    if validity.ends_s is not None and validity.ends_s <= at_s:
        return "expired", validity.ends_s
    if validity.begins_s is not None and validity.begins_s > at_s:
        return "early", validity.begins_s
    return "", 0.0


@to_observe(given=_is_configured)
def api_clock(facts: Facts) -> Iterator[CheckResult]:
    """The clocks of this node and of the API server agree within a minute."""
    offset_s = facts.api.offset_s
    if offset_s is None:
        return
    if not exceeds_tolerance(offset_s):
        apart = "less than 2s" if abs(offset_s) < 1.5 else f"about {abs(offset_s):.0f}s"  # a Date has whole seconds
        yield ok(f"this node's clock and the API server's differ by {apart}")
    else:
        off = _off(offset_s)
        yield warning(
            f"this node's clock is {off} the API server's: by as much, certificates are taken for expired "
            "or not yet valid, deadlines of terminating pods and `active` hours come too early or too late, and times "
            "in the journal and in Events are wrong",
            _SET_A_CLOCK,
        )


def _off(offset_s: float) -> str:
    """By how much this node's clock is wrong, if the other is ahead of it by this: `2m behind`."""
    return f"{span(abs(offset_s))} {'ahead of' if offset_s < 0 else 'behind'}"


@to_observe(given=_is_configured)
def api_credentials(facts: Facts) -> Iterator[CheckResult]:
    """The API server accepts this account's token or client certificate."""
    ended, kind, account = facts.api.ended, facts.api.credentials.kind, facts.api.account.name
    if ended == "anonymous" or (ended == "credentials" and kind == "none"):
        yield missing(
            "the API server treats this account as anonymous: no credentials were sent",
            "give the user in the kubeconfig a token, a client certificate or an `exec` plugin",
        )
    elif ended == "credentials":
        yield _rejected(facts)
    elif account:
        yield ok(f"the API server authenticates this account as {account}")
    elif ended == "asked":
        yield ok("the API server accepts the credentials")


def _rejected(facts: Facts) -> CheckResult:
    shown, at_s = facts.api.credentials, facts.api.now_s + (facts.api.offset_s or 0.0)
    state, since_s = _invalid(shown.validity, at_s)
    of, apart = f" of {shown.account}" if shown.account else "", span(abs(at_s - since_s))
    match state, shown.kind:
        case "expired", "certificate":
            return missing(
                f"the client certificate expired {apart} ago by the API server's clock",
                "put a new one into the kubeconfig",
            )
        case "early", "certificate":
            return missing(
                f"the client certificate is not valid for another {apart} by the API server's clock",
                "correct the API server's clock, or reissue the certificate",
            )
        case "expired", _:
            return missing(
                f"the token{of} expired {apart} ago by the API server's clock",
                "in a pod the kubelet renews it: check that the kubelet runs and that this node's clock is right, then "
                "delete the pod; otherwise put a new token into the kubeconfig",
            )
        case "early", _:
            return missing(
                f"the token{of} is not valid for another {apart} by the API server's clock",
                "correct the clock of the server that issued it, or of the API server",
            )
    kind = "client certificate" if shown.kind == "certificate" else "token"
    though = ", though it has not expired" if shown.validity.ends_s is not None else ""
    return missing(
        f"the API server rejects the {kind}{of} (401){though}",
        "check that it belongs to this cluster and that its account still exists: an account that was deleted and "
        "recreated needs a new token (delete the pod, or write a new kubeconfig)",
    )


@to_observe()
def rights(facts: Facts) -> Iterator[CheckResult]:
    """The API server reports what this account may do; every account may ask (cluster role system:basic-user)."""
    problem = facts.api.rights_problem
    if problem is not None:
        yield warning(problem.cause, problem.remedy or _SEE_LOG)


def _right_to_watch(kind: WatchedKind[Any, Any]) -> Check:
    consequence = kind.without

    def vital(facts: Facts) -> Iterator[CheckResult]:
        for each in kind.rights:
            yield from _right(facts, each.piece, each.resource, missing, consequence)

    def of_few_pods(facts: Facts) -> Iterator[CheckResult]:
        for each in kind.rights:
            yield from _right(facts, each.piece, each.resource, warning, consequence)

    right = of_few_pods if kind.waits_for_claims else vital
    right.__name__ = f"right_{kind.name}"
    right.__doc__ = f"The account may list and watch {kind.resource}{kind.watched_when}."
    return (to_observe() if kind.is_for_observing else to_enforce())(right)


# In the order of their pieces: Events come after the pods.
right_to_pods, *_others = map(_right_to_watch, WATCHED_KINDS)


@to_observe()
def right_events(facts: Facts) -> Iterator[CheckResult]:
    """The account may create and patch Events, if the policy writes any."""
    return _right(facts, Piece.OBSERVE, "events", warning, "warnings and actions do not appear as Events on the pods")


rights_to_others = tuple(_others)


def _right_to_act(role: Role) -> Check:
    consequence = role.without

    def right(facts: Facts) -> Iterator[CheckResult]:
        for resource in dict.fromkeys(each.resource for each in role.rights):
            yield from _right(facts, role.piece, resource, missing, consequence)

    right.__name__ = f"right_{role.piece}"
    right.__doc__ = f"The account may {role.may}."
    return to_enforce()(right)


rights_to_act = tuple(map(_right_to_act, ROLES_OF_ACTIONS))


@to_observe()
def right_capacity(facts: Facts) -> Iterator[CheckResult]:
    """The account may patch the node's status, if the policy has [capacity]."""
    consequence = (
        "the node does not advertise the resource of [capacity], so pods that request it are not scheduled here"
    )
    return _right(facts, Piece.CAPACITY, "nodes", warning, consequence)


def _right(
    facts: Facts, piece: Piece, resource: str, lacks: Callable[[str, str], CheckResult], consequence: str
) -> Iterator[CheckResult]:
    command, instead = rights_command(facts)
    for right, lacking in facts.api.rights.items():
        if (right.piece, right.resource) != (piece, resource):
            continue
        target, verbs = right.target, " or ".join(lacking) or " and ".join(right.verbs)
        if lacking:
            yield lacks(
                f"this account is not allowed to {verbs} {target}: {consequence}",
                f"as an administrator: `{command} | kubectl apply -f -`{instead}",
            )
        else:
            yield ok(f"this account may {verbs} {target}")


@to_enforce()
def rights_to_enforce(facts: Facts) -> Iterator[CheckResult]:
    """The account also has the rights that this policy would need with `mode = "enforce"`; observing needs fewer."""
    command, instead = rights_command(facts)
    targets = ", ".join(f"{' and '.join(verbs)} {right.target}" for right, verbs in facts.api.later.items() if verbs)
    if targets:
        yield missing(
            f'this account lacks rights that this policy would need with mode = "enforce": {targets}',
            f"before enforcing, as an administrator: `{command} --enforce | kubectl apply -f -`{instead}",
        )
    elif facts.api.later:
        yield ok('this account has every right that this policy would need with mode = "enforce"')


def rights_command(facts: Facts) -> tuple[str, str]:
    """The command that prints the rights this account needs, and which name to replace in its output.

    It only prints them for service accounts. Files in a pod, the policy above all, are read there; the output is
    applied from elsewhere.
    """
    account, path, in_pod = facts.api.account, facts.options.policy, facts.options.kubeconfig is None
    words = ["gpu-watchdog", "rights", *([] if in_pod and path == DEFAULT_POLICY else ["--policy", str(path)])]
    who, _, name = account.name.rpartition(":")
    kind, _, namespace = who.partition(":serviceaccount:")
    if in_pod:
        words = ["kubectl", "-n", namespace or "NAMESPACE", "exec", account.pod or "POD", "--", *words]
    if kind == "system" and namespace:
        words += ["--namespace", namespace] if namespace != DEFAULT_NAMESPACE else []
        words += ["--service-account", name] if name != DEFAULT_SERVICE_ACCOUNT else []
        return shlex.join(words), ""
    instead = f", with the user {account.name} in place of the service account" if account.name else ""
    return shlex.join(words), instead
