"""Recordings: what they cost at rest, how much disk a day takes, and how long replaying it takes.

`python -m bench.past` prints the figures in docs/replay.md.
"""

import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.table import digits, head, line
from tests.past.life import Life, State, replayed
from tests.worlds import Gi, Mi, at, container, gpu, owner, pod, policy, rule, step
from watchdog.core.model import Pod
from watchdog.journal.recorder import Recorder
from watchdog.past.hour import recorded_hour

DAY_S: Final = 86_400
GPUS: Final = 8
_LADDER: Final = (step("100%", 30, "warn"), step("110%", 10, "kill"), step("150%", 0, "kill"))
UNDER: Final = policy(rule(*_LADDER))
OTHER: Final = policy(rule(step("105%", 60, "kill"), step("130%", 5, "kill")))


def past() -> None:
    """Measure all of it."""
    columns = (
        "pods", "processes", "each moves every", "hours", "a GPU and day, KiB", "replay, s", "cycles decided",
        "last hour read back, s of CPU",
    )  # fmt: skip
    rows = (_lived(20, 20, 0.0, DAY_S), _lived(40, 100, 300.0, DAY_S), _lived(40, 100, 1.0, DAY_S // 24))
    print(f"The past ({GPUS} GPUs, a cycle each second)\n\n{head(*columns)}", *(line(*row) for row in rows), sep="\n")
    print(f"\nRecording a cycle in which nothing has changed\n\n{head('processes', 'ms')}")
    print(line(*_rest(100)), line(*_rest(1000)), sep="\n")


def day(seconds: int, pods: int, processes: int, every_s: float, seed: int = 1) -> Iterator[tuple[float, State]]:
    """A node's cycles; each process's use changes by 128Mi or more every `every_s` seconds on average (0: never).

    Unless nothing changes, a pod is replaced every quarter of an hour.
    """
    dice = random.Random(seed)
    cards = tuple(gpu(number, 80 * Gi) for number in range(GPUS))
    tenants = {number: _tenant(number) for number in range(pods)}
    places = [(_place(number % pods, number // pods), number % GPUS) for number in range(processes)]
    used: dict[tuple[str, int], int | None] = dict.fromkeys(places, 4 * Gi)
    state = State(used=dict(used), pods=tuple(tenants.values()), gpus=cards)
    for second in range(seconds):
        moving = [place for place in used if every_s and dice.random() < 1 / every_s]
        if every_s and second % 900 == 899:
            gone = dice.choice(list(tenants))
            new = max(tenants) + 1
            tenants[new] = _tenant(new)
            del tenants[gone]
            used = {_moved_in(place, gone, new): amount for place, amount in used.items()}
            moving = []
        for place in moving:
            used[place] = dice.choice([1, 2, 3, 4, 5, 6]) * Gi + dice.randrange(8) * 128 * Mi
        if moving or (every_s and second % 900 == 899):
            state = replace(state, used=dict(used), pods=tuple(tenants.values()))
        yield float(second), state


def _tenant(number: int) -> Pod:
    uid = f"{number:08x}-1111-4222-8333-444444444444"
    names = [container(f"main-{index}", "6Gi", of=uid) for index in range(3)]
    labels = {"app": "trainer", "tier": "prod", "pod-template-hash": f"{number:010x}"}
    notes = {f"example.org/note-{index}": f"{number:08x}" * 4 for index in range(5)}
    return pod(
        uid,
        *names,
        namespace=f"team-{number % 10}",
        labels=labels,
        annotations=notes,
        owner=owner(name=f"t-{number % 20}"),
    )


def _place(number: int, index: int) -> str:
    return f"{number:08x}-1111-4222-8333-444444444444/main-{index}"


def _moved_in(place: tuple[str, int], gone: int, new: int) -> tuple[str, int]:
    where, card = place
    return (where.replace(f"{gone:08x}-", f"{new:08x}-", 1), card)


def _lived(pods: int, processes: int, every_s: float, seconds: int) -> tuple[object, ...]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        Life(path, UNDER).run(day(seconds, pods, processes, every_s))
        began_s = time.perf_counter()
        found = replayed(path, OTHER)
        took_s = time.perf_counter() - began_s
        began_s = time.thread_time()
        recorded_hour(path, UNDER, at(seconds))
        hour_s = time.thread_time() - began_s
        daily = path.stat().st_size / 1024 / GPUS * DAY_S / seconds
        moves = f"{every_s:g} s" if every_s else "never"
        return (
            pods,
            processes,
            moves,
            seconds // 3600,
            f"{daily:,.0f}",
            f"{took_s:.1f}",
            f"{found.cycles:,}",
            digits(hour_s),
        )


def _rest(processes: int) -> tuple[object, ...]:
    """A recorder on identical cycles."""
    with tempfile.TemporaryDirectory() as folder:
        life = Life(Path(folder) / "journal.db", UNDER)
        state = next(day(1, 40, processes, 0.0))[1]
        reports = [life.see(state, at(second)) for second in range(1000)]
        recorder = Recorder()
        recorder.record(reports[0], life.journal)
        began_s = time.perf_counter()
        for report in reports[1:]:
            recorder.record(report, life.journal)
        took_s = (time.perf_counter() - began_s) / (len(reports) - 1)
        life.end()
        return processes, digits(took_s * 1000)


if __name__ == "__main__":
    past()
