"""`python -m tests.soak`: the long run, or one episode of it again."""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from functools import partial

from tests.soak.coverage import missing, table
from tests.soak.faults import prove
from tests.soak.planted import FAULTS
from tests.soak.run import Tally, episode, soak


def main() -> int:
    """Run; 1 where a law was broken, a situation was never met, or a planted fault was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000, help="how many in all (default: %(default)s)")
    parser.add_argument("--seed", default="1", help="another one, another history (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="side by side (default: %(default)s)")
    parser.add_argument("--faults", type=int, default=0, help="look for each planted fault with up to this many seeds")
    parser.add_argument("--episode", help="run the one episode with this seed, as a failure names it")
    chosen = parser.parse_args()
    if chosen.episode is not None:
        one = episode(chosen.episode, chosen.steps)
        print(one.failure or f"{one.steps} steps, nothing found")
        return 1 if one.failure else 0
    status = _run(chosen.seed, chosen.steps, chosen.processes)
    return (_prove(chosen.faults, chosen.processes) or status) if chosen.faults else status


def _run(seed: str, steps: int, processes: int) -> int:
    began = time.monotonic()
    share = -(-steps // processes)
    with ProcessPoolExecutor(processes) as pool:
        runs = [pool.submit(soak, f"{seed}.{number}", share) for number in range(processes)]
        total = Tally()
        for run in as_completed(runs):
            tally = run.result()
            total.add(tally)
            if tally.failure:
                print(f"found after {tally.steps} steps: {tally.failure}\n", flush=True)
    print(f"{table(total)}\n{time.monotonic() - began:.0f} s")
    never = missing(total) if not total.failure else []
    if never:
        print(f"\nnever met: {', '.join(never)}")
    return 1 if total.failure or never else 0


def _prove(seeds: int, processes: int) -> int:
    print("\nplanted faults:")
    status = 0
    with ThreadPoolExecutor(processes) as pool:
        proofs = pool.map(partial(prove, seeds=seeds), FAULTS.values())
        for name, (tried, found) in zip(FAULTS, proofs, strict=True):
            soonest = f" (soonest: {found[0][1]}, step {found[0][0]})" if found else ""
            print(f"{len(found):>4} of {tried:<3} {name}{soonest}", flush=True)
            status = status if found else 1
    return status


if __name__ == "__main__":
    sys.exit(main())
