"""What suspends enforcement: each reason with its remedy."""

from pathlib import Path
from typing import Final

from watchdog.core.errors import Problem
from watchdog.core.model import MAINTENANCE
from watchdog.core.policy import SETTLING_S
from watchdog.core.rules import MODE, REASON
from watchdog.options import DEFAULT_JOURNAL, stop_file
from watchdog.report.sentences.node import with_reason_given
from watchdog.report.status import Status
from watchdog.report.text import inert

POLICY_FILE: Final = "policy_file"
STOP_FILE: Final = "stop_file"
NODE_ANNOTATION: Final = "node_annotation"
_LONGEST_PATH: Final = 4096  # PATH_MAX, linux/limits.h


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
