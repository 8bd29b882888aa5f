"""What pods do: come and go, crash and come back under new UIDs, terminate, change, and stay unknown for a while."""

from dataclasses import replace

from tests.soak import processes
from tests.soak.cluster import Box, Gi, Kind, Mi, Tenant
from tests.soak.truth import WATCHDOG
from tests.soak.world import World

_OWNERS = (("ReplicaSet", "web"), ("ReplicaSet", "train"), ("Job", "batch"), ("DaemonSet", "agent"), None)


def populate(world: World) -> None:
    """The pods and host processes that are there at the beginning."""
    own = Tenant(uid=WATCHDOG, namespace="team-a", name="watchdog", owner=None, boxes=(Box(name="main", cid="w" * 64),))
    world.cluster.put(own)
    _run(world, own)
    for _ in range(world.dice.randint(2, 7)):
        create(world)
    for _ in range(2):
        _fill(world, None, None)


def _fill(world: World, pod: str | None, container: str | None) -> None:
    task = processes.start(world, pod, container)
    if task is not None:
        processes.hold(world, task)


def _run(world: World, tenant: Tenant) -> None:
    for box in tenant.boxes:
        for _ in range(world.dice.choice([1, 1, 2])):
            _fill(world, tenant.uid, box.cid)


def create(world: World) -> None:
    """A new pod comes, with its processes."""
    if len(world.cluster.tenants) > 8:
        return
    dice = world.dice
    owner = dice.choice(_OWNERS)
    number = world.cluster.serial()
    tenant = Tenant(
        uid=f"uid-{number}",
        namespace=dice.choice(["team-a"] * 5 + ["team-b"] * 5 + ["kube-system"]),
        name=f"pod-{number}" if owner is not None else f"bare-{number % 2}",
        owner=owner,
        boxes=tuple(_box(world, number, name) for name in ["main", "side"][: dice.choice([1, 1, 2])]),
        kind=dice.choice(_KINDS),
        notes=_amount(world) if dice.random() < 0.8 else None,
        tier=dice.choice("ab"),
        priority=dice.choice([None, 0, 0, 0, 1, 1, 10, 10, 1000, 2_000_000_000]),
        spared=dice.random() < 0.05,
        static=dice.random() < 0.04,
    )
    tenant = tenant if tenant.kind == "note" else replace(tenant, notes=None)
    world.cluster.put(tenant)
    _run(world, tenant)
    world.say(f"pod came: {tenant.uid}")


_KINDS: tuple[Kind, ...] = ("bytes", "bytes", "mib", "mib", "gpu_mib", "note")


def _box(world: World, number: int, name: str) -> Box:
    cid = f"{number:x}{'a' if name == 'main' else 'b'}".ljust(64, "0")
    declares = _amount(world) if world.dice.random() < 0.75 else None
    return Box(name=name, cid=cid, known=world.dice.random() < 0.8, declares=declares)


def _amount(world: World) -> int:
    return world.dice.choice([Gi, Gi, 2 * Gi, 2 * Gi, 3 * Gi, 4 * Gi, 512 * Mi, 0, -1])


def _any(world: World) -> Tenant | None:
    others = [tenant for uid, tenant in world.cluster.tenants.items() if uid != WATCHDOG]
    return world.dice.choice(others) if others else None


def _vanish(world: World, tenant: Tenant) -> None:
    for task in world.kernel.living():
        if task.pod == tenant.uid:
            world.kernel.die(task)
    world.cluster.remove(tenant.uid)


def delete(world: World) -> None:
    """A pod is gone, and all its processes; or its object alone, by force, and they end when the next one goes."""
    for task in world.kernel.living():
        if task.pod is not None and task.pod not in world.cluster.tenants:
            world.kernel.die(task)
    tenant = _any(world)
    if tenant is None:
        return
    if world.dice.random() < 0.3:
        world.cluster.remove(tenant.uid)
        for task in world.kernel.living():
            # Nothing gives its lies away any more (docs/safety.md), and the daemon may have read them already.
            if task.pod == tenant.uid and task.lied:
                world.kernel.die(task)
        world.say(f"pod went by force: {tenant.uid}")
        return
    _vanish(world, tenant)
    world.say(f"pod went: {tenant.uid}")


def crash_loop(world: World) -> None:
    """The controller puts a pod back at once, under another UID, and it does the same again."""
    tenant = _any(world)
    if tenant is None:
        return
    memory = [task.memory for task in world.kernel.living() if task.pod == tenant.uid]
    _vanish(world, tenant)
    number = world.cluster.serial()
    boxes = tuple(replace(_box(world, number, box.name), declares=box.declares) for box in tenant.boxes)
    again = replace(tenant, uid=f"uid-{number}", boxes=boxes, deadline_s=None)
    again = replace(again, name=f"pod-{number}") if again.owner is not None else again
    world.cluster.put(again)
    _run(world, again)
    for task, held in zip((t for t in world.kernel.living() if t.pod == again.uid), memory, strict=False):
        ghosts = {card for ghost in world.kernel.ghosts if ghost.key.pid == task.key.pid for card in ghost.memory}
        task.memory = {card: amount for card, amount in held.items() if card not in ghosts}
    world.say(f"pod came back: {tenant.uid} as {again.uid}")


def restart_containers(world: World) -> None:
    """The kubelet starts a container of which nothing runs any more."""
    tenant = _any(world)
    if tenant is None or tenant.deadline_s is not None:
        return
    there = {task.container for task in world.kernel.living()}
    for box in tenant.boxes:
        if box.cid not in there:
            _fill(world, tenant.uid, box.cid)
            world.say(f"container restarted: {box.name} of {tenant.uid}")


def terminate(world: World) -> None:
    """A pod is being deleted, and may take its time."""
    tenant = _any(world)
    if tenant is not None:
        grace_s = world.dice.choice([0.0, 5.0, 30.0])
        world.cluster.change(tenant.uid, deadline_s=world.clock.wall_s + grace_s)
        world.say(f"pod terminates: {tenant.uid}")


def drain(world: World) -> None:
    """Somebody drains the node: every pod is being deleted."""
    for uid in list(world.cluster.tenants):
        if uid != WATCHDOG:
            world.cluster.change(uid, deadline_s=world.clock.wall_s + 30.0)
    world.say("drained")


def undrain(world: World) -> None:
    """The pods that were to go stay after all."""
    for uid, tenant in list(world.cluster.tenants.items()):
        if tenant.deadline_s is not None:
            world.cluster.change(uid, deadline_s=None)


def change(world: World) -> None:
    """Somebody edits a pod."""
    tenant = _any(world)
    if tenant is None:
        return
    dice = world.dice
    changes: list[dict[str, object]] = [
        {"spared": not tenant.spared},
        {"tier": dice.choice("ab")},
        {"priority": dice.choice([None, 0, 1, 1000, 2_000_000_000])},
        {"deadline_s": None},
    ]
    if tenant.kind == "note":
        changes.append({"notes": _amount(world)})
    else:
        changes.append({"boxes": tuple(replace(box, declares=_amount(world)) for box in tenant.boxes)})
    world.cluster.change(tenant.uid, **dice.choice(changes))
    world.say(f"pod changed: {tenant.uid}")


def learn(world: World) -> None:
    """The list comes to know the IDs of a pod's containers."""
    for tenant in list(world.cluster.tenants.values()):
        if not all(box.known for box in tenant.boxes):
            world.cluster.change(tenant.uid, boxes=tuple(replace(box, known=True) for box in tenant.boxes))
            world.say("containers became known")
            return


def freeze(world: World) -> None:
    """The list of pods is not renewed any more, or is again."""
    world.cluster.frozen = not world.cluster.frozen
    world.say("pod list frozen" if world.cluster.frozen else "pod list fresh")
