"""The facts of a good node, to be spoilt in one place."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.worlds import at, container, gpu, pod, policy, process, use
from watchdog.cli.doctor.facts import (
    ClusterFacts,
    DriverFacts,
    Facts,
    JournalFacts,
    ListenFacts,
    PolicyFacts,
    ProcessFacts,
    SystemFacts,
)
from watchdog.core.assessment import Attribution
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Node, PodList
from watchdog.daemon.enforcement import Environment
from watchdog.node.drivers.devices import Library
from watchdog.node.drivers.protocol import DriverReading
from watchdog.options import Options
from watchdog.report.status import AccountStatus, Moment, PolicyStatus, Status

READING = DriverReading(driver="550.54.15", interface="NVML", gpus=(gpu(),), uses=(use(7, 2**30),))
GOOD = Facts(
    options=Options(node="n1", policy=Path("policy.toml"), pods=Path("pods.json")),
    driver=DriverFacts(
        library=Library(path="/usr/lib/libnvidia-ml.so.550", version="12.550", entry=24), reading=READING, searched=""
    ),
    system=SystemFacts(
        python=(3, 11),
        sqlite="3.40.1",
        wall_s=at(0).wall_s,
        has_boot_clock=True,
        boot_id="4e68b583",
        descriptors=20_000,
        has_time_zones=True,
    ),
    processes=ProcessFacts(
        procfs_problem="",
        init_problem="",
        environment=Environment(in_host_pid_namespace=True, pidfd_missing=None),
        in_first_user_namespace=True,
        listed={7: process(7)},
        attribution=Attribution(),
    ),
    policy=PolicyFacts(is_there=True, policy=policy()),
    cluster=ClusterFacts(
        pods=PodList(pods=(pod("a", container(declared="1Gi")),), synced=at(0)), age_s=5.0, node=Node(name="n1")
    ),
    journal=JournalFacts(folder_exists=True, file_system="ext4", free=2**40, size=0, kind="journal"),
    listen=ListenFacts(state="free"),
)


def spoilt(part: str, **changes: Any) -> Facts:
    """The good node with some facts of one part changed."""
    return replace(GOOD, **{part: replace(getattr(GOOD, part), **changes)})


def environment(**changes: Any) -> Facts:
    """The good node with another environment of its processes."""
    return spoilt("processes", environment=replace(GOOD.processes.environment, **changes))


def given(facts: Facts, **options: Any) -> Facts:
    """The same with other options."""
    return replace(facts, options=replace(facts.options, **options))


def read(**changes: Any) -> Facts:
    """The good node with another reading of its driver."""
    return spoilt("driver", reading=replace(READING, **changes))


def gap(reason: GapReason, what: str = "GPU-0 x", why: str = "it failed; fix it", on: str | None = "GPU-0") -> Gap:
    """A gap in what the driver, a process or a file reports."""
    return Gap(reason=reason, what=what, problem=Problem(*why.split("; ", 1)), gpu=on)


def running(sha256: str, *accounts: AccountStatus) -> Status:
    """The status of a daemon with this policy."""
    return Status(node="n1", at=Moment(0), policy=PolicyStatus(sha256=sha256), accounts=accounts, plan=())
