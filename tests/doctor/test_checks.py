"""Each check as a table: one thing is wrong with a good node, and doctor names it, with its state and its remedy."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.doctor.api_rows import API, GOOD_API, within
from tests.doctor.build import GOOD, READING, gap, read, spoilt
from tests.doctor.container_rows import CONTAINER
from tests.doctor.switch_rows import SWITCHES
from tests.worlds import at, container, gpu, pod, policy, process, rule, use
from watchdog.cli.doctor.facts import Facts
from watchdog.cli.doctor.finding import FindingState, Purpose
from watchdog.cli.doctor.report import TOPICS, diagnose
from watchdog.config.load import PolicyProblem
from watchdog.core.assessment import Attribution, Reason, Unattributed
from watchdog.core.errors import Problem
from watchdog.core.model import CONTRADICTORY, GapReason, MigParent, Node, PodList
from watchdog.core.policy import Declaration, Match, Safety
from watchdog.node.devices import Library
from watchdog.node.driver import DriverReading, released_reading
from watchdog.node.nvml_calls import NvmlCallError

Row = tuple[str, Facts]
WSL = "the kernel is 5.15.167.4-microsoft-standard-WSL2"
NO_LIBRARY = "libnvidia-ml.so.1: cannot open shared object file: No such file or directory"
DOWN = gpu(0, up=False, listed=False)
LOST = gap(GapReason.GPU_LOST, "GPU-0")
BLIND = DriverReading(driver=None, gaps=(gap(GapReason.NVML_UNAVAILABLE, "NVML", on=None),), blind=True)
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
BY_NODE = policy(rule(match=Match(node_labels={"pool": "gpu"})))
BY_SPACE = policy(rule(match=Match(namespace_labels={"team": "ml"})))
BY_SHARES = policy(declarations=(SHARED,))
LABELLED = Node(name="n1", labels={"sharing": "time-slicing"})
FOREIGN = replace(GOOD.processes.environment, in_host_pid_namespace=False)
NO_PIDFD = replace(
    GOOD.processes.environment, pidfd_missing=Problem("pidfd_open: not permitted", "use another seccomp profile")
)


STARTING: Final = pod("a", replace(container(), ids=frozenset()))
SHA256: Final = GOOD.policy.policy.sha256 if GOOD.policy.policy is not None else ""


def _library(**changes: object) -> Facts:
    return spoilt("driver", library=Library(**changes))  # type: ignore[arg-type]


def _failed(code: int) -> Facts:
    failure = NvmlCallError("nvmlInit_v2", code)
    return spoilt("driver", library=Library(path="/lib/x.so", failure=failure), reading=BLIND)


def _policed(facts: Facts, **changes: object) -> Facts:
    return replace(facts, policy=replace(facts.policy, **changes))  # type: ignore[arg-type]


SHARED_BY_MPS: Final = read(uses=(use(7, 1, mps=True), use(8, 1)))


def _mistakes(count: int) -> Facts:
    problems = tuple(PolicyProblem(source="policy.toml", path=f"rule[{n}]", what="is odd") for n in range(count))
    return spoilt("policy", policy=None, problems=problems)


def _pods(**changes: object) -> Facts:
    return spoilt("cluster", pods=replace(GOOD.cluster.pods, **changes))  # type: ignore[arg-type]


def _under(under: object, **changes: object) -> Facts:
    return _policed(spoilt("cluster", **changes), policy=under)


def _listening(facts: Facts) -> Facts:
    return replace(facts, listen=replace(facts.listen, state="ours", policy_sha256=SHA256))


DRIVER: Final[Mapping[str, tuple[Row, ...]]] = {
    "nvml_library": (
        ("found", GOOD),
        ("absent", _library(problem=NO_LIBRARY)),
        ("elsewhere", _library(problem=NO_LIBRARY, elsewhere=("/usr/local/nvidia/lib64",))),
        ("broken", _library(problem="libnvidia-ml.so.1: wrong ELF class: ELFCLASS32")),
        ("broken", _library(problem="libc.so.7: cannot open shared object file: No such file or directory")),
    ),
    "nvml_driver": (
        ("answers", GOOD),
        ("answers", read(driver=None)),
        ("hangs", spoilt("driver", library=None, reading=BLIND)),
        ("maintenance", spoilt("driver", library=None, reading=released_reading("why"), maintenance="why")),
        ("fails", _failed(9)),
        ("fails", spoilt("driver", reading=BLIND)),
    ),
    "nvml_version": (("fits", GOOD), ("differs", _failed(18))),
    "gpus": (("found", GOOD), ("none", read(gpus=(), uses=()))),
    "gpu_up": (
        ("up", GOOD),
        ("all", read(gpus=(DOWN,), gaps=(LOST,))),
        ("one", read(gpus=(DOWN, gpu(1)), gaps=(LOST,))),
        ("unseen", read(gaps=(gap(GapReason.GPU_ERROR, "GPU at index 2", on=None),), unseen={"GPU at index 2"})),
        ("unnamed", read(gaps=(gap(GapReason.GPU_ERROR, "GPU-0 name"),))),
    ),
    "mig": (
        ("read", read(gpus=(gpu(0, parent="GPU-9"),), parents=(MigParent(uuid="GPU-9", index=0, name="A100"),))),
        ("empty", read(parents=(MigParent(uuid="GPU-9", index=0, name="A100"),))),
        ("fails", read(gaps=(gap(GapReason.MIG),))),
        (
            "no_device",
            spoilt("driver", reading=replace(READING, gaps=(gap(GapReason.MIG),)), has_capability_devices=False),
        ),
    ),
    "process_lists": (("answer", GOOD), ("fails", read(gaps=(gap(GapReason.PROCESSES),)))),
    "process_entries": (
        ("usual", GOOD),
        ("larger", spoilt("driver", library=replace(GOOD.driver.library or Library(), entry=32))),
        ("contradict", read(gaps=(gap(GapReason.CONTRADICTION),))),
    ),
    "process_numbers": (
        ("given", GOOD),
        ("idle", read(uses=())),
        ("some", read(uses=(use(7, None), use(8, 1)))),
        ("none", read(uses=(use(7, None),))),
    ),
    "virtual_gpu": (
        ("whole", GOOD),
        ("vgpu", spoilt("driver", vgpus=("GPU-0",), reading=replace(READING, uses=()))),
        ("vgpu", spoilt("driver", vgpus=("GPU-0",), reading=replace(READING, uses=(use(7, None),)))),
        ("vgpu_tells", spoilt("driver", vgpus=("GPU-0",))),
        ("windows", spoilt("driver", windows=WSL, reading=replace(READING, uses=(use(7, None),)))),
        ("windows", spoilt("driver", windows=WSL, reading=replace(READING, uses=()))),
        ("windows_tells", spoilt("driver", windows="there is a /dev/dxg")),
    ),
    "gpu_memory": (
        ("counted", GOOD),
        ("unified", read(gpus=(replace(gpu(0), total=None, used=None),))),
        ("fails", read(gaps=(gap(GapReason.MEMORY, "GPU-0 memory"),))),
    ),
}
SYSTEM: Final[Mapping[str, tuple[Row, ...]]] = {
    "python": (("new", GOOD), ("old", spoilt("system", python=(3, 10)))),
    "sqlite": (("new", GOOD), ("old", spoilt("system", sqlite="3.36.0"))),
    "boot_clock": (("there", GOOD), ("lacking", spoilt("system", has_boot_clock=False))),
    "boot_id": (("there", GOOD), ("lacking", spoilt("system", boot_id=""))),
    "wall_clock": (("sane", GOOD), ("wrong", spoilt("system", wall_s=86_400.0))),
    "time_zones": (("there", GOOD), ("lacking", spoilt("system", has_time_zones=False))),
    "pid_namespace": (
        ("host", GOOD),
        ("foreign", spoilt("processes", environment=FOREIGN)),
        (
            "allowed",
            _policed(
                spoilt("processes", environment=FOREIGN), policy=policy(safety=Safety(foreign_pid_namespace=True))
            ),
        ),
    ),
    "procfs": (("there", GOOD), ("lacking", spoilt("processes", procfs_problem="No such file or directory"))),
    "procfs_own": (
        ("own", GOOD),
        ("foreign", spoilt("processes", environment=replace(GOOD.processes.environment, procfs_is_own=False))),
    ),
    "procfs_open": (
        ("open", GOOD),
        ("hidden", spoilt("processes", init_problem="PID 1 can't be seen")),
        ("gap", spoilt("processes", gaps=(gap(GapReason.PROCFS, "process 7", on=None),))),
    ),
    "cgroups": (
        ("pods", GOOD),
        ("none", spoilt("processes", listed={7: process(7, None)})),
        ("strange", spoilt("processes", listed={7: process(7, place=CONTRADICTORY)})),
        ("gap", spoilt("processes", gaps=(gap(GapReason.CGROUP, "process 7", on=None),))),
    ),
    "pidfd": (
        ("there", GOOD),
        ("lacking", spoilt("processes", environment=NO_PIDFD)),
        (
            "allowed",
            _policed(
                spoilt("processes", environment=NO_PIDFD), policy=policy(safety=Safety(signal_without_pidfd=True))
            ),
        ),
    ),
    "cap_kill": (
        ("there", GOOD),
        ("lacking", spoilt("processes", environment=replace(GOOD.processes.environment, may_signal_others=False))),
        ("namespaced", spoilt("processes", in_first_user_namespace=False)),
    ),
    "descriptors": (("enough", GOOD), ("few", spoilt("system", descriptors=256))),
}
POLICY: Final[Mapping[str, tuple[Row, ...]]] = {
    "policy": (
        ("valid", GOOD),
        ("mistake", _mistakes(1)),
        ("more", _mistakes(7)),
        ("absent", spoilt("policy", policy=None, is_there=False)),
    ),
    "policy_running": (
        ("same", spoilt("listen", state="ours", policy_sha256=SHA256)),
        ("another", spoilt("listen", state="ours", policy_sha256="f00")),
        ("kept", _listening(_mistakes(1))),
        ("kept", _listening(spoilt("policy", policy=None, is_there=False))),
    ),
    "mode": (("enforce", GOOD), ("observe", spoilt("policy", policy=policy(mode="observe")))),
    "policy_warnings": (
        ("none", GOOD),
        ("warning", spoilt("policy", policy=policy(warnings=("rule[0]: has no match",)))),
    ),
    "mps": (
        ("none", GOOD),
        ("observed", _policed(SHARED_BY_MPS, policy=policy(mode="observe"))),
        ("withheld", SHARED_BY_MPS),
        ("accepted", _policed(SHARED_BY_MPS, policy=policy(safety=Safety(signal_mps_clients=True)))),
    ),
    "pods": (
        ("read", GOOD),
        ("none_named", spoilt("cluster", pods_path=None)),
        ("unreadable", _pods(synced=None, gaps=(PODS_GAP,))),
        ("empty", _pods(pods=())),
    ),
    "pods_fresh": (
        ("fresh", GOOD),
        ("old", spoilt("cluster", age_s=3600.0)),
        ("future", spoilt("cluster", age_s=-3600.0)),
    ),
    "pods_node": (("here", GOOD), ("elsewhere", _pods(gaps=(STRANGER,)))),
    "pods_readable": (("all", GOOD), ("some", _pods(gaps=(ODD_POD,)))),
    "pods_containers": (
        ("known", GOOD),
        ("none", _pods(pods=(STARTING,))),
    ),
    "pods_known": (
        ("all", GOOD),
        ("some", spoilt("processes", attribution=Attribution(unattributed=(UNKNOWN,)))),
    ),
    "node_object": (
        ("unneeded", GOOD),
        ("read", spoilt("cluster", node_path=Path("n.json"))),
        ("rules", _under(BY_NODE)),
        ("declarations", _under(BY_SHARES)),
        ("unreadable", _under(BY_NODE, node_path=Path("n.json"), node_gaps=(NODE_GAP,))),
        ("unneeded_unreadable", spoilt("cluster", node_path=Path("n.json"), node_gaps=(NODE_GAP,))),
        ("label", _under(BY_SHARES, node_path=Path("n.json"), node=LABELLED)),
    ),
    "namespaces": (
        ("unneeded", GOOD),
        ("read", spoilt("cluster", namespaces_path=Path("ns.json"), namespaces={"ns": {}})),
        ("rules", _under(BY_SPACE)),
        ("some", _under(BY_SPACE, namespaces={"ns": {}}, namespace_gaps=(SPACES_GAP,))),
        ("unreadable", _under(BY_SPACE, namespaces_path=Path("ns.json"), namespace_gaps=(SPACES_GAP,))),
        ("unneeded_unreadable", spoilt("cluster", namespaces_path=Path("ns.json"), namespace_gaps=(SPACES_GAP,))),
    ),
}
JOURNAL: Final[Mapping[str, tuple[Row, ...]]] = {
    "journal_folder": (
        ("writable", GOOD),
        ("to_make", spoilt("journal", folder_exists=False)),
        ("closed", spoilt("journal", folder_problem="Read-only file system")),
        ("blocked", spoilt("journal", folder_exists=False, folder_problem="/var is read-only")),
        ("virtual", spoilt("journal", folder_exists=False, file_system="proc")),
    ),
    "journal_disk": (
        ("local", GOOD),
        ("unknown", spoilt("journal", file_system="")),
        ("remote", spoilt("journal", file_system="nfs4")),
        ("remote", spoilt("journal", file_system="fuse.sshfs")),
        ("volatile", spoilt("journal", file_system="overlay")),
        ("of_pod", spoilt("journal", is_empty_dir=True)),
    ),
    "journal_space": (
        ("enough", GOOD),
        ("enough", spoilt("journal", free=100 * 2**20, size=200 * 2**20)),
        ("little", spoilt("journal", free=100 * 2**20)),
        ("full", spoilt("journal", free=2**20, size=2**40)),
    ),
    "journal_file": (
        ("journal", GOOD),
        *(
            (kind, spoilt("journal", kind=kind, detail="why"))
            for kind in ("absent", "empty", "unknown", "damaged", "newer", "foreign", "folder", "unreadable")
        ),
    ),
    "journal_lock": (
        ("free", GOOD),
        ("held", spoilt("journal", lock="held", holder=77)),
        ("unreadable", spoilt("journal", lock="unreadable", detail="Permission denied")),
    ),
    "stop_file": (
        ("absent", GOOD),
        ("present", spoilt("journal", is_stopped=True)),
        ("unseen", spoilt("journal", is_stopped=True, stop_problem="Permission denied")),
    ),
    "listen": (
        ("free", GOOD),
        ("ours", spoilt("listen", state="ours")),
        ("ours_sick", spoilt("listen", state="ours_sick", problem="the last cycle completed 5m ago")),
        ("taken", spoilt("listen", state="taken", problem="can't listen on X: in use: choose another")),
        ("unusable", spoilt("listen", state="unusable", problem="can't listen on X: no such address: choose another")),
    ),
}
TABLES: Final = (DRIVER, SYSTEM, CONTAINER, POLICY, JOURNAL, API, SWITCHES)
ROWS: Final = [(name, case, facts) for table in TABLES for name, rows in table.items() for case, facts in rows]


@pytest.mark.parametrize(("name", "case", "facts"), [pytest.param(*row, id=f"{row[0]}-{row[1]}") for row in ROWS])
def test_what_is_wrong_is_named(name: str, case: str, facts: Facts) -> None:
    """One thing differs from a good node: its finding is there, and it has a remedy where it is not ok."""
    found = {finding.case: finding for finding in diagnose(facts).findings if finding.name == name}
    assert case in found
    finding = found[case]
    assert finding.what
    assert "{" not in finding.what + finding.remedy
    assert bool(finding.remedy) == (finding.state is not FindingState.OK)


def test_the_tables_have_every_case() -> None:
    """Whatever doctor can say is said by a row above; and no topic has a name twice."""
    every = {(topic.name, case) for topic in TOPICS for case in topic.cases}
    assert every == {(name, case) for name, case, _ in ROWS}
    assert len({topic.name for topic in TOPICS}) == len(TOPICS)


@pytest.mark.parametrize("facts", [pytest.param(GOOD, id="files"), pytest.param(GOOD_API, id="api")])
def test_a_good_node_has_nothing_to_mend(facts: Facts) -> None:
    """Where all is well every finding is ok, and both is possible."""
    diagnosis = diagnose(facts)
    assert [finding for finding in diagnosis.findings if finding.state is not FindingState.OK] == []
    assert (diagnosis.observe, diagnosis.enforce, diagnosis.suffices) == (True, True, True)


@pytest.mark.parametrize(
    ("facts", "observe", "enforce"),
    [
        pytest.param(spoilt("journal", is_stopped=True), True, False, id="stop"),
        pytest.param(spoilt("processes", environment=NO_PIDFD), True, False, id="pidfd"),
        pytest.param(spoilt("cluster", pods_path=None), False, False, id="pods"),
        pytest.param(read(gpus=(DOWN, gpu(1)), gaps=(LOST,)), True, True, id="one GPU lost"),
        pytest.param(read(gpus=(DOWN,), gaps=(LOST,)), False, False, id="all GPUs lost"),
        pytest.param(spoilt("cluster", age_s=1e6), True, True, id="old pods"),
        pytest.param(_pods(pods=(STARTING,)), True, False, id="no status"),
        pytest.param(within(GOOD_API, pods=PodList(pods=(STARTING,), synced=at(0))), True, True, id="none started"),
        pytest.param(_under(BY_SPACE), True, False, id="namespaces"),
        pytest.param(_under(BY_NODE), True, False, id="node"),
        pytest.param(_mistakes(1), False, False, id="policy"),
    ],
)
def test_what_follows_for_each_purpose(facts: Facts, *, observe: bool, enforce: bool) -> None:
    """Whoever can't observe can't enforce; what only enforcing needs leaves observing; warnings stop nothing."""
    diagnosis = diagnose(facts)
    assert (diagnosis.observe, diagnosis.enforce) == (observe, enforce)
    assert diagnosis.suffices == enforce
    if facts.policy.policy is not None:
        observing = _policed(facts, policy=replace(facts.policy.policy, mode="observe"))
        assert diagnose(observing).suffices == observe


def test_processes_of_the_host_are_no_fault() -> None:
    """Beside pods' processes one of the host is told as what it is, and not as one that lacks a pod."""
    facts = spoilt("processes", listed={7: process(7), 8: process(8, None)})
    (found,) = [each for each in diagnose(facts).findings if each.name == "cgroups"]
    assert found.what == "GPU processes: 1 in the cgroup of a pod, 1 of the host itself"


def test_an_old_pod_list_is_no_brake() -> None:
    """Whoever reads that a list is older than stale_after must not think that it suspends enforcement."""
    (found,) = [each for each in diagnose(spoilt("cluster", age_s=3600.0)).findings if each.name == "pods_fresh"]
    assert "an unchanged file counts as current, so the daemon keeps enforcing by it" in found.what


def test_nothing_is_said_of_what_can_not_be_seen() -> None:
    """Without a library there is no word of GPUs, and without a pod list none of its age: one cause, one finding."""
    names = {finding.name for finding in diagnose(_library(problem=NO_LIBRARY)).findings}
    assert names.isdisjoint(DRIVER.keys() - {"nvml_library"})
    names = {finding.name for finding in diagnose(spoilt("cluster", pods_path=None)).findings}
    assert names.isdisjoint({"pods_fresh", "pods_node", "pods_containers", "pods_readable", "pods_known"})


def test_what_is_lost_names_the_gpu() -> None:
    """Of several findings of one name each says which GPU it is about."""
    gaps = (LOST, gap(GapReason.GPU_LOST, "GPU-1", on="GPU-1"))
    facts = read(gpus=(DOWN, replace(DOWN, uuid="GPU-1"), gpu(2)), gaps=gaps)
    whats = [finding.what for finding in diagnose(facts).findings if finding.name == "gpu_up"]
    assert sorted(what.partition(" ")[0] for what in whats) == ["GPU-0", "GPU-1"]


def test_shares_by_a_label_that_the_node_need_not_have() -> None:
    """A declaration that is for other nodes says nothing about this one's labels."""
    facts = _under(BY_SHARES, node_path=Path("n.json"), node=Node(name="n1"))
    assert [each.case for each in diagnose(facts).findings if each.name == "node_object"] == ["read"]


def test_whatever_observing_needs_enforcing_needs_too() -> None:
    """No topic is for observing alone, so that "can enforce" never stands beside "can't observe"."""
    assert all(Purpose.ENFORCE in topic.purposes for topic in TOPICS)
