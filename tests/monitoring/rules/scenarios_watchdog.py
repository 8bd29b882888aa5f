"""Alerts about the watchdog itself: it is down, not there at all, or has a policy that it can't read."""

from tests.monitoring.rules.promtool import ranges_are_left_open
from tests.monitoring.rules.scenario import EXEC, firing, scenario
from tests.monitoring.rules.world import Daemon, Firing, World
from tests.report.build import trainer_node
from tests.worlds import T0


def _down(answered: str) -> Firing:
    return firing(
        {"node": "n1", "severity": "critical"},
        "The watchdog on node n1 is down",
        f"The watchdog on node n1 answered {answered} of the scrapes of the last 10 minutes: it is not running, is "
        "crash-looping, or can't be reached. GPU memory on that node is neither measured nor limited. Check: kubectl "
        "get pods -A -l app.kubernetes.io/name=gpu-memory-watchdog -o wide --field-selector spec.nodeName=n1",
    )


@scenario("GPUWatchdogDown")
def down(world: World, daemon: Daemon) -> None:
    """It has not answered half of the scrapes of ten minutes, five minutes long; a restart is far from that."""
    daemon.all_is_well(15)
    daemon.restart(17).expect("restart")
    daemon.all_is_well(35).expect("below")
    daemon.is_up = False
    world.wait(45).expect("waits")
    world.wait(45.5).expect("fires", _down("0%"))
    daemon.is_up = True
    daemon.all_is_well(51).expect("resolves")


@scenario("GPUWatchdogDown")
def crash_loop(world: World, daemon: Daemon) -> None:
    """It comes up for a moment each five minutes, which is as good as down."""
    for minute in range(0, 60, 5):
        daemon.is_up = True
        daemon.begin_again()
        daemon.all_is_well(minute + 1)
        daemon.is_up = False
        world.wait(minute + 5)
    # 4 scrapes of 20, or of 21.
    world.expect("restart", _down("20%" if ranges_are_left_open() else "19.05%"))


def _none_at_all(cluster: str) -> Firing:
    where, there = (f" in cluster {cluster}", "of that cluster") if cluster else ("", "")
    return firing(
        {"severity": "critical"},
        f"There is no watchdog{where}",
        f'Prometheus has no target with job="gpu-memory-watchdog"{where}: the DaemonSet is gone or selects no '
        "node, or the scrape configuration does not find its pods. Either GPU memory limits are enforced on no node"
        f"{' ' + there if there else ''}, or enforcement can't be monitored. Check: kubectl get daemonset,pods -A "
        "-l app.kubernetes.io/name=gpu-memory-watchdog -o wide",
    )


@scenario("GPUWatchdogDown")
def none_at_all(world: World, daemon: Daemon) -> None:
    """The last target of a cluster vanishes: there is nothing left that could be down."""
    daemon.all_is_well(10)
    world.remove(daemon)
    world.wait(15).expect("waits")
    world.wait(15.5).expect("fires", _none_at_all(world.cluster))
    world.daemon().all_is_well(16).expect("resolves")


@scenario("GPUWatchdogDown")
def never_any(world: World, daemon: Daemon) -> None:
    """The rules are loaded, and nothing is scraped; where another cluster is, this one can't be known of."""
    world.remove(daemon)
    world.fix("kube_node_labels", 1, node="n1")
    world.wait(4.5).expect("waits")
    world.wait(5)
    if world.cluster:
        world.expect("waits")
    else:
        world.expect("fires", _none_at_all(""))


@scenario("GPUWatchdogDown")
def one_of_two_goes(world: World, daemon: Daemon) -> None:
    """A node that is taken away is not down, and the other still says that there are watchdogs."""
    second = world.daemon("n2")
    for moment in world.until(5):
        daemon.see(trainer_node(4.0, moment))
        second.see(trainer_node(4.0, moment))
    world.remove(daemon)
    second.all_is_well(30).expect("below")


def _missing(node: str) -> Firing:
    return firing(
        {"node": node, "severity": "warning"},
        f"Node {node} has GPUs and no watchdog",
        f"Node {node} has had GPUs for 15 minutes, but Prometheus scrapes no watchdog there: none runs, or "
        "Prometheus does not find it. GPU memory on that node is neither measured nor limited. The DaemonSet selects "
        f"nodes by the label nvidia.com/gpu.present=true. Check: kubectl get node {node} --show-labels",
    )


@scenario("GPUWatchdogMissing")
def missing(world: World, daemon: Daemon) -> None:
    """A node that offers GPUs and has no target; a node without GPUs needs none, and one that is down has one."""
    for node, gpus in (("n1", 8), ("n2", 4), ("n3", 0)):
        offers = {"node": node, "resource": "nvidia_com_gpu", "unit": "integer", "job": "kube-state-metrics"}
        world.fix("kube_node_status_allocatable", gpus, **offers)
    second = world.daemon("n2")
    daemon.all_is_well(5)
    second.is_up = False
    daemon.all_is_well(25).expect("below")
    world.remove(second)
    daemon.restart(26)
    daemon.all_is_well(42.5).expect("waits")
    daemon.all_is_well(43.5).expect("fires", _missing("n2"))
    daemon.restart(45).expect("restart", _missing("n2"))
    world.daemon("n2").all_is_well(45.5).expect("resolves")


@scenario("GPUWatchdogMissing")
def missing_by_label(world: World, daemon: Daemon) -> None:
    """Where kube-state-metrics exports NVIDIA's label, a node counts before its device plugin offers anything."""
    label = {"label_nvidia_com_gpu_present": "true", "job": "kube-state-metrics"}
    world.fix("kube_node_labels", 1, node="n1", **label)
    world.fix("kube_node_labels", 1, node="n2", **label)
    daemon.all_is_well(15).expect("fires", _missing("n2"))


REFUSED = firing(
    {"node": "n1", "severity": "warning"},
    "The policy file on node n1 has errors or is still being written",
    "The policy file on node n1 has errors or is still being written, and is not in effect; the version loaded at "
    "1970-01-01 00:02:00 +0000 UTC stays in effect. A corrected file is loaded without a restart. To see which of the "
    f"two it is, run {EXEC}gpu-watchdog top --once, or look for policy_refused in the daemon's log. If the file has "
    "errors, a daemon that restarts now fails to start. To list all errors: "
    f"{EXEC}gpu-watchdog check /etc/gpu-watchdog/policy.toml",
)


@scenario("GPUWatchdogPolicyReloadFailed")
def policy_refused(world: World, daemon: Daemon) -> None:
    """A policy with a mistake, for five minutes; a good one ends it."""
    daemon.all_is_well(2)
    daemon.metrics.policy_reload(ok=True, wall_s=T0 + 120)
    daemon.all_is_well(8).expect("below")
    daemon.metrics.policy_reload(ok=False, wall_s=T0 + 480)
    daemon.all_is_well(10)
    daemon.is_up = False  # for a scrape or two; the same process, for another one would refuse to start
    world.wait(11)
    daemon.is_up = True
    daemon.all_is_well(13).expect("waits")
    daemon.all_is_well(13.5).expect("fires", REFUSED)
    daemon.is_up = False
    world.wait(15).expect("restart", REFUSED)
    daemon.is_up = True
    daemon.metrics.policy_reload(ok=True, wall_s=T0 + 900)
    daemon.all_is_well(15.5).expect("resolves")
