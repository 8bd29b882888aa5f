"""What processes do: take and give memory, fork, end, get another's PID, behave differently, lie about their place."""

from collections.abc import Callable
from functools import wraps

from tests.soak.cluster import Gi, Mi
from tests.soak.kernel import Task, true_claim
from tests.soak.truth import WATCHDOG
from tests.soak.world import World
from watchdog.core.model import CONTRADICTORY, UNREADABLE, Place, PlaceKind


def start(world: World, pod: str | None, container: str | None, pid: int | None = None) -> Task | None:
    """Start a process with a behaviour of its own."""
    dice = world.dice
    task = world.kernel.spawn(pod, container, pid)
    if task is None:
        return None
    task.stubborn = dice.random() < 0.5
    task.saves = dice.random() < 0.3
    task.aloof = dice.random() < 0.02
    task.slow_s = dice.choice([0.0, 0.0, 0.0, 0.25, 4.0, 40.0])
    task.holds_s = dice.choice([0.0, 0.0, 0.5, 3.0, 20.0, 60.0])
    task.reaped_s = dice.choice([0.0, 0.0, 0.0, 2.0])
    task.named = dice.random() < 0.02
    world.kernel.connect(task)
    return task


def hold(world: World, task: Task) -> None:
    """Let a process hold memory on one card or another."""
    dice, tenant = world.dice, world.cluster.tenants.get(task.pod or "")
    claimed = world.cluster.claims.made.get((tenant.namespace, tenant.claim)) if tenant is not None else None
    # Most programs use the cards that they were given.
    is_at_home = claimed is not None and claimed.parts and dice.random() < 0.9
    card = dice.choice(sorted(claimed.cards if claimed is not None and is_at_home else world.cards.sizes))
    if card in world.kernel.held_by_ghosts(task.key.pid):
        return  # the driver would list one PID for two of them
    size = world.cards.sizes[card]
    amounts = [0, 1, 512 * Mi, Gi, 2 * Gi, 2 * Gi, 3 * Gi, 3 * Gi + 1, 5 * Gi, 8 * Gi, dice.randrange(6 * Gi)]
    task.memory[card] = min(dice.choice(amounts), size)


def _ordinary(world: World) -> list[Task]:
    """All processes but MPS servers."""
    return [task for task in world.kernel.living() if task not in world.kernel.servers]


def _to_a_process(action: Callable[[World, Task], None]) -> Callable[[World], None]:
    """Let something happen to one of the processes."""
    return wraps(action)(lambda world: world.to_one(action, _ordinary(world)))


@_to_a_process
def allocate(world: World, task: Task) -> None:
    hold(world, task)


@_to_a_process
def release(world: World, task: Task) -> None:
    """A process gives back all it has on a card, or nearly all."""
    if task.memory:
        card = world.dice.choice(sorted(task.memory))
        if world.dice.random() < 0.5:
            del task.memory[card]
        else:
            task.memory[card] = Mi


def waver(world: World) -> None:
    """A process changes between much and little, as one does that loads and drops a model."""
    wavering = [task for task in world.kernel.living() if task.other is not None]
    world.to_one(_waver, wavering if wavering and world.dice.random() < 0.8 else _ordinary(world))


def _waver(world: World, task: Task) -> None:
    other = dict.fromkeys(task.memory, Mi) if task.other is None else task.other
    if world.kernel.held_by_ghosts(task.key.pid).isdisjoint(other):
        task.memory, task.other = other, task.memory


@_to_a_process
def begin_dipping(world: World, task: Task) -> None:
    """A process uses much, and little in one of several cycles; or its memory moves to another one of its pod."""
    hold(world, task)
    mates = [mate for mate in _ordinary(world) if mate.pod == task.pod is not None and mate is not task]
    mates = [mate for mate in mates if mate.container != task.container and not mate.dips]
    task.dips, task.moves_with = world.dice.choice([2, 3, 5, 8]), None
    if mates and world.dice.random() < 0.5:
        task.moves_with = world.dice.choice(mates)
        task.moves_with.memory.clear()
    world.say("memory moves" if task.moves_with is not None else "dips")


def dip(world: World) -> None:
    """What those processes do before the next reading."""
    for task in _ordinary(world):
        if not task.dips or world.dice.random() > 2 / task.dips:
            continue
        mate, ghosts = task.moves_with, world.kernel.held_by_ghosts(task.key.pid)
        if mate is not None and mate.lives:
            if (ghosts | world.kernel.held_by_ghosts(mate.key.pid)).isdisjoint({*task.memory, *mate.memory}):
                task.memory, mate.memory = mate.memory, task.memory
        elif task.other is not None or world.dice.random() < 0.5:
            _waver(world, task)


def stampede(world: World) -> None:
    """All processes take a lot at once, as after a bad release or by a wrong unit in a policy."""
    for task in world.kernel.living():
        if task.pod is not None and world.dice.random() < 0.8:
            hold(world, task)
            task.memory = {card: max(used, 6 * Gi) for card, used in task.memory.items()}
    world.say("stampede")


@_to_a_process
def fork(world: World, task: Task) -> None:
    """A process of a container, or of the host, comes to be."""
    child = start(world, task.pod, task.container)
    if child is not None and world.dice.random() < 0.7:
        hold(world, child)


@_to_a_process
def end(world: World, task: Task) -> None:
    world.kernel.die(task)


@_to_a_process
def transfer(world: World, task: Task) -> None:
    """A process ends whose memory on a card another one has opened by CUDA IPC, which is charged now."""
    dice, card = world.dice, world.dice.choice(sorted(world.cards.sizes))
    others = [each for each in world.kernel.living() if each.memory.get(card) and each is not task]
    if task.pod is None or not others or not task.memory.get(card):
        return
    used = task.memory.pop(card)
    world.kernel.die(task)
    memory, more = dice.choice(others).memory, used * dice.choice([4, 4, 4, 3, 2, 5]) // 4
    memory[card] = min(memory[card] + more, world.cards.sizes[card])
    world.say("memory went to another process")


@_to_a_process
def recycle(world: World, task: Task) -> None:
    """A process ends, and another one, of any pod, gets its PID at once."""
    world.kernel.die(task)
    world.kernel.reap(task)
    world.pass_by(1 / 32)
    heir = world.dice.choice([*world.kernel.living(), task])
    child = start(world, heir.pod, heir.container, task.key.pid)
    if child is not None:
        world.say("PID recycled")
        if world.dice.random() < 0.7:
            hold(world, child)


@_to_a_process
def character(world: World, task: Task) -> None:
    """A process changes its user, its handler or its state."""
    which = world.dice.choice(["stubborn", "stubborn", "aloof"])
    setattr(task, which, not getattr(task, which))


@_to_a_process
def lie(world: World, task: Task) -> None:
    """A process's cgroup text stops telling the truth."""
    if task.pod is None:
        return
    others = [pod for pod in world.cluster.tenants if pod not in (task.pod, WATCHDOG)]
    lies = [CONTRADICTORY, UNREADABLE, Place(kind=PlaceKind.POD, pod="nobody", container=task.container)]
    seen = world.cluster.view.tenants.get(task.pod)
    is_seen = seen is not None and any(box.known and box.cid == task.container for box in seen.boxes)
    if others and is_seen and task.pod in world.cluster.tenants.keys() - world.cluster.missing:
        # A known container under another pod's name: the list gives it away.
        lies.append(Place(kind=PlaceKind.POD, pod=world.dice.choice(others), container=task.container))
    task.claim, task.lied = world.dice.choice(lies), True
    world.say(f"lie: {task.key.pid} {task.claim.kind}")


def heal(world: World) -> None:
    """Every place is honest again, and no process is out of reach."""
    for task in world.kernel.tasks.values():
        task.claim = true_claim(task.pod, task.container)
        task.aloof = False
