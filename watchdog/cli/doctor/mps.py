"""Checks of MPS: whether clients of a shared server can be drained, and what they may pin."""

from collections.abc import Iterator

from watchdog.cli.doctor.facts import Facts
from watchdog.cli.doctor.finding import CheckResult, ok, to_enforce, to_observe, warning
from watchdog.node.mps_control import InvalidAnswerError, MpsInspection
from watchdog.node.mps_pipes import SilentError, UntrustedPipeError
from watchdog.report.sentences.draining import pinned_limits
from watchdog.report.sentences.usage import account_name
from watchdog.report.status import AccountStatus, PinnedTotalStatus


def _clients(facts: Facts) -> int:
    return len({use.pid for use in facts.driver.reading.uses if use.client})


@to_observe(given=lambda facts: bool(facts.driver.reading.uses))
def mps(facts: Facts) -> Iterator[CheckResult]:
    """If pods share an MPS server, killing one client without draining it first can make the others fail."""
    count = _clients(facts)
    if not count:
        yield ok("the driver lists no MPS clients")
    elif facts.known_policy.mode == "observe":
        yield ok(f"MPS clients: {count}; the policy only observes")
    elif facts.known_policy.safety.signal_mps_clients:
        yield warning(
            f"MPS clients: {count}. The policy enforces, and signal_mps_clients lets it kill clients although the "
            "other clients of their server can fail with them",
            "remove signal_mps_clients, unless all clients of a server belong to one owner",
        )
    elif facts.known_policy.mps is not None:
        yield ok(f"MPS clients: {count}; the policy drains a client before it is killed")
    else:
        yield warning(
            f"MPS clients: {count}. The policy enforces, but kills and evictions that would end a client of a server "
            "outside its own pod are withheld",
            "docs/sharing.md explains which these are; with [mps] in the policy they are drained first, if the control "
            "daemon can be reached",
        )


def _is_inspected(facts: Facts) -> bool:
    return facts.mps is not None


@to_enforce(given=_is_inspected)
def mps_program(facts: Facts) -> Iterator[CheckResult]:
    """With `[mps]`, the MPS control program is found. Without it no client can be drained."""
    known = facts.mps or MpsInspection()
    problem = known.no_program
    if problem is None:
        yield ok(f"the MPS control program is {known.program}")
    elif not _clients(facts) and not known.daemons:
        yield ok("there is no MPS control program, but there are neither clients nor control daemons")
    else:
        yield warning(f"{problem.cause}: no client can be drained", problem.remedy)


@to_enforce(given=_is_inspected)
def mps_pipe(facts: Facts) -> Iterator[CheckResult]:
    """With `[mps]`, a control daemon listens in one of its pipe directories, whose whole path belongs to root.

    A program that can replace a part of that path can answer in the daemon's place. The daemon itself must run as root
    on the host or in a privileged container, which a program that has replaced its socket does not.
    """
    known = facts.mps or MpsInspection()
    for pipe, state in known.daemons.items():
        if isinstance(state, UntrustedPipeError):
            problem = state.problem
            yield warning(f"{problem.cause}: its clients are not drained", problem.remedy)
        else:
            yield ok(f"the control daemon's pipe directory {pipe} can be replaced only by root")
    if known.daemons:
        return
    if _clients(facts):
        problem = known.no_daemon
        yield warning(f"MPS clients run, but {problem.cause}", problem.remedy)
    else:
        yield ok("there are neither MPS clients nor control daemons")


@to_enforce(given=_is_inspected)
def mps_daemon(facts: Facts) -> Iterator[CheckResult]:
    """With `[mps]`, each trusted control daemon answers in time, with lists of PIDs, and they name clients if any run.

    Only version 2 of the control program's commands is supported, the default. Version 3 has others.
    """
    known, count = facts.mps or MpsInspection(), _clients(facts)
    if count and not known.clients and 0 in known.daemons.values():
        yield warning(
            f"MPS clients: {count}, and no control daemon names any",
            "check whether they belong to another daemon, whose pipe directory is not under [mps]; a daemon that was "
            "started with protocol 3 (MPS v3) can't be used",
        )
    for pipe, state in known.daemons.items():
        if isinstance(state, int):
            yield ok(f"the MPS control daemon of {pipe} answers; clients: {state}")
        elif isinstance(state, InvalidAnswerError):
            problem = state.problem
            yield warning(f"an answer is invalid: {problem.cause}", problem.remedy)
        elif isinstance(state, SilentError):
            problem = state.problem
            yield warning(f"a daemon is silent: {problem.cause}", problem.remedy)


def _clients_limits(facts: Facts) -> list[tuple[AccountStatus, PinnedTotalStatus]]:
    accounts = facts.listen.status.accounts if facts.listen.status is not None else ()
    return [(account, account.pinned) for account in accounts if isinstance(account.pinned, PinnedTotalStatus)]


@to_observe(given=lambda facts: bool(_clients_limits(facts)))
def mps_limits(facts: Facts) -> Iterator[CheckResult]:
    """The limits of a pod's MPS clients do not add up to more than the pod declares. Only known of a running daemon."""
    beyond = [each for each in _clients_limits(facts) if each[1].exceeds_declared]
    for account, pinned in beyond:
        name = account_name(account.namespace, account.pod, account.container)
        limits = pinned_limits(pinned, account.declared)
        yield warning(
            f"{name}: {limits}",
            "start fewer clients, set a lower CUDA_MPS_PINNED_DEVICE_MEM_LIMIT in each, or declare more; a rule that "
            "kills or evicts enforces what is declared",
        )
    if not beyond:
        yield ok("the limits of MPS clients do not exceed what their pods declare")
