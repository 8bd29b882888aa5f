"""What pods do: come and go, crash and come back under new UIDs, terminate, change, and stay unknown for a while."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps

from tests.soak import processes
from tests.soak.cluster import Box, Gi, Kind, Mi, Tenant
from tests.soak.truth import WATCHDOG
from tests.soak.world import World
from watchdog.core.model import ContainerKind

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
    if len(world.cluster.tenants) > 8:
        return
    world.cluster.dropped = False
    dice = world.dice
    owner, kind = dice.choice(_OWNERS), dice.choice(_KINDS)
    number = world.cluster.serial()
    names = [*(["load"] if dice.random() < 0.25 else []), *["main", "side"][: dice.choice([1, 1, 2])]]
    tenant = Tenant(
        uid=f"uid-{number}",
        namespace=dice.choice(["team-a"] * 5 + ["team-b"] * 5 + ["kube-system"]),
        name=f"pod-{number}" if owner is not None else f"bare-{number % 2}",
        owner=owner,
        boxes=tuple(_box(world, number, name, kind) for name in names),
        kind=kind,
        notes=_amount(world, kind) if dice.random() < 0.8 else None,
        tier=dice.choice("ab"),
        priority=dice.choice([None, 0, 0, 0, 1, 1, 10, 10, 1000, 2_000_000_000]),
        spared=dice.random() < 0.05,
        static=dice.random() < 0.04,
    )
    tenant = tenant if tenant.kind == "note" else replace(tenant, notes=None)
    world.cluster.put(tenant)
    _run(world, tenant)
    world.say(f"pod came: {tenant.uid}")


def create_unlisted(world: World) -> None:
    """A pod comes that names its node itself, and requests all of the cards by what the node does not list."""
    before = set(world.cluster.tenants)
    create(world)
    for uid in world.cluster.tenants.keys() - before:
        tenant, everything = world.cluster.tenants[uid], sum(world.cards.sizes.values())
        kind: Kind = tenant.kind if tenant.kind in ("bytes", "mib", "gpu_mib") else "bytes"
        own = (world.dice.choice([Gi, 2 * Gi, 4 * Gi]) for _ in tenant.boxes)
        boxes = (replace(box, declares=each) for box, each in zip(tenant.boxes, own, strict=True))
        chosen = (replace(box, unlisted=everything) if world.dice.random() < 0.8 else box for box in boxes)
        world.cluster.change(uid, kind=kind, notes=None, boxes=tuple(chosen))
        world.say(f"pod requests what the node does not list: {uid}")


def _requests_unlisted(tenant: Tenant) -> bool:
    return any(box.unlisted is not None for box in tenant.boxes)


_KINDS: tuple[Kind, ...] = ("bytes", "bytes", "mib", "mib", "gpu_mib", "note", "note", "share")
_LETTERS = {"main": "a", "side": "b", "load": "c", "debug": "d"}


def _box(world: World, number: int, name: str, kind: Kind) -> Box:
    dice = world.dice
    return Box(
        name=name,
        cid=f"{number:x}{_LETTERS[name]}".ljust(64, "0"),
        known=dice.random() < 0.8,
        declares=_amount(world, kind) if dice.random() < 0.75 else None,
        kind=ContainerKind.INIT if name == "load" else ContainerKind.MAIN,
        runs=name != "load" or dice.random() < 0.4,
    )


def _amount(world: World, kind: Kind) -> int:
    if kind == "share":
        return world.dice.choice([1, 1, 2, 3, 9])
    return world.dice.choice([Gi, Gi, 2 * Gi, 2 * Gi, 3 * Gi, 4 * Gi, 512 * Mi, 30 * Gi, 90 * Gi, 0, -1])


def _others(world: World) -> list[Tenant]:
    """All pods but the daemon's own."""
    return [tenant for uid, tenant in world.cluster.tenants.items() if uid != WATCHDOG]


def _to_a_pod(action: Callable[[World, Tenant], None]) -> Callable[[World], None]:
    """Let something happen to one of the pods."""
    return wraps(action)(lambda world: world.to_one(action, _others(world)))


def _vanish(world: World, tenant: Tenant) -> None:
    for task in world.kernel.living(tenant.uid):
        world.kernel.die(task)
    world.cluster.remove(tenant.uid)


def delete(world: World) -> None:
    """A pod is gone, and all its processes; or its object alone, by force, and they end when the next one goes."""
    for task in world.kernel.living():
        if task.pod is not None and task.pod not in world.cluster.tenants:
            world.kernel.die(task)
    world.to_one(_delete, _others(world))


def _delete(world: World, tenant: Tenant) -> None:
    if world.dice.random() < 0.3:
        world.cluster.remove(tenant.uid)
        for task in world.kernel.living(tenant.uid):
            # Nothing gives its lies away any more (docs/safety.md), and the daemon may have read them already.
            if task.lied:
                world.kernel.die(task)
        world.say(f"pod went by force: {tenant.uid}")
    else:
        _vanish(world, tenant)
        world.say(f"pod went: {tenant.uid}")


@_to_a_pod
def delete_by_force(world: World, tenant: Tenant) -> None:
    """Somebody deletes the object of a pod whose processes use a lot and run on, as a tenant would to hide them."""
    tasks = world.kernel.living(tenant.uid)
    if any(task.lied for task in tasks):
        return
    for task in tasks:
        processes.hold(world, task)
    world.cluster.remove(tenant.uid)
    world.say(f"pod was hidden by force: {tenant.uid}")


@_to_a_pod
def lose_from_list(world: World, tenant: Tenant) -> None:
    """A list is partial: it lacks a pod that is there, until it is whole again."""
    if tenant.uid in world.cluster.missing:
        world.cluster.missing.clear()
        world.say("the list is whole")
    elif not any(task.lied for task in world.kernel.living(tenant.uid)):  # what it is of gives its lies away
        world.cluster.missing.add(tenant.uid)
        world.say(f"the list lacks a pod: {tenant.uid}")


@_to_a_pod
def crash_loop(world: World, tenant: Tenant) -> None:
    """The controller puts a pod back at once, under another UID, and it does the same again."""
    world.cluster.dropped = False
    memory = [task.memory for task in world.kernel.living(tenant.uid)]
    _vanish(world, tenant)
    number = world.cluster.serial()
    kept = [box for box in tenant.boxes if box.kind is not ContainerKind.EPHEMERAL]
    boxes = tuple(replace(_box(world, number, box.name, tenant.kind), declares=box.declares) for box in kept)
    again = replace(tenant, uid=f"uid-{number}", boxes=boxes, deadline_s=None)
    again = replace(again, name=f"pod-{number}") if again.owner is not None else again
    world.cluster.put(again)
    _run(world, again)
    for task, held in zip(world.kernel.living(again.uid), memory, strict=False):
        ghosts = world.kernel.held_by_ghosts(task.key.pid)
        task.memory = {card: amount for card, amount in held.items() if card not in ghosts}
    world.say(f"pod came back: {tenant.uid} as {again.uid}")


@_to_a_pod
def restart_containers(world: World, tenant: Tenant) -> None:
    """The kubelet starts a container of which nothing runs any more.

    It really has another ID then, which a list without the pod would not show.
    """
    if tenant.deadline_s is not None or tenant.uid in world.cluster.missing:
        return
    there = {task.container for task in world.kernel.living()}
    for box in tenant.boxes:
        if box.cid not in there:
            _fill(world, tenant.uid, box.cid)
            world.say(f"container restarted: {box.name} of {tenant.uid}")


@_to_a_pod
def renew_container(world: World, tenant: Tenant) -> None:
    """The kubelet starts a container again, under an ID that the list does not have yet."""
    if tenant.deadline_s is not None:
        return
    old = world.dice.choice(tenant.boxes)
    for task in world.kernel.living(tenant.uid):
        if task.container == old.cid:
            world.kernel.die(task)
    new = replace(old, cid=f"{world.cluster.serial():x}e".ljust(64, "0"), known=False)
    world.cluster.change(tenant.uid, boxes=tuple(new if box is old else box for box in tenant.boxes))
    _fill(world, tenant.uid, new.cid)
    world.say(f"container got a new ID: {new.name} of {tenant.uid}")


@_to_a_pod
def turn_phase(world: World, tenant: Tenant) -> None:
    """The list has it that an init container runs, or runs no more; the pod may be further on than that."""
    init = [box for box in tenant.boxes if box.kind is ContainerKind.INIT]
    if init:
        boxes = (replace(b, runs=not b.runs) if b.kind is ContainerKind.INIT else b for b in tenant.boxes)
        world.cluster.change(tenant.uid, boxes=tuple(boxes))
        world.say("phase turned to main" if init[0].runs else "phase turned to init")


@_to_a_pod
def debug(world: World, tenant: Tenant) -> None:
    """Somebody adds an ephemeral container to a pod."""
    if any(box.kind is ContainerKind.EPHEMERAL for box in tenant.boxes):
        return
    made = _box(world, world.cluster.serial(), "debug", tenant.kind)
    box = replace(made, kind=ContainerKind.EPHEMERAL, declares=None)
    world.cluster.change(tenant.uid, boxes=(*tenant.boxes, box))
    _fill(world, tenant.uid, box.cid)
    world.say("ephemeral container came")


def lose_labels(world: World) -> None:
    """The labels of the node disappear, or are back."""
    world.cluster.labelled = not world.cluster.labelled
    world.say("node labels are back" if world.cluster.labelled else "node labels disappeared")


def drop_resources(world: World) -> None:
    """The node registers again, and drops the resources of its device plugins for a while, or lists them again."""
    cluster = world.cluster
    if cluster.dropped:
        cluster.dropped = False
        world.say("node lists its resources again")
    elif world.life is not None and world.life.has_noted(cluster.tenants.values()):
        cluster.dropped = True
        world.say("node dropped its resources")
        if world.dice.random() < 0.3:  # with the kubelet, the daemon is started again
            world.kill_nine()


def fatten(world: World) -> None:
    """A tenant creates pods that never run, too large and too many for one cycle to read, or deletes them."""
    if world.cluster.fat:
        world.cluster.fat = ()
        world.say("fat pods went")
    else:
        world.cluster.fatten()
        world.say("fat pods came")


@_to_a_pod
def terminate(world: World, tenant: Tenant) -> None:
    """A pod is being deleted, and may take its time."""
    grace_s = world.dice.choice([0.0, 5.0, 30.0])
    world.cluster.change(tenant.uid, deadline_s=world.clock.wall_s + grace_s)
    world.say(f"pod terminates: {tenant.uid}")


def linger(world: World) -> None:
    """Pods have been deleted with a grace period of a year, and ten minutes of it have passed, or nearly."""
    for tenant in _others(world):
        if world.dice.random() < 0.5:
            world.cluster.change(tenant.uid, deadline_s=world.clock.wall_s + 365 * 86400.0)
    if world.life is not None:
        world.life.advance()
        world.life.look()
    world.pass_by(world.dice.choice([590.0, 595.0, 605.0]))
    world.say("pods linger")


def drain(world: World) -> None:
    """Somebody drains the node: every pod is being deleted."""
    for tenant in _others(world):
        world.cluster.change(tenant.uid, deadline_s=world.clock.wall_s + 30.0)
    world.say("drained")


def undrain(world: World) -> None:
    """The pods that were to go stay after all."""
    for uid, tenant in list(world.cluster.tenants.items()):
        if tenant.deadline_s is not None:
            world.cluster.change(uid, deadline_s=None)


@_to_a_pod
def change(world: World, tenant: Tenant) -> None:
    dice, world.cluster.dropped = world.dice, False
    changes: list[dict[str, object]] = [
        {"spared": not tenant.spared},
        {"tier": dice.choice("ab")},
        {"priority": dice.choice([None, 0, 1, 1000, 2_000_000_000])},
        {"deadline_s": None},
    ]
    if _requests_unlisted(tenant):
        pass  # the oracle knows only that this changes nothing
    elif tenant.kind == "note":
        changes.append({"notes": _amount(world, "note")})
    elif tenant.kind != "claim":
        declaring = {box: box.kind is not ContainerKind.EPHEMERAL for box in tenant.boxes}
        boxes = (replace(b, declares=_amount(world, tenant.kind) if can else None) for b, can in declaring.items())
        changes.append({"boxes": tuple(boxes)})
    world.cluster.change(tenant.uid, **dice.choice(changes))
    world.say(f"pod changed: {tenant.uid}")


def allow_more(world: World) -> None:
    """A pod that is about to be acted on takes more memory, and is allowed all but a byte of what it uses then."""
    allowance = world.policy.allowance
    uids = [uid for uid in world.book.meant if uid in world.cluster.tenants]
    if not uids:
        return
    tenant = world.cluster.tenants[world.dice.choice(uids)]
    if _requests_unlisted(tenant):
        return
    world.cluster.dropped = False
    tasks = world.kernel.living(tenant.uid)
    for task in tasks:
        task.memory = {card: min(held + Gi, world.cards.sizes[card]) for card, held in task.memory.items()}
    contexts = min(sum(len(task.memory) for task in tasks), allowance.max_contexts)
    allowed = sum(sum(task.memory.values()) for task in tasks) - 1 - allowance.per_context * contexts
    declared = max(allowed, 0) // (1 + allowance.percent)
    if tenant.kind == "note":
        world.cluster.change(tenant.uid, notes=declared)
    elif tenant.kind == "bytes":
        first, *others = (replace(box, declares=None) for box in tenant.boxes)
        world.cluster.change(tenant.uid, boxes=(replace(first, declares=declared), *others))
    world.say(f"pod allowed more: {tenant.uid}")


def begin_toggling(world: World) -> None:
    """A tenant that uses a lot begins to change a label and an annotation all the time, by one byte, or leaves that."""
    world.to_one(_begin_toggling, [each for each in _others(world) if _is_plain(each)])


def _begin_toggling(world: World, tenant: Tenant) -> None:
    world.toggling ^= {tenant.uid}
    if tenant.uid in world.toggling:
        for task in world.kernel.living(tenant.uid):
            if world.dice.random() < 0.7:
                processes.hold(world, task)
    world.say("labels and annotations toggle" if tenant.uid in world.toggling else "a tenant leaves its pod as it is")


def _is_plain(tenant: Tenant) -> bool:
    is_spared = tenant.static or tenant.spared or tenant.deadline_s is not None
    return not is_spared and tenant.namespace != "kube-system" and (tenant.priority or 0) < 1000


def toggle(world: World) -> None:
    """What those tenants write before the next reading."""
    if world.cluster.fat:
        world.cluster.fatten()
    world.toggling &= world.cluster.tenants.keys()
    for uid in sorted(world.toggling):
        tenant = world.cluster.tenants[uid]
        if world.dice.random() < 0.9:
            world.cluster.change(uid, tier="b" if tenant.tier == "a" else "a")
            world.book.seen["label toggled"] += 1
        if tenant.notes is not None and tenant.notes > 0:
            world.cluster.change(uid, notes=tenant.notes ^ 1)
            world.book.seen["annotation toggled"] += 1


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
