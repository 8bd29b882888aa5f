"""Alerts about the watchdog itself: it is down, not there at all, or has a policy that it can't read."""

from tests.export.build import trainer_node
from tests.monitoring.rules.scenario import EXEC, look, restart, scenario, told, wait
from tests.monitoring.rules.world import World
from tests.worlds import T0

CRITICAL = {"node": "n1", "severity": "critical"}
WARNING = {"node": "n1", "severity": "warning"}


def _down(answered: str) -> dict[str, str]:
    return told(
        "GPUWatchdogDown",
        "The watchdog on node n1 is down",
        f"The watchdog on node n1 answered {answered} of the scrapes of the last 10 minutes: it is not running, is "
        "crash-looping, or can't be reached. GPU memory on that node is neither measured nor limited. Check: kubectl "
        "-n gpu-memory-watchdog get pods -o wide --field-selector spec.nodeName=n1",
    )


@scenario("GPUWatchdogDown")
def down(world: World) -> None:
    """It has not answered half of the scrapes of ten minutes, five minutes long; a restart is far from that."""
    daemon = world.daemon()
    look(world, daemon, 15)
    restart(world, daemon, 17)
    world.expect("GPUWatchdogDown", "restart")
    look(world, daemon, 35)
    world.expect("GPUWatchdogDown", "below")
    daemon.is_up = False
    wait(world, 45)
    world.expect("GPUWatchdogDown", "waits")
    wait(world, 45.5)
    world.expect("GPUWatchdogDown", "fires", (CRITICAL, _down("0%")))
    daemon.is_up = True
    look(world, daemon, 51)
    world.expect("GPUWatchdogDown", "resolves")


@scenario("GPUWatchdogDown")
def crash_loop(world: World) -> None:
    """It comes up for a moment each five minutes, which is as good as down."""
    daemon = world.daemon()
    for minute in range(0, 60, 5):
        daemon.is_up = True
        daemon.begin_anew()
        look(world, daemon, minute + 1)
        daemon.is_up = False
        wait(world, minute + 5)
    world.expect("GPUWatchdogDown", "restart", (CRITICAL, _down("19.05%")))


def _none_at_all(cluster: str) -> dict[str, str]:
    where, there = (f" in cluster {cluster}", "of that cluster") if cluster else ("", "")
    return told(
        "GPUWatchdogDown",
        f"There is no watchdog{where}",
        f'Prometheus has no target with job="gpu-memory-watchdog"{where}: the DaemonSet is gone or selects no '
        "node, or the scrape configuration does not find its pods. Either GPU memory limits are enforced on no node"
        f"{' ' + there if there else ''}, or enforcement can't be monitored. Check: kubectl -n gpu-memory-watchdog get "
        "daemonset,pods -o wide",
    )


@scenario("GPUWatchdogDown")
def none_at_all(world: World) -> None:
    """The last target of a cluster vanishes: there is nothing left that could be down."""
    daemon = world.daemon()
    look(world, daemon, 10)
    world.remove(daemon)
    wait(world, 15)
    world.expect("GPUWatchdogDown", "waits")
    wait(world, 15.5)
    world.expect("GPUWatchdogDown", "fires", ({"severity": "critical"}, _none_at_all(world.cluster)))
    again = world.daemon()
    look(world, again, 16)
    world.expect("GPUWatchdogDown", "resolves")


@scenario("GPUWatchdogDown")
def never_any(world: World) -> None:
    """The rules are loaded, and nothing is scraped; where another cluster is, this one can't be known of."""
    world.fix("kube_node_labels", 1, node="n1")
    wait(world, 4.5)
    world.expect("GPUWatchdogDown", "waits")
    wait(world, 5)
    alerts = [({"severity": "critical"}, _none_at_all(""))] if not world.cluster else []
    world.expect("GPUWatchdogDown", "waits" if world.cluster else "fires", *alerts)


@scenario("GPUWatchdogDown")
def one_of_two_goes(world: World) -> None:
    """A node that is taken away is not down, and the other still says that there are watchdogs."""
    first, second = world.daemon(), world.daemon("n2")
    for moment in world.until(5):
        first.see(trainer_node(4.0, moment))
        second.see(trainer_node(4.0, moment))
    world.remove(first)
    look(world, second, 30)
    world.expect("GPUWatchdogDown", "below")


def _missing(node: str) -> dict[str, str]:
    return told(
        "GPUWatchdogMissing",
        f"Node {node} has GPUs and no watchdog",
        f"Node {node} has had GPUs for 15 minutes, but Prometheus scrapes no watchdog there: none runs, or "
        "Prometheus does not find it. GPU memory on that node is neither measured nor limited. The DaemonSet selects "
        f"nodes by the label nvidia.com/gpu.present=true. Check: kubectl get node {node} --show-labels",
    )


@scenario("GPUWatchdogMissing")
def missing(world: World) -> None:
    """A node that offers GPUs and has no target; a node without GPUs needs none, and one that is down has one."""
    for node, gpus in (("n1", 8), ("n2", 4), ("n3", 0)):
        offers = {"node": node, "resource": "nvidia_com_gpu", "unit": "integer", "job": "kube-state-metrics"}
        world.fix("kube_node_status_allocatable", gpus, **offers)
    first, second = world.daemon(), world.daemon("n2")
    look(world, first, 5)
    second.is_up = False
    look(world, first, 25)
    world.expect("GPUWatchdogMissing", "below")
    world.remove(second)
    restart(world, first, 26)
    look(world, first, 43)
    world.expect("GPUWatchdogMissing", "waits")
    look(world, first, 43.5)
    labels = {"node": "n2", "severity": "warning"}
    world.expect("GPUWatchdogMissing", "fires", (labels, _missing("n2")))
    restart(world, first, 45)
    world.expect("GPUWatchdogMissing", "restart", (labels, _missing("n2")))
    second = world.daemon("n2")
    for moment in world.until(45.5):
        second.see(trainer_node(4.0, moment))
    world.expect("GPUWatchdogMissing", "resolves")


@scenario("GPUWatchdogMissing")
def missing_by_label(world: World) -> None:
    """Where kube-state-metrics exports NVIDIA's label, a node counts before its device plugin offers anything."""
    label = {"label_nvidia_com_gpu_present": "true", "job": "kube-state-metrics"}
    world.fix("kube_node_labels", 1, node="n1", **label)
    world.fix("kube_node_labels", 1, node="n2", **label)
    look(world, world.daemon(), 15)
    world.expect("GPUWatchdogMissing", "fires", ({"node": "n2", "severity": "warning"}, _missing("n2")))


REFUSED = told(
    "GPUWatchdogPolicyReloadFailed",
    "The policy file on node n1 has errors or is still being written",
    "The policy file on node n1 has errors or is still being written, and is not in effect; the version loaded at "
    "1970-01-01 00:02:00 +0000 UTC stays in effect. Later changes to the file have no effect. To see which of the two "
    f"it is, run {EXEC}gpu-watchdog top --once, or look for policy_refused in the daemon's log. If the file has "
    "errors, a daemon that restarts now fails to start. To list all errors: "
    f"{EXEC}gpu-watchdog check /etc/gpu-watchdog/policy.toml",
)


@scenario("GPUWatchdogPolicyReloadFailed")
def policy_refused(world: World) -> None:
    """A policy with a mistake, for five minutes; a good one ends it."""
    daemon = world.daemon()
    look(world, daemon, 2)
    daemon.metrics.policy_reload(ok=True, wall_s=T0 + 120)
    look(world, daemon, 8)
    world.expect("GPUWatchdogPolicyReloadFailed", "below")
    daemon.metrics.policy_reload(ok=False, wall_s=T0 + 480)
    look(world, daemon, 10)
    daemon.is_up = False  # for a scrape or two; the same process, for another one would refuse to start
    wait(world, 11)
    daemon.is_up = True
    look(world, daemon, 13)
    world.expect("GPUWatchdogPolicyReloadFailed", "waits")
    look(world, daemon, 13.5)
    world.expect("GPUWatchdogPolicyReloadFailed", "fires", (WARNING, REFUSED))
    daemon.is_up = False
    wait(world, 15)
    world.expect("GPUWatchdogPolicyReloadFailed", "restart", (WARNING, REFUSED))
    daemon.is_up = True
    daemon.metrics.policy_reload(ok=True, wall_s=T0 + 900)
    look(world, daemon, 15.5)
    world.expect("GPUWatchdogPolicyReloadFailed", "resolves")
