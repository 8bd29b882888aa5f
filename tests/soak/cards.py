"""What cards and the driver do: fail, contradict themselves, keep numbers to themselves, get lost, come back."""

from tests.soak.driver import Card
from tests.soak.world import World


def trouble(world: World) -> None:
    """A card begins or ceases to answer as it should."""
    dice = world.dice
    card = dice.choice(sorted(world.cards.sizes))
    if dice.random() < 0.3:
        pids = [task.key.pid for task in world.kernel.living()]
        if pids:
            world.cards.silent.add((card, dice.choice(pids)))
            world.say("card silent of one process")
        return
    state = dice.choice(list(Card)) if dice.random() < 0.6 else Card.WELL
    world.cards.state[card] = state
    world.say(f"card {state.name.lower()}: {card}")


def blind(world: World) -> None:
    """NVML as a whole answers no more, or does again."""
    world.cards.blind = not world.cards.blind
    world.say("NVML blind" if world.cards.blind else "NVML sees")
