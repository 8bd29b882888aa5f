"""Whether the daemon may enforce, now and during a grace period, and the reasons against it, with remedies."""

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from watchdog.config.watch import SETTLING_S, PolicyFile
from watchdog.core.errors import Problem
from watchdog.core.model import MAINTENANCE, Now, Place, PlaceKind, elapsed_s
from watchdog.core.plan import Moment, PlanEntry, StopNote
from watchdog.core.policy import Policy
from watchdog.core.rules import MODE, REASON, Switches
from watchdog.kube.text_file import as_utf8
from watchdog.node.cgroup import parse_cgroup
from watchdog.node.process import pidfd_supported, raise_descriptor_limit
from watchdog.node.process_table import ProcessTable
from watchdog.node.procfs import Procfs
from watchdog.node.scan import Scanner
from watchdog.options import DEFAULT_JOURNAL, Options
from watchdog.report.sentences.node import with_reason_given
from watchdog.report.status import Status
from watchdog.report.text import date_time, inert

if TYPE_CHECKING:
    from watchdog.daemon.sources import Sources


def _stopped(path: Path) -> Problem:
    undo = "run `gpu-watchdog resume`" if path == stop_file(DEFAULT_JOURNAL) else "remove it"
    return Problem(f"the file {path} turns enforcement off", f"if that is no longer needed, {undo}")


def _annotated(node: str) -> Problem:
    return Problem(
        f"the node's annotation {MODE} turns enforcement off",
        f"if that is no longer needed, remove it with `kubectl annotate node {node} {MODE}- {REASON}-`",
    )


def _maintained(node: str, why: str = "") -> Problem:
    return Problem(
        why or "the GPUs are under maintenance",
        "enforcement resumes when it is over; if it does not end, find out what set the label or annotation, which "
        f"`kubectl get node {node} -o yaml --show-managed-fields` shows",
    )


_CAP_KILL = 5  # linux/capability.h
_LONGEST_PATH: Final = 4096  # PATH_MAX, linux/limits.h
POLICY_FILE: Final = "policy_file"
STOP_FILE: Final = "stop_file"
NODE_ANNOTATION: Final = "node_annotation"
LONGEST_REASON: Final = 1000  # characters
_MOST_READ: Final = 4096  # bytes
# What comes within moments of a start, as a rule: the lock, the journal, the policy file as settled, the Node object.
_AWAITED: Final = frozenset({"lock", "journal", "node_unknown", POLICY_FILE})
_START_S: Final = 10.0
_PROBLEMS: Final = {
    "pid_namespace": Problem(
        "the watchdog does not run in the host's PID namespace",
        "set hostPID: true, or [safety] foreign_pid_namespace = true if this is intended",
    ),
    "procfs": Problem(
        "the proc file system (--procfs) belongs to another PID namespace than the daemon's, so its PIDs refer to "
        "other processes",
        "mount the /proc of the daemon's own PID namespace",
    ),
    "pidfd": Problem(
        "the pidfd system calls are missing",
        "use a newer kernel or a seccomp profile that allows them, or [safety] signal_without_pidfd = true",
    ),
    "lock": Problem(
        "the lock next to the journal is not held",
        "stop the other watchdog on this node that has it (the log has its PID), or check the disk if it has not "
        "answered yet",
    ),
    "journal": Problem(
        "the journal can't be opened, and no action is taken without a record", "see the log for the cause"
    ),
    STOP_FILE: Problem(
        "the file `stop` next to the journal turns enforcement off (/var/lib/gpu-watchdog/stop, unless --journal names "
        "another place)",
        "if that is no longer needed, run `gpu-watchdog resume`",
    ),
    NODE_ANNOTATION: _annotated("NAME"),
    POLICY_FILE: Problem(
        "the policy file is new or has changed, and is loaded once it is valid, has stayed the same for "
        f"{SETTLING_S:.0f} s and no process has it open for writing",
        "if that takes long, look for policy_refused in the log, end what writes it, or send SIGHUP to load it as "
        "it is",
    ),
    MAINTENANCE: _maintained("NAME"),
    "node_unknown": Problem(
        "the Node object was never read, or could not be watched for longer than stale_after, so an annotation on it "
        "might turn enforcement off",
        "see the gap `node` for the cause",
    ),
}


def _text(problem: Problem) -> str:
    return f"{problem.cause}: {problem.remedy}"


REMEDIES: Final = {reason: _text(problem) for reason, problem in _PROBLEMS.items()}


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
    """Whether the daemon enforces now."""

    enforcing: bool
    # The reasons why it does not although the policy says so.
    suspended: tuple[str, ...]
    # What is known of the switches among them.
    stops: tuple[StopNote, ...] = ()

    @property
    def waits_for_policy(self) -> bool:
        """Whether a policy file that has changed and not settled is the only reason not to enforce."""
        return self.suspended == (POLICY_FILE,)

    def suspended_by(self, reason: str) -> "Enforcement":
        """The state with one more reason to suspend; a policy that only observes has nothing to suspend."""
        if not (self.enforcing or self.suspended):
            return self
        return replace(self, enforcing=False, suspended=(*self.suspended, reason))

    def with_policy_unsettled(self) -> "Enforcement":
        """The state while the policy file has not settled."""
        return self.suspended_by(POLICY_FILE)


def enforcement_by(
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
        self._stop_file = StopFile(stop_file(journal))
        self._environment = environment
        self._policy_file = policy_file
        self._sources = sources
        self._warn = warn
        self.switches = Switches()
        self.under_maintenance = False
        self.policy_unsettled = False
        self._permitted = Enforcement(enforcing=False, suspended=())
        self._first: Now | None = None
        self._has_decided = False

    @property
    def enforcement(self) -> Enforcement:
        """Whether the daemon enforces now; not while the GPUs are `under_maintenance`, which is the last reason."""
        return self._permitted.suspended_by(MAINTENANCE) if self.under_maintenance else self._permitted

    def is_starting(self, now: Now) -> bool:
        """Whether the daemon has just started and is about to enforce, unless what it waits for does not come."""
        is_waiting = bool(self.enforcement.suspended) and _AWAITED.issuperset(self.enforcement.suspended)
        is_new = self._first is not None and elapsed_s(self._first, now) < _START_S
        return is_new and is_waiting and not self._has_decided

    @property
    def decides(self) -> bool:
        """Whether plans are acted on, now or once the policy file has settled.

        Maintenance withholds what is due, as a brake does: nothing starts over because of it.
        """
        return self._permitted.enforcing or self.policy_unsettled

    def update(self, policy: Policy, now: Now, *, has_lock: bool, has_journal: bool) -> bool:
        """Check everything again; return whether enforcement starts at this moment."""
        switches = self._sources.switches(now, policy.stale_after_s)
        if switches.ignored is not None and switches.ignored != self.switches.ignored:
            self._warn(ignored_mode(switches.ignored))
        self._policy_file.check(now)
        decided, self.switches = self.decides, switches
        enforcement = enforcement_by(
            policy, self._environment, self._journal, switches, has_lock=has_lock, has_journal=has_journal
        )
        enforcement = replace(enforcement, stops=tuple(self._stops(enforcement.suspended)))
        self._permitted = enforcement.with_policy_unsettled() if self._policy_file.holds else enforcement
        self.policy_unsettled = self._permitted.waits_for_policy and self._policy_file.has_settled
        self._first, self._has_decided = self._first or now, self._has_decided or self.decides
        return self.decides and not decided

    def _stops(self, suspended: tuple[str, ...]) -> Iterator[StopNote]:
        if STOP_FILE in suspended:
            yield self._stop_file.read_note()
        if NODE_ANNOTATION in suspended:
            yield annotation_note(self.switches)

    def objection(self, entry: PlanEntry, policy: Policy, now: Now, moment: Moment) -> str | None:
        """Why an action must not go on at this moment; None if there is no reason.

        While the policy file has not settled, no action begins, but a grace period continues. So does that of a kill
        that has begun although its pod is deleted meanwhile.
        """
        if not self.decides:
            return "enforcement was turned off meanwhile"
        if self.policy_unsettled and (moment is Moment.FIRST_SIGNAL or not entry.do.ends_processes):
            return "the policy file has changed and may still be being written"
        return self._sources.objection(entry, policy, now, moment)


def problems(journal: Path, node: str) -> dict[str, Problem]:
    """Each reason of suspension with its remedy, naming the stop file next to this journal and the node."""
    return {
        **_PROBLEMS,
        STOP_FILE: _stopped(stop_file(journal)),
        NODE_ANNOTATION: _annotated(node),
        MAINTENANCE: _maintained(node),
    }


def remedies(journal: Path, node: str) -> dict[str, str]:
    """Each reason of suspension with a text: cause and remedy."""
    return {reason: _text(problem) for reason, problem in problems(journal, node).items()}


def remedy_on(reason: str, status: Status) -> str | None:
    """Cause and remedy on the node of a status, with the reason given; None for a reason of a newer version."""
    code, _, detail = reason.partition(": ")
    path, node = status.health.stop_file if status.health is not None else None, inert(status.node)
    problem = _PROBLEMS.get(code)
    if code == STOP_FILE and path:
        problem = _stopped(Path(inert(path, _LONGEST_PATH)))
    if code == NODE_ANNOTATION and node:
        problem = _annotated(node)
    if code == MAINTENANCE:
        problem = _maintained(node or "NAME", inert(detail, _LONGEST_PATH))
    return with_reason_given(_text(problem), code, status.stops, status.node) if problem is not None else None


def ignored_mode(value: str) -> str:
    """The warning that the node's annotation has an invalid value."""
    return f"the node's annotation {MODE} is ignored: it is {value[:100]!r}, and `observe` is the only valid value"


def stop_file(journal: Path) -> Path:
    """The file that turns enforcement off while it exists."""
    return journal.parent / "stop"


_SIGNED: Final = re.compile(r"by (\S+?)(?:: (.*))?", re.DOTALL)  # as `gpu-watchdog stop` writes it


class StopFile:
    """Reads who created the stop file and why: again only once the file has changed, since a disk can stall."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: tuple[object, StopNote] = (None, StopNote(switch=STOP_FILE))

    def read_note(self) -> StopNote:
        """What is known of the file; what a person has written into it counts as the reason."""
        try:
            found = self._path.lstat()
        except OSError:
            return StopNote(switch=STOP_FILE)
        version = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if version != self._known[0]:
            text, at = read_stop_file(self._path), date_time(found.st_mtime)
            signed = _SIGNED.fullmatch(text)
            by, why = (signed[1], signed[2] or "") if signed else (f"the file's owner, UID {found.st_uid},", text)
            self._known = version, StopNote(switch=STOP_FILE, why=_one_line(why), by=f"{inert(by, 64)} at {at}")
        return self._known[1]


def read_stop_file(path: Path) -> str:
    """The text of a stop file, as one line; empty if it has none, can't be read or is no regular file."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                content = as_utf8(os.read(descriptor, _MOST_READ), is_cut=True)
                return " ".join(content.decode("utf-8", errors="replace").split())
        finally:
            os.close(descriptor)
    return ""


def annotation_note(switches: Switches) -> StopNote:
    """What is known of the node's annotation that turns enforcement off."""
    return StopNote(switch=NODE_ANNOTATION, why=_one_line(switches.why))


def _one_line(text: str) -> str:
    """A reason that someone wrote, as status and log show it; an annotation may have 256 KiB."""
    return inert(" ".join(text[:_MOST_READ].split()), LONGEST_REASON)


def exists(path: Path) -> bool:
    """Whether a path exists, even as a dangling link; true if that can't be determined."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
