"""A daemon that could not be asked: what that does not say, and the commands that reach one of a DaemonSet."""

import shlex
from typing import Final

from watchdog.ask import AskError, NoPassError
from watchdog.export.journal_errors import JournalError, NoJournalError
from watchdog.export.phrases import inert

_NAMESPACE: Final = "kubectl -n gpu-memory-watchdog"
# Where it is installed can't be asked for here: a pod knows its own namespace alone, and a host none.
_OWN: Final = "`-n`: the namespace that it was installed in"
# From here on `/healthz` says that the loop hangs; the liveness probe ends the daemon some time later.
_HANGS: Final = (
    "so nothing is known yet of any pod there, and nobody is killed or evicted: it has begun just now, so ask again in "
    "some seconds; after more than 10s its first call into the driver hangs: look with `nvidia-smi` on the node, and "
    "for NVRM and Xid in its kernel log"
)
_ELSEWHERE: Final = (
    "this does not tell whether a watchdog runs on the node: one of a DaemonSet is reached in its pod alone. "
    f"Find that pod, and ask there ({_OWN}):"
)
_KEPT: Final = (
    "this does not tell whether a watchdog runs on the node: one of a DaemonSet may keep it where only its pod has it. "
    f"Find that pod, and ask there ({_OWN}):"
)
_OTHERWISE: Final = (
    f"or bring its port here: `{_NAMESPACE} port-forward POD 9837`. Outside of Kubernetes `gpu-watchdog run` starts "
    "one; --url and --listen name another address"
)


def inside(*arguments: str, terminal: bool = False) -> str:
    """The command line that runs a command of gpu-watchdog in the watchdog's pod of a node."""
    how = "exec -it" if terminal else "exec"
    return f"{_NAMESPACE} {how} POD -- gpu-watchdog {shlex.join(inert(each) for each in arguments)}"


def to_run_inside(*arguments: str) -> str:
    """The same command line within a sentence, with what stands for the reader's own in it."""
    return f"`{inside(*arguments)}` ({_OWN})"


def help_lines(error: AskError, *arguments: str, terminal: bool = False) -> tuple[str, ...]:
    """What to do about a daemon that could not be asked for a command with these arguments, in lines."""
    if isinstance(error, NoPassError):
        return (_HANGS,)
    return (_ELSEWHERE, *_commands(*arguments, terminal=terminal), _OTHERWISE)


def without_journal(error: JournalError, *arguments: str) -> str:
    """Why a journal can't be read, and where one may be that is not there, for a command with these arguments."""
    lines = (_KEPT, *_commands(*arguments)) if isinstance(error, NoJournalError) else ()
    return "\n  ".join([str(error), *lines])


def _commands(*arguments: str, terminal: bool = False) -> tuple[str, ...]:
    return (f"  {_NAMESPACE} get pods -o wide", f"  {inside(*arguments, terminal=terminal)}")
