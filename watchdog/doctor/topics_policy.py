"""What can be found of the policy, in words."""

from typing import Final

from watchdog.doctor.finding import Topic, missing, ok, warning

POLICY: Final = Topic(
    name="policy",
    means="There is a policy, and no mistake in it. Without one `run` does not start.",
    cases={
        "valid": ok("{path} is a valid policy"),
        "mistake": missing("mistake: {problem}", "mend the file; `gpu-watchdog check {path}` lists every mistake"),
        "more": missing("more mistakes in {path}: {count}", "`gpu-watchdog check {path}` lists every mistake"),
        "absent": missing(
            "there is no policy {path}", "name one with --policy; config/policy.toml of the project is a beginning"
        ),
    },
)
MODE: Final = Topic(
    name="mode",
    means="What the policy asks for. To observe is fine: it measures, decides and records, and acts on nobody.",
    cases={
        "observe": ok("the policy observes: nobody is acted on"),
        "enforce": ok("the policy enforces"),
    },
)
WARNINGS: Final = Topic(
    name="policy_warnings",
    means="The policy says nothing that is hardly meant.",
    cases={
        "none": ok("the policy gives no warning"),
        "warning": warning("odd: {warning}", "change the policy if it is not meant"),
    },
)
RUNNING: Final = Topic(
    name="policy_running",
    means="The daemon that answers on `--listen` goes by this very policy.",
    cases={
        "same": ok("the daemon on {listen} goes by this policy"),
        "kept": warning(
            "a daemon runs here ({listen}) and goes on with the last good policy, not with {path}",
            "mend {path}: the daemon reads it again when it changes",
        ),
        "another": warning(
            "the daemon on {listen} goes by another policy than {path}",
            "see that --policy names the file that the daemon reads; otherwise look for policy_refused in its log",
        ),
    },
)
MPS: Final = Topic(
    name="mps",
    means="Where pods share an MPS server, ending one client can break the work of the others.",
    cases={
        "none": ok("the driver lists no client of an MPS server"),
        "observed": ok("clients of MPS servers: {count}; the policy only observes"),
        "withheld": warning(
            "clients of MPS servers: {count}. The policy enforces, and kills and evictions are withheld that would end "
            "a client of a server outside its own pod",
            "docs/sharing.md says which these are; where all clients of a server belong to one owner, [safety] "
            "signal_mps_clients = true",
        ),
        "accepted": warning(
            "clients of MPS servers: {count}. The policy enforces, and signal_mps_clients lets it end clients although "
            "the other clients of their server can fail with them",
            "take signal_mps_clients away, unless all clients of a server belong to one owner",
        ),
    },
)
TOPICS: Final = (POLICY, RUNNING, MODE, WARNINGS, MPS)
