"""The living node: everything around the daemon, and what happens to it, one random action a step."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.soak import cards, clockwork, pods, processes
from tests.soak.around import KillNine
from tests.soak.clock import whole
from tests.soak.generation import generate, mutate
from tests.soak.world import World
from watchdog.loop.enforcement import stop_file


class Simulation(World):
    """One node, from a seed; `step` does one thing."""

    def __init__(self, seed: str, folder: Path) -> None:
        super().__init__(seed, folder)
        pods.populate(self)

    def step(self) -> None:
        """Let one thing happen."""
        self.steps += 1
        (action,) = self.dice.choices(_ACTIONS, _WEIGHTS)
        try:
            action(self)
        except KillNine:
            self.say("kill -9 in the middle")
            self.kill_nine()

    def race(self) -> None:
        """Something happens at the worst moment."""
        (action,) = self.dice.choices(_RACES, _RACE_WEIGHTS)
        action(self)


def _pass(sim: World) -> None:
    interval_s = sim.around.plan.interval_s
    sim.pass_by(sim.dice.choice([interval_s, interval_s, interval_s, interval_s / 2, 0.25, 2 * interval_s]))
    life = sim.alive()
    if sim.dice.random() < 0.7:
        life.beat()
    life.advance()
    life.look(sim.dice)
    sim.book.seen["pass"] += 1


def _wake(sim: World) -> None:
    sim.pass_by(sim.dice.choice([0.05, 0.25, 0.5, 1.0]))
    if sim.life is not None:
        if sim.dice.random() < 0.5:
            sim.life.beat()
        sim.life.advance()


def _reload(sim: World) -> None:
    sim.policies += 1
    whole_new = sim.dice.random() < 0.15
    number = sim.policies
    plan = generate(sim.dice, number) if whole_new else mutate(sim.dice, sim.around.plan, number)
    sim.around.plan = plan
    sim.say(f"policy changed: {plan.mode}")


def _stop_file(sim: World) -> None:
    stop = stop_file(sim.around.journal)
    if stop.exists():
        stop.unlink()
        sim.say("stop file removed")
    else:
        stop.touch()
        sim.say("stop file made")


def _restart(sim: World) -> None:
    if sim.life is not None:
        life, sim.life = sim.life, None
        life.end()
        sim.say("daemon stopped")
    sim.pass_by(sim.dice.choice([0.1, 1.0, 10.0]))


def _kill(sim: World) -> None:
    sim.kill_nine()
    sim.say("kill -9 between")
    sim.pass_by(sim.dice.choice([0.1, 1.0, 10.0]))


def _reboot(sim: World) -> None:
    sim.kill_nine()
    sim.kernel.restart()
    sim.clock.reboot(whole(sim.dice.choice([5.0, 60.0])))
    sim.book.brakes.doubt(sim.clock.now())
    sim.cards.silent.clear()
    sim.say("reboot")


def _disk(sim: World) -> None:
    sim.around.disk_full = not sim.around.disk_full
    sim.say("disk full" if sim.around.disk_full else "disk has room")


def _driver_speed(sim: World) -> None:
    sim.around.slow_s = whole(sim.dice.choice([0.0, 0.0, 0.0, 0.5, 12.0, 20.0]))
    sim.around.second_slow_s = whole(sim.dice.choice([0.0, 0.0, 0.5, 3.0]))
    sim.say(f"driver speed: {sim.around.slow_s}, {sim.around.second_slow_s}")


def _well(sim: World) -> None:
    """Everything heals: without that a node with so many troubles would soon see nothing any more."""
    sim.cards.state.clear()
    sim.cards.silent.clear()
    sim.cards.blind = False
    sim.cluster.frozen = False
    sim.around.disk_full = False
    sim.around.slow_s = sim.around.second_slow_s = 0.0
    stop_file(sim.around.journal).unlink(missing_ok=True)
    processes.heal(sim)
    pods.undrain(sim)


Action = Callable[[World], None]
_TABLE: Final[tuple[tuple[float, Action], ...]] = (
    (45.0, _pass),
    (12.0, _wake),
    (14.0, processes.allocate),
    (6.0, processes.waver),
    (1.0, processes.stampede),
    (4.0, processes.release),
    (3.0, processes.fork),
    (2.0, processes.end),
    (1.0, processes.recycle),
    (1.0, processes.character),
    (0.7, processes.lie),
    (4.0, pods.crash_loop),
    (6.0, pods.restart_containers),
    (1.5, pods.create),
    (1.0, pods.delete),
    (0.6, pods.terminate),
    (1.5, pods.change),
    (3.0, pods.learn),
    (0.5, pods.freeze),
    (0.8, cards.trouble),
    (0.15, cards.blind),
    (2.5, _well),
    (0.8, _reload),
    (0.3, _stop_file),
    (0.3, _restart),
    (0.3, _kill),
    (0.08, _reboot),
    (0.2, _disk),
    (0.2, _driver_speed),
    (0.4, clockwork.jump),
    (0.3, clockwork.suspend),
)
_WEIGHTS: Final = [weight for weight, _ in _TABLE]
_ACTIONS: Final = [action for _, action in _TABLE]
_RACE_TABLE: Final[tuple[tuple[float, Action], ...]] = (
    (3.0, processes.release),
    (3.0, processes.fork),
    (3.0, processes.end),
    (3.0, processes.recycle),
    (1.0, processes.character),
    (1.0, processes.allocate),
    (1.0, pods.delete),
    (0.6, pods.terminate),
    (2.0, pods.change),
    (1.5, pods.drain),
    (0.8, cards.trouble),
    (0.5, _reload),
    (0.5, _stop_file),
)
_RACE_WEIGHTS: Final = [weight for weight, _ in _RACE_TABLE]
_RACES: Final = [action for _, action in _RACE_TABLE]
