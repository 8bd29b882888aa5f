"""MPS servers: on the host or in a DaemonSet's privileged pod for all pods, or in a pod for that pod alone.

The last kind is what a tenant can start: also where a DaemonSet owns the pod, or its priority is that of the system.
"""

from collections.abc import Callable
from typing import Final

from tests.soak import processes
from tests.soak.cluster import Mi, Tenant
from tests.soak.truth import WATCHDOG, is_daemon_sets, is_system
from tests.soak.world import World


def begin_or_end(world: World) -> None:
    """An MPS server begins, and some processes that can reach it become its clients; or one ends."""
    kernel, dice = world.kernel, world.dice
    if kernel.servers and dice.random() < 0.5:
        kernel.die(dice.choice(kernel.servers))
        world.say("MPS server ended")
        return
    (where,) = dice.choices([*_FITS], (4, 5, 5))
    fits = _FITS[where]
    pods = [each for each in world.cluster.tenants.values() if fits is not None and fits(each)]
    pod = dice.choice(pods) if pods else None
    if (pod is None) != (fits is None):
        return
    server = kernel.spawn(pod.uid if pod else None, dice.choice(pod.boxes).cid if pod else None)
    if server is None or any(ghost.key.pid == server.key.pid for ghost in kernel.ghosts):
        return
    server.named, server.serves_others = True, where != "for its own pod"
    # The specs of all pods of DaemonSets say that they are privileged, and those of no others (cluster.py).
    server.looks_privileged = server.serves_others or (pod is not None and not is_daemon_sets(pod))
    server.is_controlled = world.control is not None and (where == "on the host" or world.steps % 3 > 0)
    server.memory = dict.fromkeys(world.cards.sizes, 30 * Mi)
    kernel.servers.append(server)
    for task in kernel.living():
        kernel.connect(task)
        if task.server is server and not server.serves_others:
            processes.hold(world, task)
    world.say(f"MPS server {where}")
    if pod is not None and not server.serves_others and (is_daemon_sets(pod) or (pod.priority or 0) >= 2_000_000_000):
        world.say("a tenant's MPS server looks like the system's")


def _serves_itself(tenant: Tenant) -> bool:
    return tenant.uid != WATCHDOG and not is_system(tenant)


_FITS: Final[dict[str, Callable[[Tenant], bool] | None]] = {
    "on the host": None,
    "in a DaemonSet's pod": is_daemon_sets,
    "for its own pod": _serves_itself,
}
