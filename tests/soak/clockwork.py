"""What clocks do: the wall clock is set, the machine is suspended."""

from tests.soak.world import World


def jump(world: World) -> None:
    """Somebody sets the wall clock."""
    world.clock.jump(world.dice.choice([-86400.0, -3600.0, -30.0, 30.0, 3600.0, 86400.0]))
    world.say("wall clock jumped")


def suspend(world: World) -> None:
    """The machine sleeps for a while."""
    world.pass_by(world.dice.choice([5.0, 60.0, 3600.0]))
    world.say("suspended")
