"""Whether the daemon may enforce, now and during a grace period, and the reasons against it, with remedies."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from watchdog.config.watch import SETTLING_S, PolicyFile
from watchdog.core.errors import Problem
from watchdog.core.model import MAINTENANCE, Now, Place, PlaceKind
from watchdog.core.plan import PlanEntry
from watchdog.core.policy import Do, Policy
from watchdog.core.rules import MODE, Switches
from watchdog.node.cgroup import parse_cgroup
from watchdog.node.process import pidfd_supported, raise_descriptor_limit
from watchdog.node.process_table import ProcessTable
from watchdog.node.procfs import Procfs
from watchdog.node.scan import Scanner
from watchdog.options import DEFAULT_JOURNAL, Options
from watchdog.report.status import Status
from watchdog.report.text import inert

if TYPE_CHECKING:
    from watchdog.daemon.sources import Sources


def _stopped(path: Path) -> str:
    undo = "run `gpu-watchdog resume`" if path == stop_file(DEFAULT_JOURNAL) else "remove it"
    return f"the file {path} turns enforcement off: find out who created it and why, then {undo}"


def _annotated(node: str) -> str:
    return (
        f"the node's annotation {MODE} turns enforcement off: find out who set it and why, then remove it with "
        f"`kubectl annotate node {node} {MODE}-`"
    )


def _maintained(node: str) -> str:
    return (
        "enforcement resumes when the maintenance of the GPUs is over; if it does not end, find out what set the label "
        f"or annotation, which `kubectl get node {node} -o yaml --show-managed-fields` shows"
    )


_CAP_KILL = 5  # linux/capability.h
_LONGEST_PATH: Final = 4096  # PATH_MAX, linux/limits.h
POLICY_FILE: Final = "policy_file"
REMEDIES: Final = {
    "pid_namespace": "the watchdog does not run in the host's PID namespace: set hostPID: true, "
    "or [safety] foreign_pid_namespace = true if this is intended",
    "procfs": "the proc file system (--procfs) belongs to another PID namespace than the daemon's, so its "
    "PIDs refer to other processes: mount the /proc of the daemon's own PID namespace",
    "pidfd": "the pidfd system calls are missing: use a newer kernel or a seccomp profile that allows them, "
    "or [safety] signal_without_pidfd = true",
    "lock": "the lock next to the journal is not held: another watchdog on this node has it and must be stopped (the "
    "log has its PID), or the disk has not answered yet",
    "journal": "the journal can't be opened, and no action is taken without a record: see the log for the cause",
    "stop_file": "the file `stop` next to the journal turns enforcement off (/var/lib/gpu-watchdog/stop, unless "
    "--journal names another place): find out who created it and why, then run `gpu-watchdog resume`",
    "node_annotation": _annotated("NAME"),
    POLICY_FILE: "the policy file is new or has changed, and is loaded once it is valid, has stayed the same for "
    f"{SETTLING_S:.0f} s and no process has it open for writing; if that takes long, look for policy_refused in the "
    "log, end what writes it, or send SIGHUP to load it as it is",
    MAINTENANCE: _maintained("NAME"),
    "node_unknown": "the Node object was never read, or could not be watched for longer than stale_after, so an "
    "annotation on it might turn enforcement off: see the gap `node` for the cause",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where the daemon runs and what the kernel permits it, determined once at startup."""

    in_host_pid_namespace: bool
    pidfd_missing: Problem | None
    own: Place | None = None
    may_signal_others: bool = True
    procfs_is_own: bool = True


def open_processes(options: Options) -> tuple[Environment, Scanner]:
    """Determine the environment, and open a scanner for it."""
    raise_descriptor_limit()
    procfs = Procfs(options.procfs)
    missing = pidfd_supported()
    environment = Environment(
        in_host_pid_namespace=procfs.in_host_pid_namespace(),
        pidfd_missing=missing,
        own=_own_place(procfs, options.pod_uid.strip()),
        procfs_is_own=procfs.own_pid() == os.getpid(),
        may_signal_others=procfs.has_capability(_CAP_KILL),
    )
    return environment, Scanner(ProcessTable(procfs, pidfds=missing is None))


def _own_place(procfs: Procfs, pod_uid: str) -> Place | None:
    """Where the daemon itself runs, by its cgroup and by the pod UID from its manifest.

    In a private cgroup namespace, which runtimes use with cgroup v2, the cgroup is `/` (cgroup_namespaces(7)).
    """
    try:
        place = parse_cgroup(procfs.cgroup_text(os.getpid()))
    except OSError:
        place = None
    if place is None or place.kind is not PlaceKind.POD:
        return Place(kind=PlaceKind.POD, pod=pod_uid) if pod_uid else None
    return replace(place, pod=place.pod or pod_uid or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforcement:
    """Whether the daemon enforces now. `suspended` are the reasons if it does not although the policy says so."""

    enforcing: bool
    suspended: tuple[str, ...]

    @property
    def waits_for_policy(self) -> bool:
        """Whether a policy file that has changed and not settled is the only reason not to enforce."""
        return self.suspended == (POLICY_FILE,)

    def suspended_by(self, reason: str) -> "Enforcement":
        """The same with one more reason; if the policy only observes, that suspends nothing."""
        if not (self.enforcing or self.suspended):
            return self
        return Enforcement(enforcing=False, suspended=(*self.suspended, reason))

    def with_policy_unsettled(self) -> "Enforcement":
        """The same while the policy file has not settled."""
        return self.suspended_by(POLICY_FILE)


def judge(
    policy: Policy, environment: Environment, journal: Path, switches: Switches, *, has_lock: bool, has_journal: bool
) -> Enforcement:
    """Whether to enforce, by the policy, the environment, the lock, the journal, the stop file and the Node object."""
    if policy.mode != "enforce":
        return Enforcement(enforcing=False, suspended=())
    is_foreign = not environment.in_host_pid_namespace
    reasons = {
        "pid_namespace": is_foreign and not policy.safety.foreign_pid_namespace,
        "procfs": not environment.procfs_is_own,
        "pidfd": environment.pidfd_missing is not None and not policy.safety.signal_without_pidfd,
        "lock": not has_lock,
        "journal": has_lock and not has_journal,  # without the lock it is not even opened: the lock is what is missing
        "stop_file": exists(stop_file(journal)),
        "node_annotation": switches.observes,
        "node_unknown": switches.unseen,
    }
    suspended = tuple(reason for reason, applies in reasons.items() if applies)
    return Enforcement(enforcing=not suspended, suspended=suspended)


class Permission:
    """Determines whether the daemon may enforce, and whether an action in progress may continue.

    `policy_unsettled`: only a changed policy file that has not settled keeps it from enforcing for the moment. Unlike a
    switch, this resets nothing: no first signal and no SIGKILL is sent, and what is due stays due.
    """

    def __init__(
        self,
        journal: Path,
        environment: Environment,
        policy_file: PolicyFile,
        sources: "Sources",
        warn: Callable[[str], None],
    ) -> None:
        self._journal = journal
        self._environment = environment
        self._policy_file = policy_file
        self._sources = sources
        self._warn = warn
        self.switches = Switches()
        self.under_maintenance = False
        self.policy_unsettled = False
        self._permitted = Enforcement(enforcing=False, suspended=())

    @property
    def enforcement(self) -> Enforcement:
        """Whether the daemon enforces now; not while the GPUs are `under_maintenance`, which is the last reason."""
        return self._permitted.suspended_by(MAINTENANCE) if self.under_maintenance else self._permitted

    @property
    def decides(self) -> bool:
        """Whether plans are acted on, now or once the policy file has settled.

        Maintenance withholds what is due, as a brake does: nothing starts over because of it.
        """
        return self._permitted.enforcing or self.policy_unsettled

    def judge(self, policy: Policy, now: Now, *, has_lock: bool, has_journal: bool) -> bool:
        """Check everything again; return whether enforcement starts at this moment."""
        switches = self._sources.switches(now, policy.stale_after_s)
        if switches.ignored is not None and switches.ignored != self.switches.ignored:
            self._warn(ignored_mode(switches.ignored))
        self._policy_file.check(now)
        decided, self.switches = self.decides, switches
        enforcement = judge(
            policy, self._environment, self._journal, switches, has_lock=has_lock, has_journal=has_journal
        )
        self._permitted = enforcement.with_policy_unsettled() if self._policy_file.holds else enforcement
        self.policy_unsettled = self._permitted.waits_for_policy and self._policy_file.has_settled
        return self.decides and not decided

    def objection(self, entry: PlanEntry, policy: Policy, now: Now, *, is_first: bool = False) -> str | None:
        """Why an action must not begin, or its grace period must not continue; None if there is no reason.

        While the policy file has not settled, no action begins, but a grace period continues.
        """
        if not self.decides:
            return "enforcement was turned off meanwhile"
        if self.policy_unsettled and (is_first or entry.do is not Do.KILL):
            return "the policy file has changed and may still be being written"
        return self._sources.objection(entry, policy, now)


def remedies(journal: Path, node: str) -> dict[str, str]:
    """The remedies by reason, with the path of the stop file next to this journal and the node's name."""
    return {
        **REMEDIES,
        "stop_file": _stopped(stop_file(journal)),
        "node_annotation": _annotated(node),
        MAINTENANCE: _maintained(node),
    }


def remedy_on(reason: str, status: Status) -> str | None:
    """The remedy for a reason on the node of a status; None for a reason of a newer version."""
    node = inert(status.node) or "NAME"
    code, _, detail = reason.partition(": ")
    if code == MAINTENANCE:
        return "; ".join(filter(None, (inert(detail, _LONGEST_PATH), _maintained(node))))
    path = status.health.stop_file if status.health is not None else None
    if reason == "stop_file" and path:
        return _stopped(Path(inert(path, _LONGEST_PATH)))
    return _annotated(node) if reason == "node_annotation" else REMEDIES.get(reason)


def ignored_mode(value: str) -> str:
    """The warning that the node's annotation has an invalid value."""
    return f"the node's annotation {MODE} is ignored: it is {value[:100]!r}, and `observe` is the only valid value"


def stop_file(journal: Path) -> Path:
    """The file that turns enforcement off while it exists."""
    return journal.parent / "stop"


def exists(path: Path) -> bool:
    """Whether a path exists, even as a dangling link; true if that can't be determined."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
