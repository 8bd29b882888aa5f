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
_WITHDRAWN: Final = "nothing to do: nothing was signalled, and the action is withdrawn"
_MAINTENANCE: Final = "as meant, until it is over: [maintenance](operations.md#maintenance-of-a-nodes-gpus)"
_EVICTION: Final = "[one does not come about](evictions.md#one-does-not-come-about)"

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
    "its leader has ended, and whether one of its <threads> threads lives is not known yet; the next pass looks at "
    "more of them": _NOTHING,
    # What came of a kill.
    "<number> to process <pid> was denied: <cause>": "a security module such as AppArmor denies it: `doctor`",
    "the GPUs came under maintenance": _MAINTENANCE,
    "the pod list had become too old": f"{_WITHDRAWN}; [when the API is away](kubernetes.md#when-it-is-away)",
    "enforcement was turned off by then": _WITHDRAWN,
    "the policy file had changed, and had not settled": _WITHDRAWN,
    "by then it would have broken the work of other pods: a process had become an MPS client": _WITHDRAWN,
    "its processes had ended": f"{_NOTHING}: they ended by themselves before the first signal",
    "<cause>; nobody was signalled": "give the daemon CAP_KILL; `gpu-watchdog doctor` says whether it has it",
    "no right to signal process <pid>; it takes CAP_KILL": "run it as root with CAP_KILL: the chart and Kustomize do",
    "enforcement was turned off meanwhile": (
        "as meant, by the file `stop`, a new policy or a lost lock: no SIGKILL was sent"
    ),
    "the GPUs came under maintenance meanwhile": _MAINTENANCE,
    "the pod had gone from the list of this node's pods by then": f"{_NOTHING}: a pod that is deleted is left alone",
    "its rule no longer allowed enforcement": f"{_NOTHING}: the policy, the pod or the hour changed",
    "usage was back within the threshold after SIGTERM, so nothing more was sent": (
        f"{_NOTHING}: a kill of scope `process` stops there, and the process may still run"
    ),
    "its use was at or below the mark again": f"{_NOTHING}: the last look found less, and nothing was signalled",
    "its limit had changed, and it was not above the highest one all the time": (
        f"{_NOTHING}: its time starts over, as at any other reading"
    ),
    "its card had room again": f"{_NOTHING}: the last look found room, and nothing was signalled",
    "no API": "with --pods, or without a way to the API, nobody can be evicted: leave --pods away, or use `kill`",
    # What came of an eviction.
    "it is being deleted already, and an eviction does no more than that": "if it stays so, look at its finalizers "
    "and whether the node's kubelet runs; a `kill` of the same ladder still ends its processes",
    **dict.fromkeys(
        (
            "the pod is gone",
            "the pod is being deleted",
            "the pod is being deleted already",
            "another pod has its name now",
            "the pod has ended: its phase is <phase>",
        ),
        f"{_NOTHING}: it was seen right before, and nobody was evicted",
    ),
    **dict.fromkeys(
        (
            "it is a static pod: the kubelet would go on running it",
            "the rule that is for the pod now has no step that evicts",
            "rule <rule> only observes now",
            "enforcement was withdrawn before it came about",
            "the GPUs came under maintenance before it came about",
            "force was not permitted on it any more while the API server was asked",
        ),
        "as meant, by whoever changed that: nobody was evicted",
    ),
    **dict.fromkeys(
        ("rule <rule> has begun to evict by another step meanwhile", "rule <rule> has begun to kill meanwhile"),
        f"{_NOTHING}: the stronger step takes the place of the eviction",
    ),
    "the API server had accepted it before it was given up: <given up>": (
        f"{_NOTHING}: the pod was evicted, and the other deed hit the same pod"
    ),
    "given up, tried «once|<tries> times» in <took>: <reply>«; whether one of these was carried out is not known»": (
        "[one does not come about](evictions.md#one-does-not-come-about)"
    ),
    "given up: it could not be tried again in time": (
        "the plan of that time has the brake or the gap that kept it from being tried"
    ),
    "the watchdog was stopped before it came about": f"{_NOTHING}: the next one begins the ladder anew",
    "the watchdog was stopped before its memory was seen free": f"{_NOTHING}: the next one waits for that memory",
    "it was not evicted": f"{_NOTHING}: no memory has to be waited for",
    "whether it was evicted is not known": "`kubectl get pod` tells; the watchdog looks again with every pass",
    "the driver still lists its memory after the grace and release_timeout": (
        "see whether the processes have ended (`ps`), and look for NVRM in the kernel log"
    ),
    "<said>; the Eviction API can't tell which one counts: let only one of them select it": _EVICTION,
    "<said>; more healthy pods, or a looser budget, let it through": _EVICTION,
    "<what>: an admission webhook of the cluster refuses it: <message>": "ask whoever runs that webhook",
    **dict.fromkeys(
        (
            "evicting the pod: <cause>",
            "looking at the pod before evicting it: <cause>",
            "looking at the pod before evicting it: «<value>|the answer holds no pod»",
            "looking at the pod before evicting it: it can't be read: <cause>",
        ),
        f"[the way to the API server](kubernetes.md); {_EVICTION}",
    ),
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
    # Maintenance, and the switches of the node's own object.
    "NVML: <why>: its GPUs are under maintenance, and NVML is let go; it is opened again when that is over": (
        _MAINTENANCE
    ),
    "the node's annotation gpu-memory-watchdog/mode is ignored: it is <value>, and can only say observe, never more "
    "force": "`kubectl annotate node NAME gpu-memory-watchdog/mode-`; more force is for the policy to allow",
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
    "the daemon does not answer at <address>: «nothing came within <patience>s|<cause>»": _ASKED,
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
        # What a gap is about, and by what WSL is recognised: the sentence around it has the remedy.
        *("<uuid> memory of processes", "the kernel is <release>", "there is a /dev/dxg"),
        # Parts of a feed's sentence, which ends with the remedy; and what surrounds one that has it.
        *("<noun>: «nothing is known|what is known is kept, and ages»: <problem>", "pods of node <node>"),
        "<sentence> (<number> times since this was last said)",
        "it has the UID <uid> of <first>, which came before it, so it is left out",
        "an event can't be read, and does not say which object it is about",
        "a deletion does not say which object it is about",
        *("<url>: the connection was cut here", "a line is longer than <number> MiB"),
        *("a line is no event of a watch: <cause>", "a bookmark has no resourceVersion"),
        *("the answer is no list: <cause>", "the answer is no <kind>, but «<kind>|nameless»"),
        "the <kind> has no resourceVersion to go on from",
        *("looking at the pod before evicting it", "evicting the pod", "more than one PodDisruptionBudget"),
        *("UID in the precondition", "UID in precondition", "pdb disruptions allowed is negative"),
        "DisruptedPods map too big",
        *("the pod", "the top of the file", "built-in policy", "owned by", "namespace labels", "node labels"),
        *("true", "false", "a list", "a table", "a date or time", "a huge number", "the number <value>"),
        *("the text <value>", "true or false", "a whole number", "a number of seconds", "a list of texts"),
        *(
            "a time as RFC 3339 writes it",
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
        *("no process status: <raw>", "<root>/<pid>/task: no such process", "<root>/<path>: no such process"),
        *("the driver is being closed", "a reading is under way since <number> s"),
        "a curve needs points whose seconds rise and whose amounts are 0 or more",
        "<root>/<pid>/cgroup: no such process",
    }
)

# What needs no remedy: it says what holds, or what to write follows from it.
SELF_EVIDENT: Final = frozenset(
    {
        # For the owner of a pod, who can do no more than ask; the operator has the cause and its remedy in the log.
        "the watchdog may not evict pods in this cluster; its operator has to mend that",
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
        "there is no such file; config/policy.toml of the project is a beginning",
        "{container} may stand only in the key of an annotation or a label",
    }
)
