"""The optional rules for HAMi's dashboards, on what the real collector exposes."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.monitoring.rules.promtool import ROOT, hold, promtool, rules
from tests.monitoring.rules.world import World
from tests.report.build import claiming, policy, trainer
from tests.worlds import Gi, at, container, gpu, pod, process, snapshot, use
from watchdog.core.utilization import CardUtilization, Holder, Utilization

pytestmark = pytest.mark.slow

HAMI: Final = ROOT / "deploy" / "prometheus" / "hami.yaml"
# What HAMi's own dashboard reads, and what 21833 of grafana.com reads of HAMi: file and version are named in the rules.
READ_BY_OWN: Final = {
    "hami_gpu_memory_limit_bytes", "hami_gpu_memory_allocated_bytes", "hami_gpu_core_allocated_ratio",
    "hami_gpu_shared_count", "hami_node_gpu_memory_allocated_ratio", "hami_host_gpu_memory_used_bytes",
    "hami_host_gpu_utilization_ratio", "hami_vgpu_memory_used_bytes", "hami_vgpu_memory_limit_bytes",
    "hami_container_device_utilization_ratio",
}  # fmt: skip
READ_BY_21833: Final = {
    "nodeGPUOverview", "vGPUCorePercentage", "vGPUMemoryPercentage", "vGPU_device_memory_usage_in_bytes",
    "vGPU_device_memory_limit_in_bytes", "Device_memory_desc_of_container", "Device_utilization_desc_of_container",
    "HostGPUMemoryUsage", "HostCoreUtilization",
}  # fmt: skip
MISSING: Final = {"hami_gpu_core_allocated_ratio", "vGPUCorePercentage"}
LIMIT: Final = 8 * Gi * 102 // 100 + 2 * 512 * 2**20  # of 8Gi, with the allowance for two contexts


def hami_world() -> World:
    """A pod that declares 8Gi on two cards and uses 3 and 1, and one of two containers that uses 2 of one of them.

    The cards have 40Gi, of which 6 and 1 are in use. A third one is idle.
    """
    world = World("east")
    both = pod("u2", container("left", "4Gi", of="u2"), container("right", of="u2"), namespace="b")
    daemon = world.daemon(pods=(trainer(), both))
    uses = [use(101, 3 * Gi), use(102, Gi, 1), use(201, Gi), use(202, Gi)]
    where = {101: "u1/main", 102: "u1/main", 201: "u2/left", 202: "u2/right"}
    cards = (gpu(0, 40 * Gi, used=6 * Gi), gpu(1, 40 * Gi, used=Gi), gpu(2, 40 * Gi))
    seen = snapshot(uses, [process(pid, place) for pid, place in where.items()], cards)
    busy = Utilization(
        cards={"GPU-0": CardUtilization(gpu="GPU-0", ratio=0.75)}, by_holder={Holder("u1", "main", "GPU-0"): 0.5}
    )
    for moment in world.until(2):
        daemon.see(replace(seen, at=at(moment)), utilization=busy)
    return world


def _of_card(number: int, **labels: str) -> dict[str, str]:
    return {"node": "n1", "gpu": f"GPU-{number}", "zone": "vGPU", **labels}


def what_hami_would_say() -> World:
    """Cards and containers with the labels of HAMi's exporters; its dashboard's own joins find their partners."""
    world = hami_world()
    card = [_of_card(n, device_uuid=f"GPU-{n}", device_index=str(n), device_type="NVIDIA-Stub") for n in range(3)]
    main, other = {"namespace": "a", "pod": "trainer", "container": "main"}, {"namespace": "b", "pod": "pod-u2"}
    on = [_of_card(n, device_uuid=f"GPU-{n}", vdevice_index=str(n)) for n in (0, 1)]
    first, second = {**on[0], **main}, {**on[1], **main}
    left, right = ({**on[0], **other, "container": name} for name in ("left", "right"))
    world.gives("hami_gpu_memory_limit_bytes", *((each, 40 * Gi) for each in card))
    # Half of 8Gi on each card, and the 4Gi of the other pod.
    allocated = (8 * Gi, 4 * Gi, 0)
    world.gives("hami_gpu_memory_allocated_bytes", *zip(card, allocated, strict=True))
    shares = (0.2, 0.1, 0)
    world.gives("hami_node_gpu_memory_allocated_ratio", *zip(card, shares, strict=True))
    world.gives("hami_gpu_shared_count", *zip(card, (3, 1, 0), strict=True))
    world.gives("hami_host_gpu_memory_used_bytes", *zip(card, (6 * Gi, Gi, 0), strict=True))
    world.gives("hami_host_gpu_utilization_ratio", (card[0], 75))
    world.gives("hami_container_device_utilization_ratio", (first, 50))
    world.gives("hami_vgpu_memory_used_bytes", (first, 3 * Gi), (second, Gi), (left, Gi), (right, Gi))
    of_both = 4 * Gi * 102 // 100 + 2 * 512 * 2**20
    world.gives("hami_vgpu_memory_limit_bytes", (first, LIMIT), (second, LIMIT), (left, of_both), (right, of_both))
    # The dashboard divides one by the other, and takes what is on cards of a node.
    share = 'count by (cluster) (100 * hami_vgpu_memory_used_bytes{namespace=~".+"} / hami_vgpu_memory_limit_bytes)'
    world.gives(share, ({}, 4))
    host = 'hami_host_gpu_memory_used_bytes and on (device_uuid) hami_gpu_memory_limit_bytes{node=~"n1"}'
    world.gives(f"count by (cluster) ({host})", ({}, 3))
    return world


def what_hami_said_before() -> World:
    """The names and labels from before v2.9."""
    world = hami_world()
    names = {"node_name": "n1", "nodeid": "n1", "devicetype": "NVIDIA-Stub"}
    card = [_of_card(n, deviceuuid=f"GPU-{n}", deviceidx=str(n), **names) for n in range(3)]
    world.gives("GPUDeviceMemoryLimit", *((each, 40 * Gi) for each in card))
    world.gives("GPUDeviceMemoryAllocated", *zip(card, (8 * Gi, 4 * Gi, 0), strict=True))
    world.gives("GPUDeviceSharedNum", *zip(card, (3, 1, 0), strict=True))
    overview = [{**each, "devicememorylimit": "40960"} for each in card]
    world.gives("nodeGPUOverview", *zip(overview, (8 * Gi, 4 * Gi, 0), strict=True))
    world.gives("HostGPUMemoryUsage", *zip(card, (6 * Gi, Gi, 0), strict=True))
    world.gives("HostCoreUtilization", (card[0], 75))
    by_pod = "sum by (cluster, nodename, podnamespace, podname, deviceuuid) (vGPUMemoryPercentage)"
    shares = [("a", "trainer", "GPU-0"), ("a", "trainer", "GPU-1"), ("b", "pod-u2", "GPU-0")]
    keys = ("podnamespace", "podname", "deviceuuid")
    world.gives(by_pod, *(({"nodename": "n1", **dict(zip(keys, each, strict=True))}, 0.1) for each in shares))
    used = "sum by (cluster, node_name, podnamespace, podname, ctrname, vdeviceid, deviceuuid) "
    main = {"node_name": "n1", "podnamespace": "a", "podname": "trainer", "ctrname": "main", "vdeviceid": "1"}
    for name, value in (
        ("vGPU_device_memory_usage_in_bytes", Gi),
        ("vGPU_device_memory_limit_in_bytes", LIMIT),
        ("Device_memory_desc_of_container", Gi),
    ):
        world.gives(f'{used}({name}{{deviceuuid="GPU-1"}})', ({**main, "deviceuuid": "GPU-1"}, value))
    world.gives("sum by (cluster, podname) (Device_utilization_desc_of_container)", ({"podname": "trainer"}, 50))
    return world


def a_claim_and_what_is_declared_beside_it() -> World:
    """The 4Gi of a pod's claim and the 2Gi beside it are allocated once, although they have two accounts."""
    world = World()
    daemon = world.daemon(pods=(claiming(),), under=policy(schemes=("dra",)))
    cards = (gpu(0, 40 * Gi),)
    daemon.sees(1, lambda second: snapshot([use(101, Gi)], [process(101, "a/main")], cards, second))
    world.gives("sum(hami_gpu_memory_allocated_bytes)", ({}, 6 * Gi))
    return world


def no_watchdog() -> World:
    """Without the watchdog's series there is nothing."""
    world = World()
    world.fix("up", 1)
    world.wait(1)
    world.gives('count({__name__=~"hami.+|.+vGPU.+|.+GPU.+|.+_of_container|.+Utilization"})')
    return world


def test_it_gives_what_hami_would_say(tmp_path: Path) -> None:
    """Every world, in one run of promtool."""
    worlds = (
        what_hami_would_say(),
        what_hami_said_before(),
        a_claim_and_what_is_declared_beside_it(),
        no_watchdog(),
    )
    hold(worlds, tmp_path, HAMI)


def test_every_series_that_a_dashboard_reads_is_recorded() -> None:
    """None of those that the dashboards read is left out by mistake, and the file has no mistake in it."""
    recorded = {each["record"] for each in rules(HAMI)}
    assert (READ_BY_OWN | READ_BY_21833) - recorded == MISSING
    text = HAMI.read_text(encoding="utf-8")
    assert all(name in text for name in MISSING)
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", HAMI)
    assert done.returncode == 0, done.stdout + done.stderr
