"""What the code does not say of its own messages: by the template, as docs/messages.md has it.

A test finds what stands here and is no message any more.
"""

from collections.abc import Mapping
from typing import Final

_WRITER: Final = "look at what writes the file"
_DRIVER: Final = "it is not believed; if it stays, report it with the driver's version"
_ASKED: Final = "`--url` names another address, `--journal FILE` asks the journal alone"
_PAST: Final = "the past in the journal is damaged there, as the message around it says"
_NOTHING: Final = "nothing to do"

# What a message means or what to do, where it does not say so itself.
REMARKS: Final[Mapping[str, str]] = {
    # Gaps.
    "it is no regular file": _WRITER,
    "it is larger than <number> MiB": _WRITER,
    "a node in it can't be read: <cause>": _WRITER,
    "it must hold «the node <name>|one node», and holds: «<value>|none»": _WRITER,
    "it is not what `kubectl get -o json` prints: <cause>": _WRITER,
    "it is no list of kind <kind>List: its kind is «<kind>|missing»": _WRITER,
    "NVML gave an empty UUID": _DRIVER,
    "the answer is not UTF-8 text": _DRIVER,
    "NVML gave a null handle": _DRIVER,
    "NVML claims <count> entries in a buffer for <capacity>": _DRIVER,
    "it has the PID <pid>, which cannot be": _DRIVER,
    "it names MIG instances, and the card is not in MIG mode": _DRIVER,
    "it has <amount> bytes for PID <pid>, more than the <total> of <uuid>": _DRIVER,
    "the driver has another version than the NVML library that this process has loaded": (
        "the daemon ends by itself after some tries, to be started anew with the new library"
    ),
    "NVML answered before and failed <refused> times in a row: its devices may have been taken away": (
        "the daemon ends by itself, to be started anew; if that does not help, create the pod anew"
    ),
    # What came of a kill.
    "its processes had ended": f"{_NOTHING}: they ended by themselves before the first signal",
    "<cause>; nobody was signalled": "give the daemon CAP_KILL; `gpu-watchdog doctor` says whether it has it",
    "no right to signal process <pid>; it takes CAP_KILL": "run it as root with CAP_KILL: deploy/daemonset.yaml does",
    "enforcement was withdrawn in the grace period": (
        "as meant, by the file `stop`, a new policy or a lost lock: no SIGKILL was sent"
    ),
    "use fell to the mark after SIGTERM": f"{_NOTHING}: what is left is within the mark, and lives",
    "its use was at or below the mark again": f"{_NOTHING}: the second look found less, and nobody was signalled",
    "its card had room again": f"{_NOTHING}: the second look found room, and nobody was signalled",
    "no API": "evicting takes the Kubernetes API, which this version does not ask: use `kill` in the policy",
    "the driver still lists its memory after release_timeout": (
        "see whether the processes have ended (`ps`), and look for NVRM in the kernel log"
    ),
    "it still forked after 10 rounds of SIGKILL": (
        "delete the pod, and bound the processes of pods (podPidsLimit of the kubelet)"
    ),
    "<left> processes did not end after SIGKILL; the driver may hold them": (
        "in state D (`ps`) no signal ends them: look for NVRM in the kernel log, drain and reboot the node"
    ),
    "it is not sure that all its processes have ended: see the gaps": (
        "a gap of that time names what could not be read; the account is looked at again with every pass"
    ),
    "the watchdog was stopped in the grace period": f"{_NOTHING}: no SIGKILL was sent, and the ladder begins anew",
    "the watchdog ended in the middle of it": f"{_NOTHING}: the daemon was killed or crashed; the ladder begins anew",
    "the watchdog had ended before its memory was seen free": f"{_NOTHING}: `gpu-watchdog scan` shows what is used now",
    # The log.
    "NVML has not answered for <silent> s": "[a driver that hangs](operations.md#a-driver-that-hangs)",
    "NVML does not answer": "the gap `nvml_unavailable` says why; `gpu-watchdog doctor` looks for the cause",
    "<failures> passes in a row have failed": "the errors before it in the log have the cause; report them",
    "ending, to be started anew: <why>": "the kubelet or the service manager does that; report it if it does not help",
    "the lock is not held": "another line says who holds it",
    "there is no journal": "the log says why it can't be opened",
    "<dropped> records before this one were lost while the journal could not be written.": (
        "[journal and lock](operations.md#journal-and-lock); deeds are never among them"
    ),
    # explain.
    "what answers at <address> is no gpu-watchdog: its answer is no JSON": _ASKED,
    "what answers at <address> is no gpu-watchdog: its answer is no status of one": _ASKED,
    "what answers at <where> is no gpu-watchdog of this kind: <cause>": "is it of another version?",
    "the daemon does not answer at <address>: its answer is too long or takes too long": _ASKED,
    "the daemon does not answer at <address>: its answer breaks off": _ASKED,
    "the daemon does not answer at <address>: status <code><value>": _ASKED,
    "the daemon does not answer at <address>: «nothing came within 5.0s|<cause>»": _ASKED,
    "<url> is not an address: <cause>": "write it like `http://127.0.0.1:9837`",
    # The journal, and what is read from it.
    "journal <path> is damaged (<cause>)": "the daemon moves it aside and begins a new one",
    "journal <path> is damaged (<said>)": "the daemon moves it aside and begins a new one",
    "journal <path> is damaged (it begins with zeros)": "a power cut leaves it so: the daemon moves it aside",
    "process <number> was never introduced": _PAST,
    "an amount without a number": _PAST,
    "journal <path> is empty: no daemon has written to it yet": "name the journal of a daemon with `--journal`",
}

# Parts of other messages, which are written out there.
FRAGMENTS: Final = frozenset(
    {
        *("the pod", "the top of the file", "built-in policy", "owned by", "namespace labels", "node labels"),
        *("true", "false", "a list", "a table", "a date or time", "a huge number", "the number <value>"),
        *("the text <value>", "true or false", "a whole number", "a number of seconds", "a list of texts"),
        *(
            "a time as RFC 3339 writes it",
            "GPU at index <index>",
            "choose another with `--listen`",
            "the key of a label",
        ),
        *("choose another place with `--journal`", "put it on a local file system with `--journal`"),
        *(
            "the name of a resource",
            "it is tried again with every pass",
            "empty for none",
            "`*` and `?` may stand in it",
            "all containers",
        ),
        "<pod>« container <container>»« on <gpu>»",
        "Mon-Fri 08:00-18:00 Europe/Berlin",
        "`{container}` stands for the container's name",
    }
)

# Errors that the code catches itself, or that stand for a mistake in it: then they are reported whole.
CAUGHT: Final = frozenset(
    {
        *(
            "process <pid> has ended",
            "process <pid> has ended or is another one",
            "<pid> is no PID",
            "<pid> is no process",
        ),
        "process <pid> is never signalled: it is a process group, init or the watchdog itself",
        "process <pid> is never signalled: with an MPS server all its clients die",
        *("no process status: <raw>", "<root>/<pid>/task: no such process", "<root>/<path>: no such process"),
        *("the driver is being closed", "a reading is under way since <number> s"),
        "a curve needs points whose seconds rise and whose amounts are 0 or more",
        "<root>/<pid>/cgroup: no such process",
    }
)

# What needs no remedy: it says what holds, or what to write follows from it.
SELF_EVIDENT: Final = frozenset(
    {
        "<above> falls below <lower> of an earlier step",
        '<cause>; a mark is "110%" of allowed, "+512Mi" above allowed, or "20Gi"',
        "<text> ends when it begins; a whole day is 00:00-24:00",
        "<text> is more than <max amount>",
        "<text> is negative; an amount is 0 or more",
        "can't be read: <reason>",
        "is larger than <number> MiB: that is no policy",
        "is not a regular file",
        "not TOML: <what>",
        "not TOML: <what> (column <column>)",
        "there is no such file",
        "{container} may stand only in the key of an annotation or a label",
    }
)
