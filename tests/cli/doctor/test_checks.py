"""Each check as a table: one fault on a good node, and the finding that names it with its remedy."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from msgspec import structs

from tests.cli.doctor.build import GOOD, READING, environment, gap, given, read, running, spoilt
from tests.cli.doctor.rows import (
    API,
    BY_NODE,
    BY_SPACE,
    CONTAINER,
    GOOD_API,
    NOT_STARTED,
    UNKNOWN_NODE,
    probed,
    under,
    within,
)
from tests.worlds import (
    MEMORY,
    NODE,
    T0,
    assessed,
    at,
    container,
    container_id,
    gpu,
    parse_policy,
    pod,
    policy,
    process,
    snapshot,
    use,
)
from tools.doctor_reference import Case, cases
from watchdog.cli.doctor import CHECKS, diagnose
from watchdog.cli.doctor.facts import Facts
from watchdog.cli.doctor.finding import Finding, FindingState, Purpose
from watchdog.config.load import PolicyProblem
from watchdog.core.assessment import Attribution, Reason, Unattributed
from watchdog.core.attribute import attribute
from watchdog.core.errors import Problem
from watchdog.core.model import CONTRADICTORY, Gap, GapReason, MigParent, Node, Place, PlaceKind, PodList
from watchdog.core.policy import Declaration, Draining, Policy, Safety
from watchdog.core.rules import MODE, REASON
from watchdog.kube.kinds import Piece
from watchdog.node.drivers.devices import Library
from watchdog.node.drivers.nvml_calls import NvmlCallError
from watchdog.node.drivers.protocol import DriverReading, released_reading
from watchdog.node.mps_control import InvalidAnswerError, MpsInspection
from watchdog.node.mps_pipes import SilentError, UntrustedPipeError
from watchdog.report.status import AccountStatus, Moment, PinnedTotalStatus

Row = tuple[str, Facts]
WSL = "the kernel is 5.15.167.4-microsoft-standard-WSL2"
NO_LIBRARY = "libnvidia-ml.so.1: cannot open shared object file: No such file or directory"
DOWN = gpu(0, up=False, listed=False)
LOST = gap(GapReason.GPU_LOST, "GPU-0")
BLIND = DriverReading(
    driver=None, interface="NVML", gaps=(gap(GapReason.DRIVER_UNAVAILABLE, "NVML", on=None),), blind=True
)
OUTSIDER = replace(process(7), place=Place(kind=PlaceKind.HOST, outside=container_id("a/main")))
SANDBOXED = attribute(snapshot([use(7, 1)], [process(7, "a/new", gvisor=True)]), GOOD.cluster.pods.pods)
UNKNOWN = Unattributed(pid=7, gpu="GPU-0", used=1, reason=Reason.UNKNOWN_POD)
PODS_GAP = gap(GapReason.PODS, "pod file pods.json", "No such file; no pods are known; write it", on=None)
ODD_POD = gap(GapReason.PODS, "pod ns/odd", "it can't be read: Expected `str`", on=None)
STRANGER = gap(GapReason.PODS, "pod file pods.json", "none of its 3 pods is on n1; give --node NAME", on=None)
NODE_GAP = gap(GapReason.NODE, "node file n.json", "No such file; what was read is kept; write it", on=None)
SPACES_GAP = gap(GapReason.NODE, "namespaces file ns.json", "No such file; kept; write it", on=None)
SHARED = Declaration(
    resource="nvidia.com/gpu.shared",
    unit="share",
    shares="label:nvidia.com/gpu.replicas",
    node_labels={"sharing": "time-*"},
)
BY_SHARES = policy(declarations=(SHARED,))
LABELLED = Node(name="n1", labels={"sharing": "time-slicing"})
FOREIGN = environment(in_host_pid_namespace=False)
NO_PIDFD = environment(pidfd_missing=Problem("pidfd_open: not permitted", "use another seccomp profile"))

STARTING: Final = pod("a", NOT_STARTED)
SHA256: Final = GOOD.policy.policy.sha256 if GOOD.policy.policy is not None else ""


def _library(**changes: object) -> Facts:
    return spoilt("driver", library=Library(**changes))  # type: ignore[arg-type]


def _failed(code: int) -> Facts:
    failure = NvmlCallError("nvmlInit_v2", code)
    return spoilt("driver", library=Library(path="/lib/x.so", failure=failure), reading=BLIND)


SHARED_BY_MPS: Final = read(uses=(use(7, 1, mps=True), use(8, 1)))

CLAIM_GAP: Final = Gap(
    reason=GapReason.CLAIMS, what="claims of ns/a", problem=Problem("it could not be read: 403", "apply the rights")
)
NO_PROGRAM: Final = Problem("no program", "install it")


def _inspected(facts: Facts = GOOD, **changes: object) -> Facts:
    return replace(facts, mps=MpsInspection(**changes))  # type: ignore[arg-type]


def _limited(**changes: object) -> Facts:
    pinned = PinnedTotalStatus(**changes)  # type: ignore[arg-type]
    account = AccountStatus(namespace="ns", pod="a", container="main", declared=3 * 2**29, pinned=pinned)
    return spoilt("listen", state="ours", status=running(SHA256, AccountStatus(), account))


def _node(**changes: object) -> Facts:
    return spoilt("cluster", node=Node(name="n1", **changes))  # type: ignore[arg-type]


def _mistakes(count: int) -> Facts:
    problems = tuple(PolicyProblem(source="policy.toml", path=f"rule[{n}]", what="is odd") for n in range(count))
    return spoilt("policy", policy=None, problems=problems)


def _pods(**changes: object) -> Facts:
    return spoilt("cluster", pods=replace(GOOD.cluster.pods, **changes))  # type: ignore[arg-type]


def _under(the_policy: Policy, **changes: object) -> Facts:
    return under(spoilt("cluster", **changes), the_policy)


def _maintained(since_s: float) -> Facts:
    """The driver is released, as the daemon that answers says too, with since when."""
    status = structs.replace(running(SHA256), maintenance="why", maintenance_since=Moment(since_s))
    released = spoilt("driver", library=None, reading=released_reading("why", "NVML"), maintenance="why")
    return replace(released, listen=replace(released.listen, state="ours", status=status))


def _listening(facts: Facts) -> Facts:
    return replace(facts, listen=replace(facts.listen, state="ours", status=running(SHA256)))


DRIVER: Final[Mapping[str, tuple[Row, ...]]] = {
    "nvml_library": (
        ("was not found: neither", _library(problem=NO_LIBRARY)),
        ("(LD_LIBRARY_PATH: not set), but in", _library(problem=NO_LIBRARY, elsewhere=("/usr/local/nvidia/lib64",))),
        ("libnvidia-ml.so.1 can't be loaded", _library(problem="libnvidia-ml.so.1: wrong ELF class: ELFCLASS32")),
        ("can't be loaded", _library(problem="libc.so.7: cannot open shared object file: No such file or directory")),
    ),
    "nvml_driver": (
        ("responds", read(driver=None)),
        ("a driver call hangs", spoilt("driver", library=None, reading=BLIND)),
        (
            "why: its GPUs are under",
            spoilt("driver", library=None, reading=released_reading("why", "NVML"), maintenance="why"),
        ),
        ("why, since 08:00:00 UTC: its GPUs are under", _maintained(T0)),
        ("the driver is not responding", _failed(9)),
        ("the driver is not responding", spoilt("driver", reading=BLIND)),
    ),
    "nvml_version": (("library and driver do not match", _failed(18)),),
    "gpus": (("the driver lists no GPU", read(gpus=(), uses=())),),
    "gpu_up": (
        ("is not responding, nor is any other", read(gpus=(DOWN,), gaps=(LOST,))),
        ("is not responding: it failed", read(gpus=(DOWN, gpu(1)), gaps=(LOST,))),
        ("it is unknown", read(gaps=(gap(GapReason.GPU_ERROR, "GPU at index 2", on=None),), unseen={"GPU at index 2"})),
        ("can't be identified", read(gaps=(gap(GapReason.GPU_ERROR, "GPU-0 name"),))),
    ),
    "mig": (
        ("in MIG mode", read(gpus=(gpu(0, parent="GPU-9"),), parents=(MigParent(uuid="GPU-9", index=0, name="A100"),))),
        ("no MIG instance is visible", read(parents=(MigParent(uuid="GPU-9", index=0, name="A100"),))),
        ("GPU-0 x can't be read: it failed", read(gaps=(gap(GapReason.MIG),))),
        (
            "/dev/nvidia-caps has no device",
            spoilt("driver", reading=replace(READING, gaps=(gap(GapReason.MIG),)), has_capability_devices=False),
        ),
    ),
    "process_lists": (("can't be read", read(gaps=(gap(GapReason.PROCESSES),))),),
    "process_entries": (
        ("32 bytes: a driver of about", spoilt("driver", library=replace(GOOD.driver.library or Library(), entry=32))),
        ("are inconsistent", read(gaps=(gap(GapReason.CONTRADICTION),))),
    ),
    "process_numbers": (
        ("no process uses a GPU", read(uses=())),
        ("processes; their accounts are unknown", read(uses=(use(7, None), use(8, 1)))),
        ("does not report the memory of any process", read(uses=(use(7, None),))),
    ),
    "virtual_gpu": (
        ("not reported the memory of a process", spoilt("driver", vgpus=("GPU-0",), reading=replace(READING, uses=()))),
        ("not reported the memory", spoilt("driver", vgpus=("GPU-0",), reading=replace(READING, uses=(use(7, None),)))),
        ("is a vGPU, and its driver reports the memory", spoilt("driver", vgpus=("GPU-0",))),
        ("the Windows driver does not", spoilt("driver", windows=WSL, reading=replace(READING, uses=(use(7, None),)))),
        ("the Windows driver does not report", spoilt("driver", windows=WSL, reading=replace(READING, uses=()))),
        ("this looks like WSL", spoilt("driver", windows="there is a /dev/dxg")),
    ),
    "gpu_memory": (
        ("has no memory of its own", read(gpus=(replace(gpu(0), total=None, used=None),))),
        ("can't be read", read(gaps=(gap(GapReason.MEMORY, "GPU-0 memory"),))),
    ),
}
SYSTEM: Final[Mapping[str, tuple[Row, ...]]] = {
    "python": (("is too old", spoilt("system", python=(3, 10))),),
    "sqlite": (("is too old for the journal", spoilt("system", sqlite="3.36.0")),),
    "boot_clock": (("CLOCK_BOOTTIME can't be read", spoilt("system", has_boot_clock=False)),),
    "boot_id": (("boot_id can't be read", spoilt("system", boot_id="")),),
    "wall_clock": (("before this program was written", spoilt("system", wall_s=86_400.0)),),
    "time_zones": (("there is no time zone data", spoilt("system", has_time_zones=False)),),
    "pid_namespace": (
        ("processes outside it are invisible", FOREIGN),
        ("which the policy allows", under(FOREIGN, policy(safety=Safety(foreign_pid_namespace=True)))),
    ),
    "procfs": (
        ("can't be read as a proc file system", spoilt("processes", procfs_problem="No such file or directory")),
    ),
    "procfs_own": (("belongs to another PID namespace", environment(procfs_is_own=False)),),
    "procfs_open": (
        ("hides processes of other users", spoilt("processes", init_problem="PID 1 can't be seen")),
        ("can't be read", spoilt("processes", gaps=(gap(GapReason.PROCFS, "process 7", on=None),))),
    ),
    "cgroups": (
        ("none of the GPU processes (1)", spoilt("processes", listed={7: process(7, None)})),
        ("contradict each other", spoilt("processes", listed={7: process(7, place=CONTRADICTORY)})),
        ("it may belong to any pod", spoilt("processes", gaps=(gap(GapReason.CGROUP, "process 7", on=None),))),
    ),
    "pidfd": (
        ("pidfd_open: not permitted", NO_PIDFD),
        ("allows signalling without them", under(NO_PIDFD, policy(safety=Safety(signal_without_pidfd=True)))),
    ),
    "cap_kill": (
        ("CAP_KILL is missing", environment(may_signal_others=False)),
        ("a separate user namespace", spoilt("processes", in_first_user_namespace=False)),
    ),
    "descriptors": (("is only 256", spoilt("system", descriptors=256)),),
}
POLICY: Final[Mapping[str, tuple[Row, ...]]] = {
    "policy": (
        ("mistake: ", _mistakes(1)),
        ("more mistakes in policy.toml: 2", _mistakes(7)),
        ("there is no policy at", spoilt("policy", policy=None, is_there=False)),
    ),
    "policy_running": (
        ("uses this policy", spoilt("listen", state="ours", status=running(SHA256))),
        ("uses another policy than", spoilt("listen", state="ours", status=running("f00"))),
        ("keeps using the last valid policy", _listening(_mistakes(1))),
        ("keeps using the last valid policy", _listening(spoilt("policy", policy=None, is_there=False))),
    ),
    "mode": (("the policy only observes:", spoilt("policy", policy=policy(mode="observe"))),),
    "policy_warnings": (
        ("warning: rule[0]: has no match", spoilt("policy", policy=policy(warnings=("rule[0]: has no match",)))),
    ),
    "mps": (
        ("the policy only observes", under(SHARED_BY_MPS, policy(mode="observe"))),
        ("are withheld", SHARED_BY_MPS),
        ("signal_mps_clients lets it", under(SHARED_BY_MPS, policy(safety=Safety(signal_mps_clients=True)))),
        ("drains a client before", under(SHARED_BY_MPS, policy(mps=Draining()))),
    ),
    "mps_program": (
        ("the MPS control program is /usr/bin/c", _inspected(program="/usr/bin/c")),
        ("there is no MPS control program, but", _inspected(no_program=NO_PROGRAM)),
        ("no program: no client can be drained", _inspected(no_program=NO_PROGRAM, daemons={"/p": None})),
        ("no program: no client can be drained", _inspected(SHARED_BY_MPS, no_program=NO_PROGRAM)),
    ),
    "mps_pipe": (
        ("/p can be replaced only by root", _inspected(daemons={"/p": 2})),
        ("/p can be replaced only by root", _inspected(daemons={"/p": SilentError("silent", "wait")})),
        ("there are neither MPS clients nor", _inspected()),
        ("another's: its clients are not drained", _inspected(daemons={"/p": UntrustedPipeError("another's", "own")})),
        ("MPS clients run, but no daemon", _inspected(SHARED_BY_MPS, no_daemon=Problem("no daemon", "mount it"))),
    ),
    "mps_daemon": (
        ("of /p answers; clients: 2", _inspected(daemons={"/p": 2})),
        ("a daemon is silent: it sleeps", _inspected(daemons={"/p": SilentError("it sleeps", "wake it")})),
        ("an answer is invalid: a poem", _inspected(daemons={"/p": InvalidAnswerError("a poem", "see its log")})),
        ("no control daemon names any", _inspected(SHARED_BY_MPS, daemons={"/p": 0})),
    ),
    "mps_limits": (
        ("do not exceed what their pods declare", _limited(clients=1, most=2**30, together=2**30)),
        ("MPS clients may pin at most", _limited(clients=2, most=2**30, together=2 * 2**30, exceeds_declared=True)),
    ),
    "pods": (
        ("there is no source for the pods", given(GOOD, pods=None)),
        ("pod list pods.json: No such file", _pods(synced=None, gaps=(PODS_GAP,))),
        ("contains no pods", _pods(pods=())),
    ),
    "pods_fresh": (
        ("an unchanged file counts as current", spoilt("cluster", age_s=3600.0)),
        ("written in the future", spoilt("cluster", age_s=-3600.0)),
    ),
    "pods_node": (("pods.json: none of its 3 pods is on n1", _pods(gaps=(STRANGER,))),),
    "pods_readable": (("is left out", _pods(gaps=(ODD_POD,))),),
    "pods_containers": (("no action can be taken", _pods(pods=(STARTING,))),),
    "pods_known": (
        ("belong to no pod in the list: 1", spoilt("processes", attribution=Attribution(unattributed=(UNKNOWN,)))),
    ),
    "pods_cgroups": (("1, such as 7 (container main of pod ns/pod-a)", spoilt("processes", listed={7: OUTSIDER})),),
    "pods_gvisor": (("gVisor sandboxes: 1, such as 7", spoilt("processes", attribution=SANDBOXED)),),
    "node_object": (
        ("the labels of node", given(GOOD, node_object=Path("n.json"))),
        ("unknown, and rules match by them", _under(BY_NODE)),
        ("unknown, and declarations need them", _under(BY_SHARES)),
        ("node file n.json: No such file", given(_under(BY_NODE, node_gaps=(NODE_GAP,)), node_object=Path("n.json"))),
        ("maintenance of the GPUs can't", given(spoilt("cluster", node_gaps=(NODE_GAP,)), node_object=Path("n.json"))),
        ("from which the declaration", given(_under(BY_SHARES, node=LABELLED), node_object=Path("n.json"))),
    ),
    "node_annotation": (
        ("turns enforcement off (no reason was given; `kubectl get node n1", _node(annotations={MODE: "observe"})),
        ('(the reason given: "driver upgrade")', _node(annotations={MODE: "observe", REASON: "driver upgrade"})),
        ("which has no effect", _node(annotations={MODE: "enforce"})),
        ("can't be read, so it is assumed to", spoilt("cluster", node=UNKNOWN_NODE, node_gaps=(NODE_GAP,))),
        ("is not watched", _node(known=False)),
    ),
    "claims": (
        ("it is known what the claims of 2 pods were given", spoilt("cluster", claiming=2)),
        ("claims of ns/a: it could not be read", spoilt("cluster", claiming=2, claim_gaps=(CLAIM_GAP,))),
        ("has the UUID of a device", spoilt("cluster", claiming=2, lacks_uuids=True)),
    ),
    "namespaces": (
        ("namespaces with known labels", given(spoilt("cluster", namespaces={"ns": {}}), namespaces=Path("ns.json"))),
        ("the labels of namespaces are unknown", _under(BY_SPACE)),
        ("namespaces file ns.json: No such", _under(BY_SPACE, namespaces={"ns": {}}, namespace_gaps=(SPACES_GAP,))),
        ("namespaces file ns.json:", given(_under(BY_SPACE, namespace_gaps=(SPACES_GAP,)), namespaces=Path("ns.json"))),
        ("does not need", given(spoilt("cluster", namespace_gaps=(SPACES_GAP,)), namespaces=Path("ns.json"))),
    ),
}
JOURNAL: Final[Mapping[str, tuple[Row, ...]]] = {
    "journal_folder": (
        ("does not exist yet and can be created", spoilt("journal", folder_exists=False)),
        ("is not writable", spoilt("journal", folder_problem="Read-only file system")),
        ("not exist and can't be created", spoilt("journal", folder_exists=False, folder_problem="/var is read-only")),
        ("a virtual file system of the kernel (proc)", spoilt("journal", folder_exists=False, file_system="proc")),
    ),
    "journal_disk": (
        ("is on a file system of unknown type", spoilt("journal", file_system="")),
        ("is on a network file system", spoilt("journal", file_system="nfs4")),
        ("is on a network file system", spoilt("journal", file_system="fuse.sshfs")),
        ("in memory or in the container's own layer", spoilt("journal", file_system="overlay")),
        ("is an emptyDir", spoilt("journal", is_empty_dir=True)),
    ),
    "journal_space": (
        ("are free for a journal of at most", spoilt("journal", free=100 * 2**20, size=200 * 2**20)),
        ("are free, but the journal may grow by", spoilt("journal", free=100 * 2**20)),
        ("only 1Mi are free", spoilt("journal", free=2**20, size=2**40)),
    ),
    "journal_file": (
        ("does not exist yet", spoilt("journal", kind="absent")),
        ("is empty; the daemon initialises it", spoilt("journal", kind="empty")),
        ("could not be checked completely: why", spoilt("journal", kind="unknown", detail="why")),
        ("is damaged (why)", spoilt("journal", kind="damaged", detail="why")),
        ("a newer one", spoilt("journal", kind="newer", detail="a newer one")),
        ("is not a journal", spoilt("journal", kind="foreign")),
        ("is a folder", spoilt("journal", kind="folder")),
        ("can't be opened: why", spoilt("journal", kind="unreadable", detail="why")),
    ),
    "journal_lock": (
        ("a daemon is running: process", spoilt("journal", lock="held", holder=77)),
        ("can't be opened", spoilt("journal", lock="unreadable", detail="Permission denied")),
    ),
    "stop_file": (
        ("turns enforcement off (no reason was given)", spoilt("journal", is_stopped=True)),
        ("can't be determined", spoilt("journal", is_stopped=True, stop_problem="Permission denied")),
    ),
    "listen": (
        ("a gpu-watchdog answers on", spoilt("listen", state="ours")),
        ("127.0.0.1:9837 and reports", spoilt("listen", state="ours_sick", problem="the last cycle completed 5m ago")),
        ("X: in use", spoilt("listen", state="taken", problem="can't listen on X: in use: choose another")),
        (
            "can't listen on X: no such address",
            spoilt("listen", state="unusable", problem="can't listen on X: no such address: choose another"),
        ),
    ),
}
GPUMEM: Final = '[[declaration]]\nresource = "nvidia.com/gpumem"\n'
CARDS_GAP: Final = gap(GapReason.NODE, "GPUs of node n1", "label is 2; look for it", on=None)


def _assessed(
    used: int, number: int = 1, key: str = MEMORY, *, unknown: bool = False, lists: str | None = None
) -> Facts:
    """The good node with this many pods that declare 1000 bytes and use more; it `lists` only this resource."""
    owners = [pod(f"p{each}", container(of=f"p{each}", resources={key: "1000"})) for each in range(number)]
    processes = [process(each + 10, f"p{each}/main") for each in range(number)]
    seen = snapshot([use(each.pid, used) for each in processes], processes)
    node = Node(name="n1", labels={"nvidia.com/gpu.count": "9"}) if unknown else NODE
    node = node if lists is None else Node(name="n1", capacity={lists: "1"})
    return spoilt("processes", assessments=assessed(seen, owners, policy(), node))


LIMITS: Final[Mapping[str, tuple[Row, ...]]] = {
    "policy_units": (
        ('"1" is smaller than "1Mi"', under(GOOD, parse_policy(f"{GPUMEM}unit = '1'"))),
    ),
    "node_cards": (
        ("label is 2; limits that depend on it", spoilt("processes", card_gaps=(CARDS_GAP,))),
        ("it offers ten. Another plugin", spoilt("processes", cards_offered="it offers ten")),
    ),
    "node_schemes": (
        (
            "the node offers volcano.sh/vgpu-number, which scheme volcano reads",
            within(GOOD, node=Node(name="n1", capacity={"volcano.sh/vgpu-number": "10", "cpu": "4"})),
        ),
        (
            "a default applies to its pods, and may kill them",
            under(
                within(GOOD, node=Node(name="n1", capacity={"aliyun.com/gpu-mem": "80"})),
                policy(replace(policy().rules[0], default=2**32)),
            ),
        ),
    ),
    "limits_known": (
        ("the limit of pod ns/pod-p0 is unknown: nvidia", _assessed(1, key="nvidia.com/gpu", unknown=True)),
        ("more accounts with an unknown limit: 2", _assessed(1, 7, key="nvidia.com/gpu", unknown=True)),
    ),
    "limits_checked": (
        (f"{MEMORY} of container main, pod ns/pod-p0: the node does not list this resource", _assessed(1, lists="cpu")),
        ("more such declarations: 1", _assessed(1, 6, lists="cpu")),
    ),
    "limits_plausible": (
        ("pod ns/pod-p0: it uses 500Ki, about a thousand times", _assessed(500 * 1024)),
        ("about a million times the 1000 that it declares by", _assessed(600 * 2**20)),
        ("more such accounts: 1", _assessed(600 * 2**20, 6)),
    ),
}  # fmt: skip
TABLES: Final = (DRIVER, SYSTEM, CONTAINER, POLICY, JOURNAL, API, LIMITS)
ROWS: Final = [(name, text, facts) for table in TABLES for name, rows in table.items() for text, facts in rows]

VARIABLE: Final = r"{[A-Z_]+}"
ROW_IDS: Final = [f"{name}-{text}" for name, text, _ in ROWS]


@pytest.mark.parametrize(("name", "text", "facts"), ROWS, ids=ROW_IDS)
def test_what_is_wrong_is_named(name: str, text: str, facts: Facts) -> None:
    """One thing differs from a good node: its finding is there, and it has a remedy where it is not ok."""
    found = [finding for finding in diagnose(facts).findings if finding.name == name and text in finding.what]
    assert found
    for finding in found:
        assert "{" not in finding.what + finding.remedy
        assert bool(finding.remedy) == (finding.state is not FindingState.OK)


def test_the_tables_have_every_case() -> None:
    """Every result that the code of a check has is the result of a good node or of a row above, and the reverse."""
    seen = {_case(finding) for facts in (GOOD, GOOD_API) for finding in diagnose(facts).findings}
    seen |= {_case(finding) for name, _, facts in ROWS for finding in diagnose(facts).findings if finding.name == name}
    assert seen == {(check.name, case) for check in CHECKS for case in cases(check)}
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def _case(finding: Finding) -> tuple[str, Case]:
    """What the code has for a finding: of the cases that fit, the one with the most text of its own."""
    (check,) = [check for check in CHECKS if check.name == finding.name]
    fitting = [case for case in cases(check) if _fits(case, finding)]
    return finding.name, max(fitting, key=lambda case: len(re.sub(VARIABLE, "", case.what + case.remedy)))


def _fits(case: Case, finding: Finding) -> bool:
    patterns = (".*".join(map(re.escape, re.split(VARIABLE, text))) for text in (case.what, case.remedy))
    is_worded_so = all(map(re.fullmatch, patterns, (finding.what, finding.remedy)))
    return is_worded_so and case.state == finding.state.name.lower()


# Checks without a result where there is nothing to check.
SOMETIMES: Final = {
    *("api_certificate", "capacity", "mig", "mps_daemon", "mps_limits", "mps_pipe", "mps_program", "policy_running"),
    *("claims", "rights", "rights_to_enforce"),
}
OF_API: Final = {
    *("api", "api_clock", "api_config", "api_credentials", "node_name", "own_pod", "right_capacity", "right_events"),
    *("right_evict", "right_namespaces", "right_node", "right_pods", "right_slices", "guard_nodes", "guard_evictions"),
}


@pytest.mark.parametrize(
    ("facts", "others"),
    [pytest.param(GOOD, OF_API, id="files"), pytest.param(GOOD_API, {"pods_fresh", "pods_node"}, id="api")],
)
def test_a_good_node_has_no_problem(facts: Facts, others: set[str]) -> None:
    """On a good node every check has a result, each is ok, and both observing and enforcing are possible."""
    diagnosis = diagnose(facts)
    assert {check.name for check in CHECKS} - {finding.name for finding in diagnosis.findings} == SOMETIMES | others
    assert [finding for finding in diagnosis.findings if finding.state is not FindingState.OK] == []
    assert (diagnosis.observe, diagnosis.enforce, diagnosis.suffices) == (True, True, True)


@pytest.mark.parametrize(
    ("facts", "observe", "enforce"),
    [
        pytest.param(spoilt("journal", is_stopped=True), True, False, id="stop"),
        pytest.param(NO_PIDFD, True, False, id="pidfd"),
        pytest.param(given(GOOD, pods=None), False, False, id="pods"),
        pytest.param(read(gpus=(DOWN, gpu(1)), gaps=(LOST,)), True, True, id="one GPU lost"),
        pytest.param(read(gpus=(DOWN,), gaps=(LOST,)), False, False, id="all GPUs lost"),
        pytest.param(spoilt("cluster", age_s=1e6), True, True, id="old pods"),
        pytest.param(_pods(pods=(STARTING,)), True, False, id="no status"),
        pytest.param(within(GOOD_API, pods=PodList(pods=(STARTING,), synced=at(0))), True, True, id="none started"),
        pytest.param(probed(False, Piece.CAPACITY), True, False, id="no admission policy"),
        pytest.param(_under(BY_SPACE), True, False, id="namespaces"),
        pytest.param(_under(BY_NODE), True, False, id="node"),
        pytest.param(_mistakes(1), False, False, id="policy"),
    ],
)
def test_what_blocks_each_purpose(facts: Facts, *, observe: bool, enforce: bool) -> None:
    """What blocks observing blocks enforcing, but not the reverse; warnings block nothing."""
    diagnosis = diagnose(facts)
    assert (diagnosis.observe, diagnosis.enforce) == (observe, enforce)
    assert diagnosis.suffices == enforce
    if facts.policy.policy is not None:
        observing = under(facts, replace(facts.policy.policy, mode="observe"))
        assert diagnose(observing).suffices == observe


def test_processes_of_the_host_are_no_fault() -> None:
    """A process of the host beside those of pods is counted as the host's, not reported as lacking a pod."""
    facts = spoilt("processes", listed={7: process(7), 8: process(8, None)})
    (found,) = [each for each in diagnose(facts).findings if each.name == "cgroups"]
    assert found.what == "GPU processes: 1 in the cgroup of a pod, 1 of the host itself"


def test_what_can_not_be_checked_is_left_out() -> None:
    """Without a library GPUs are not mentioned, and without a pod list its age is not: one cause, one finding."""
    names = {finding.name for finding in diagnose(_library(problem=NO_LIBRARY)).findings}
    assert names.isdisjoint(DRIVER.keys() - {"nvml_library"})
    names = {finding.name for finding in diagnose(given(GOOD, pods=None)).findings}
    assert names.isdisjoint({"pods_fresh", "pods_node", "pods_containers", "pods_readable", "pods_known"})


def test_shares_by_a_label_that_the_node_need_not_have() -> None:
    """A declaration for other nodes does not require a label of this one."""
    facts = given(_under(BY_SHARES, node=Node(name="n1")), node_object=Path("n.json"))
    (found,) = [finding for finding in diagnose(facts).findings if finding.name == "node_object"]
    assert (found.state, found.what) == (FindingState.OK, "the labels of node n1 are known")


def test_enforcing_needs_all_that_observing_needs() -> None:
    """No check is for observing alone, so "can enforce" never appears with "cannot observe"."""
    assert all(Purpose.ENFORCE in check.purposes for check in CHECKS)
