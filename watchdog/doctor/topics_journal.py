"""What can be found of the journal, its lock and the address of the endpoints, in words."""

from typing import Final

from watchdog.doctor.finding import ENFORCING, Topic, missing, ok, warning

FOLDER: Final = Topic(
    name="journal_folder",
    means="The journal's folder can be written, or can be made. (Nothing is acted on that is not written down first.)",
    purposes=ENFORCING,
    cases={
        "writable": ok("{folder} can be written"),
        "to_make": ok("{folder} is not there yet and can be made"),
        "closed": missing(
            "{folder} can't be written: {problem}",
            "run as root, mount it writable, or name another place with --journal",
        ),
        "blocked": missing(
            "{folder} is not there and can't be made: {problem}", "make it, or name another place with --journal"
        ),
        "made_up": missing(
            "{folder} is on a file system that the kernel makes up ({kind}): no file can be made there",
            "name another place with --journal",
        ),
    },
)
DISK: Final = Topic(
    name="journal_disk",
    means="The journal is on a local disk: SQLite's write-ahead log takes shared memory and locks, and every daemon of "
    "the node has to see the lock.",
    purposes=ENFORCING,
    cases={
        "local": ok("{folder} is on a local file system ({kind})"),
        "unknown": ok("{folder} is on a file system of a kind that can't be seen"),
        "remote": missing(
            "{folder} is on a file system of the network ({kind})", "put the journal on a local disk with --journal"
        ),
        "of_pod": missing(
            "{folder} is an emptyDir: it goes with the pod, and a new pod's brakes know of nothing that was done",
            "mount a folder of the host there (hostPath; in the chart journal.type: hostPath, and no other place in "
            "GPU_WATCHDOG_JOURNAL)",
        ),
        "fleeting": warning(
            "{folder} is in memory or in the container's own layer ({kind}): the journal and the lock are gone with it",
            "mount a folder of the host there (hostPath)",
        ),
    },
)
SPACE: Final = Topic(
    name="journal_space",
    means="The disk has room for the journal, up to `[journal] max_size`.",
    purposes=ENFORCING,
    cases={
        "enough": ok("{free} are free for a journal of at most {limit}"),
        "little": warning(
            "{free} are free, and the journal may grow by {growth} (max_size is {limit})",
            "free some space, or lower max_size under [journal]",
        ),
        "full": missing("only {free} are free in {folder}", "free some space: without any nothing can be written down"),
    },
)
FILE: Final = Topic(
    name="journal_file",
    means="What lies at the journal's place is a journal of this version, or nothing.",
    purposes=ENFORCING,
    cases={
        "absent": ok("{path} is not there yet; the daemon begins it"),
        "empty": ok("{path} is empty; the daemon begins it"),
        "journal": ok("{path} is a sound journal"),
        "unknown": warning(
            "{path} could not be looked at whole: {detail}", "the daemon looks at it when it opens it; see its log"
        ),
        "damaged": warning(
            "{path} is damaged ({detail}): the daemon moves it aside and begins a new one, without a past",
            "keep a copy if you need what is in it, and look at the disk (dmesg)",
        ),
        "newer": missing("{detail}", "use the newer version, or name another file with --journal"),
        "foreign": missing("{path} is something else than a journal", "name another file with --journal"),
        "folder": missing("{path} is a folder", "name a file with --journal"),
        "unreadable": missing("{path} can't be opened: {detail}", "run as the user that owns it"),
    },
)
LOCK: Final = Topic(
    name="journal_lock",
    means="The lock beside the journal is free, or a daemon that runs holds it, which is as it should be.",
    purposes=ENFORCING,
    cases={
        "free": ok("no daemon runs with this journal"),
        "held": ok("a daemon runs: process {holder} holds {path}"),
        "unreadable": missing("the lock {path} can't be opened: {detail}", "run as the user that owns it"),
    },
)
STOP: Final = Topic(
    name="stop_file",
    means="No file `stop` beside the journal turns enforcement off.",
    purposes=ENFORCING,
    cases={
        "absent": ok("there is no file {path}"),
        "present": missing(
            "the file {path} turns enforcement off",
            "`gpu-watchdog resume` removes it, when you know who put it there and why",
        ),
        "unseen": missing(
            "whether there is a file {path} can't be seen ({problem}), and so it counts as there",
            "run as the user that owns its folder",
        ),
    },
)
LISTEN: Final = Topic(
    name="listen",
    means="The address of the endpoints can be had, or our own daemon answers there.",
    cases={
        "free": ok("{listen} can be listened on"),
        "ours": ok("a gpu-watchdog answers on {listen}"),
        "ours_sick": warning(
            "a gpu-watchdog answers on {listen}, and says: {problem}",
            "see `curl http://{listen}/readyz`; most likely a call into the driver hangs",
        ),
        "taken": missing("the endpoints: {said}", "{remedy}"),
        "unusable": missing("the endpoints: {said}", "{remedy}"),
    },
)
TOPICS: Final = (FOLDER, DISK, SPACE, FILE, LOCK, STOP, LISTEN)
