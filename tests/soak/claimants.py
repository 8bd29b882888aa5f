"""What happens to claims: pods come with them and share them; somebody deletes them, or nobody can read them."""

from dataclasses import replace

from tests.soak import pods
from tests.soak.claims import Gi, Given
from tests.soak.cluster import Tenant
from tests.soak.world import World
from watchdog.core.model import ContainerKind


def create(world: World) -> None:
    """A pod comes that has its GPU by a claim, its own or one that others have too."""
    before = set(world.cluster.tenants)
    pods.create(world)
    for uid in world.cluster.tenants.keys() - before:
        tenant = world.cluster.tenants[uid]
        if not any(box.kind is ContainerKind.INIT for box in tenant.boxes):
            _give(world, tenant)


def _give(world: World, tenant: Tenant) -> None:
    dice, claims = world.dice, world.cluster.claims
    known = sorted(name for namespace, name in claims.made if namespace == tenant.namespace)
    shared = [name for name in known if not name.startswith("extended")]
    is_shared = bool(shared) and dice.random() < 0.5
    name = dice.choice(shared) if is_shared else _make(world, tenant.namespace)
    boxes = (replace(box, declares=1 if dice.random() < 0.85 else None, unlisted=None) for box in tenant.boxes[1:])
    first = replace(tenant.boxes[0], declares=1, unlisted=None)
    changed = replace(tenant, kind="claim", notes=None, claim=name, boxes=(first, *boxes))
    world.cluster.put(replace(changed, extended=name.startswith("extended")))
    world.say(f"pod shares a claim: {tenant.uid}" if is_shared else f"pod came with a claim: {tenant.uid}")


def _make(world: World, namespace: str) -> str:
    number, is_extended = world.cluster.serial(), world.dice.random() < 0.1
    name = f"extended-{number}" if is_extended else f"claim-{number}"
    world.cluster.claims.made[namespace, name] = _given(world, name, number, is_extended=is_extended)
    return name


def _given(world: World, name: str, number: int, *, is_extended: bool) -> Given:
    dice = world.dice
    cards = dice.sample(sorted(world.cards.sizes), min(len(world.cards.sizes), dice.choice([1, 1, 1, 2])))
    amounts = [Gi, 2 * Gi, 4 * Gi, 8 * Gi, 12 * Gi]
    match "all" if is_extended else dice.choice([*["shares"] * 5, "all", "all", "without an amount", "a port"]):
        case "shares":
            parts = [(card, dice.choice(amounts)) for card in cards]
            return Given(name=name, number=number, parts=tuple(parts), uids=frozenset(), has_port=dice.random() < 0.3)
        case "all":
            return Given(name=name, number=number, parts=((cards[0], None),), uids=frozenset())
        case "without an amount":
            return Given(name=name, number=number, parts=((cards[0], 0),), uids=frozenset())
        case _:
            return Given(name=name, number=number, parts=(), uids=frozenset(), has_port=True)


def hand_on(world: World) -> None:
    """Somebody deletes a claim that pods still have; now and then its name is given to others, and other cards."""
    claims = world.cluster.claims
    if not claims.made:
        return
    namespace, name = world.dice.choice(sorted(claims.made))
    del claims.made[namespace, name]
    world.say(f"claim deleted: {name}")
    if world.dice.random() < 0.5 and not name.startswith("extended"):
        claims.made[namespace, name] = _given(world, name, world.cluster.serial(), is_extended=False)
        world.say(f"claim given to others: {name}")


def refuse(world: World) -> None:
    """The right to read claims is taken away, or given back."""
    claims = world.cluster.claims
    claims.refused = not claims.refused
    world.say("claims can't be read" if claims.refused else "claims can be read again")
