"""Whether the daemon may enforce, now and during a grace period, and what is known of the switches against it."""

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from watchdog.config.watch import PolicyFile
from watchdog.core.errors import Problem
from watchdog.core.model import MAINTENANCE, Now, Place, PlaceKind, elapsed_s
from watchdog.core.plan import Moment, PlanEntry, StopNote
from watchdog.core.policy import Policy
from watchdog.core.rules import MODE, Switches
from watchdog.kube.text_file import as_utf8
from watchdog.node.cgroup import parse_cgroup
from watchdog.node.process import pidfd_supported, raise_descriptor_limit
from watchdog.node.process_table import ProcessTable
from watchdog.node.procfs import Procfs
from watchdog.node.scan import Scanner
from watchdog.options import Options, stop_file
from watchdog.report.sentences.suspension import NODE_ANNOTATION, POLICY_FILE, STOP_FILE
from watchdog.report.text import date_time, inert

if TYPE_CHECKING:
    from watchdog.daemon.sources import Sources


_CAP_KILL = 5  # linux/capability.h
LONGEST_REASON: Final = 1000  # characters
_MOST_READ: Final = 4096  # bytes
# What comes within moments of a start, as a rule: the lock, the journal, the policy file as settled, the Node object.
_AWAITED: Final = frozenset({"lock", "journal", "node_unknown", POLICY_FILE})
_START_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where the daemon runs and what the kernel permits it, determined once at startup."""

    in_host_pid_namespace: bool
    # Why there are no pidfds; None: there are.
    pidfd_missing: Problem | None
    # Where the daemon itself runs; None if unknown.
    own: Place | None = None
    # Whether it has CAP_KILL, for processes of other users.
    may_signal_others: bool = True
    # Whether /proc shows the PIDs of the daemon's own namespace.
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


def ignored_mode(value: str) -> str:
    """The warning that the node's annotation has an invalid value."""
    return f"the node's annotation {MODE} is ignored: it is {value[:100]!r}, and `observe` is the only valid value"


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
