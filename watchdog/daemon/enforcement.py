"""Whether the daemon may enforce: what it lacks or was told, each reason with its remedy. All of it only lowers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watchdog.core.errors import Problem
from watchdog.core.model import Place
from watchdog.core.policy import Policy
from watchdog.core.rules import MODE, Switches


def _annotated(node: str) -> str:
    return (
        f"the node's annotation {MODE} says so: `kubectl annotate node {node} {MODE}-` takes it away, when you know "
        "who set it and why"
    )


POLICY_FILE: Final = "policy_file"
REMEDIES: Final = {
    "pid_namespace": "it does not run in the host's PID namespace: set hostPID: true, "
    "or [safety] foreign_pid_namespace = true if this is meant",
    "procfs": "the proc file system (--procfs) is of another PID namespace than the daemon's own, "
    "so a PID read there is another process here: mount the /proc of the daemon's own PID namespace",
    "pidfd": "the pidfd calls are missing: use a newer kernel or a seccomp profile that allows them, "
    "or [safety] signal_without_pidfd = true",
    "policy_section": "the policy has a section that has no effect in this version, [pulse] or [mps], and nothing is "
    "enforced by a policy that is followed in part only: remove the section",
    "lock": "another watchdog on this node holds the lock beside the journal: stop one of them (the log has its PID)",
    "journal": "the journal can't be opened, and nothing is done that is not written down first: the log has the cause",
    "stop_file": "the file `stop` beside the journal says so (/var/lib/gpu-watchdog/stop, unless --journal names "
    "another place): `gpu-watchdog resume` removes it, when you know who put it there and why",
    "node_annotation": _annotated("NAME"),
    POLICY_FILE: "the policy file is new or has changed, and is loaded once it has stayed the same for 3 s and no "
    "process has it open for writing; if that takes long, end what writes it, or send SIGHUP to load it as it is",
    "node_unknown": "the node's own object was asked for and is not known, or can't be followed for longer than "
    "stale_after, and its annotation may say not to enforce: the gap `node` has the cause",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Footing:
    """What the daemon stands on, found out once at start: its own place and what the kernel lets it do."""

    in_host_pid_namespace: bool
    pidfd_missing: Problem | None
    own: Place | None = None
    may_signal_others: bool = True
    procfs_is_own: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforcement:
    """Whether force may be used now. `suspended` are the reasons why not, although the policy says enforce."""

    enforcing: bool
    suspended: tuple[str, ...]

    @property
    def waits_for_policy(self) -> bool:
        """Whether it would enforce if the policy file had not changed, or had settled already."""
        return self.suspended == (POLICY_FILE,)

    def held(self) -> "Enforcement":
        """The same while the policy file is waited for; where the policy only observes, that suspends nothing."""
        if not (self.enforcing or self.suspended):
            return self
        return Enforcement(enforcing=False, suspended=(*self.suspended, POLICY_FILE))


def judge(
    policy: Policy, footing: Footing, journal: Path, switches: Switches, *, has_lock: bool, has_journal: bool
) -> Enforcement:
    """Judge by the policy, the footing, what lies beside the journal, and what the node's own object says."""
    if policy.mode != "enforce":
        return Enforcement(enforcing=False, suspended=())
    suspended = [
        *(["pid_namespace"] if _is_foreign(policy, footing) else []),
        *([] if footing.procfs_is_own else ["procfs"]),
        *(["policy_section"] if policy.without_effect else []),
        *(["pidfd"] if footing.pidfd_missing and not policy.safety.signal_without_pidfd else []),
        *([] if has_lock else ["lock"]),
        # Without the lock the journal is not even opened: the lock is what is missing.
        *([] if has_journal or not has_lock else ["journal"]),
        *(["stop_file"] if _is_there(stop_file(journal)) else []),
        *(["node_annotation"] if switches.observes else []),
        *(["node_unknown"] if switches.unseen else []),
    ]
    return Enforcement(enforcing=not suspended, suspended=tuple(suspended))


def remedies(journal: Path, node: str) -> dict[str, str]:
    """The remedies for a daemon of this node with this journal: the stop file has a place then, the node a name."""
    remedy = "`gpu-watchdog resume` removes it, when you know who put it there and why"
    stop = f"the file {stop_file(journal)} says so: {remedy}"
    return {**REMEDIES, "stop_file": stop, "node_annotation": _annotated(node)}


def remedy_on(reason: str, node: str) -> str | None:
    """The remedy for a reason on a node of which only the name is known; None for a reason of a later daemon."""
    return _annotated(node) if reason == "node_annotation" and node else REMEDIES.get(reason)


def ignored_mode(value: str) -> str:
    """Say that the node's annotation has a value which means nothing."""
    return f"the node's annotation {MODE} is ignored: it is {value[:100]!r}, and can only say observe, never more force"


def stop_file(journal: Path) -> Path:
    """The file that turns enforcement off while it exists."""
    return journal.parent / "stop"


def _is_there(path: Path) -> bool:
    """Whether there is something of this name, a dangling link too; where that can't be seen, it counts as there."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _is_foreign(policy: Policy, footing: Footing) -> bool:
    return not footing.in_host_pid_namespace and not policy.safety.foreign_pid_namespace
