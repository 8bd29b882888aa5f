"""The living node: everything around the daemon, and what happens to it, one random action a step."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.soak import claimants, pods, processes, servers, troubles
from tests.soak.clock import whole
from tests.soak.driver import Card
from tests.soak.generation import FOCUSED, generate, mutate
from tests.soak.kernel import Task
from tests.soak.world import KillNine, World
from watchdog.core.policy import Brakes, Protect
from watchdog.options import stop_file


class Simulation(World):
    """One node, from a seed; `step` does one thing."""

    def __init__(self, seed: str, folder: Path) -> None:
        super().__init__(seed, folder)
        focus = seed.partition("/")[0]
        happens = [*_CALM, *_FOCUS.get(focus, ())] if focus in FOCUSED else _ACTIONS
        if focus == "fault":  # the stored episodes of faults go on as they did
            happens = [action for action in happens if action not in _LATER]
        # What a focus names twice happens twice as often.
        table = [(weight * happens.count(action), action) for weight, action in (*_TABLE, *_FOCUSED_TABLE)]
        self._weights, self._actions = zip(*((weight, action) for weight, action in table if weight), strict=True)
        pods.populate(self)
        if self.control is not None:
            self.control.replace = self._replace

    def step(self) -> None:
        """Let one thing happen."""
        self.steps += 1
        (action,) = self.dice.choices(self._actions, self._weights)
        try:
            action(self)
        except KillNine:
            self.say("kill -9 in the middle")
            self.kill_nine()

    def close(self) -> None:
        """Leave nothing open: the daemon ends, and so does the writing of the policy."""
        self.kill_nine()
        _end_writing(self)

    def _replace(self, drained: Task) -> None:
        """A program notices that its worker has lost its GPU: it ends, or starts another one, or does nothing."""
        what = self.dice.random()
        if what < 0.3:
            self.kernel.die(drained)
        elif what < 0.6 and (successor := processes.start(self, drained.pod, drained.container)):
            processes.hold(self, successor)
            self.say("worker replaced")

    def race(self) -> None:
        (action,) = self.dice.choices(_RACES, _RACE_WEIGHTS)
        action(self)


def _cycle(sim: World) -> None:
    interval_s = sim.policy.interval_s
    sim.pass_by(sim.dice.choice([interval_s, interval_s, interval_s, interval_s / 2, 0.25, 2 * interval_s]))
    pods.toggle(sim)
    processes.dip(sim)
    life = sim.alive()
    if sim.dice.random() < 0.7:
        life.beat()
    life.advance()
    life.look()
    sim.book.seen["cycle"] += 1


def _wake(sim: World) -> None:
    sim.pass_by(sim.dice.choice([0.05, 0.25, 0.5, 1.0]))
    if sim.life is not None:
        if sim.dice.random() < 0.5:
            sim.life.beat()
        sim.life.advance()


def _reload(sim: World) -> None:
    policy = generate(sim.dice) if sim.dice.random() < 0.15 else mutate(sim.dice, sim.policy)
    _end_writing(sim)
    sim.policy = policy
    sim.swaps += 1
    sim.say(f"policy changed: {policy.mode}")


def _write_policy(sim: World) -> None:
    """The policy is written in place, with pauses; what is there until then protects no pod and has no brakes."""
    if sim.writer is None:
        if sim.life is not None and not sim.life.has_seen_swaps:
            return
        sim.writer = sim.policy_file.open("a", encoding="utf-8")
        none_spared = Protect(priority_at_least=2**31 - 1)
        sim.half = replace(sim.policy, mode="enforce", brakes=Brakes(), protect=none_spared)
    sim.writer.write("#\n")
    sim.writer.flush()
    sim.say("policy is being written")
    if sim.dice.random() < 0.2:
        sim.policy = mutate(sim.dice, sim.policy)
        _end_writing(sim)
        sim.say(f"policy written: {sim.policy.mode}")


def _end_writing(sim: World) -> None:
    if sim.writer is not None:
        sim.writer.close()
        sim.writer = sim.half = None


def _stop_file(sim: World) -> None:
    stop = stop_file(sim.journal)
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


def _lose_card(sim: World) -> None:
    """A card drops out, and the daemon that comes next has never seen it."""
    card = sim.dice.choice(sorted(sim.cards.sizes))
    is_known = sim.life is not None and sim.cards.state.get(card) is not Card.LOST
    sim.cards.state[card] = Card.LOST
    _restart(sim)
    sim.alive()
    sim.say("card lost across a restart" if is_known else "daemon started without a card")


def _reboot(sim: World) -> None:
    sim.kill_nine()
    sim.kernel.restart()
    sim.clock.reboot(whole(sim.dice.choice([5.0, 60.0])))
    sim.book.brakes.doubt(sim.clock.now())
    sim.book.transfers.daemon_starts()
    sim.book.transfers.forget()
    sim.cards.silent.clear()
    sim.say("reboot")


def _well(sim: World) -> None:
    """Everything heals: without that a node with that many faults would soon see nothing any more."""
    sim.cards.state.clear()
    sim.cards.silent.clear()
    sim.cards.blind = False
    sim.cluster.frozen = False
    sim.cluster.missing.clear()
    sim.cluster.labelled = True
    sim.cluster.claims.refused = False
    sim.disk_full = False
    sim.slow_s = sim.second_slow_s = sim.stall_s = 0.0
    stop_file(sim.journal).unlink(missing_ok=True)
    processes.heal(sim)
    pods.undrain(sim)


Action = Callable[[World], None]
_TABLE: Final[tuple[tuple[float, Action], ...]] = (
    (45.0, _cycle), (12.0, _wake),
    (14.0, processes.allocate), (6.0, processes.waver), (0.8, processes.begin_dipping),
    (1.0, processes.stampede), (4.0, processes.release),
    (3.0, processes.fork), (2.0, processes.end), (1.0, processes.recycle), (1.0, processes.character),
    (1.0, processes.transfer), (0.7, processes.lie), (0.7, servers.begin_or_end),
    (4.0, pods.crash_loop), (6.0, pods.restart_containers), (1.5, pods.create), (1.0, pods.delete),
    (0.6, pods.terminate), (0.2, pods.linger), (1.5, pods.change), (2.5, pods.begin_toggling), (3.0, pods.learn),
    (2.0, pods.renew_container), (0.8, pods.turn_phase), (0.4, pods.debug), (0.4, pods.lose_labels), (0.5, pods.freeze),
    (0.4, pods.lose_from_list), (0.6, pods.delete_by_force),
    (0.8, troubles.card), (0.15, troubles.blind), (2.5, _well),
    (0.8, _reload), (1.0, _write_policy), (0.3, _stop_file), (0.3, _restart), (0.4, _lose_card), (0.3, _kill),
    (0.08, _reboot),
    (0.2, troubles.disk), (0.3, troubles.lose_under_the_daemon), (0.2, troubles.lose_between_daemons),
    (0.2, troubles.driver_speed), (0.3, troubles.disk_speed), (0.4, troubles.clock_jumps), (0.3, troubles.suspend),
    (1.5, pods.create_unlisted), (1.0, pods.drop_resources), (0.5, pods.fatten),
    (1.5, claimants.create), (0.4, claimants.hand_on), (0.4, claimants.refuse),
)  # fmt: skip
_ACTIONS: Final = [action for _, action in _TABLE]
# Than the stored episodes of faults.
_LATER: Final = (
    *(pods.create_unlisted, pods.drop_resources, pods.fatten),
    *(claimants.create, claimants.hand_on, claimants.refuse),
)
# What happens only where a seed is for it.
_FOCUSED_TABLE: Final[tuple[tuple[float, Action], ...]] = ((1.0, troubles.minutes),)
# What happens where a seed is for one kind of situation: every reading is complete, and no policy changes.
_CALM: Final = (
    *(_cycle, _wake, _well, processes.allocate, processes.waver, processes.stampede, processes.release, processes.fork),
    *(processes.end, pods.crash_loop, pods.create, pods.delete, pods.learn),
)
# What happens there besides.
_FOCUS: Final[dict[str, tuple[Action, ...]]] = {
    "cards": (_lose_card,),
    "claims": (*(claimants.create,) * 4, claimants.hand_on, claimants.refuse, _restart),
    "transfers": (*(processes.transfer,) * 6, troubles.suspend, troubles.minutes, _restart),
    "deletions": (pods.linger, pods.delete_by_force),
    "fat": (pods.fatten, pods.fatten, pods.begin_toggling, pods.begin_toggling),
    "dips": (processes.begin_dipping, pods.restart_containers),
    "journals": (troubles.lose_under_the_daemon, _kill),
    "labels": (pods.begin_toggling, pods.begin_toggling),
    "mps": (servers.begin_or_end, _stop_file, _write_policy, _kill),
    "reboots": (_reboot,),
    "shared": (servers.begin_or_end,),
    "slots": (processes.stampede,),
    "unlisted": (pods.create_unlisted, pods.drop_resources),
}
_RACE_TABLE: Final[tuple[tuple[float, Action], ...]] = (
    (3.0, processes.release), (3.0, processes.fork), (3.0, processes.end), (3.0, processes.recycle),
    (1.0, processes.character), (1.0, processes.allocate),
    (1.0, pods.delete), (0.6, pods.terminate), (2.0, pods.change), (3.0, pods.allow_more), (1.5, pods.drain),
    (0.6, pods.renew_container), (0.3, pods.lose_labels),
    (0.3, servers.begin_or_end), (0.8, troubles.card), (0.5, _reload), (0.5, _stop_file),
)  # fmt: skip
_RACE_WEIGHTS: Final = [weight for weight, _ in _RACE_TABLE]
_RACES: Final = [action for _, action in _RACE_TABLE]
