"""The episode (its seed and steps) in which `make soak` found each planted fault soonest.

Another code gives other histories: what is not found there is looked for in others.
"""

from typing import Final

SOONEST: Final = {
    "a brake that forgets on restart": ("fault/1", 1068),
    "a ladder that counts gaps": ("fault/0", 569),
    "a victim by PID alone": ("fault/0", 71),
    "a unit mixed up": ("fault/0", 1397),
    "a protection looked up after the act": ("fault/2", 1454),
    "observe and enforce differing": ("fault/0", 4),
    "an order of pods that matters": ("fault/0", 344),
    "a gap that counts in full": ("fault/1", 87),
    "a rule that observes and acts": ("fault/5", 1165),
    "a grace that goes on although force was withdrawn": ("fault/3", 248),
    "a grace that goes on although its pod has gone from the list": ("fault/1", 41),
    "a half-open breaker that lets two through": ("fault/24", 510),
    "a breaker that never opens": ("fault/5", 6),
    "a window off by one": ("fault/0", 622),
    "a back-off that does not grow": ("fault/0", 1344),
    "a brake that forgets on reboot": ("fault/1", 1068),
    "unknown bytes that count": ("fault/1", 62),
    "a spoofed cgroup believed": ("fault/0", 132),
    "a stale list acted on": ("fault/6", 116),
    "SIGKILL before the grace is over": ("fault/1", 35),
    "no second look": ("fault/0", 1022),
    "a recovery that resets nothing": ("fault/3", 2342),
    "enforcement that goes on with the ladders of observing": ("fault/6", 821),
    "a deed that does not wait for the last one": ("fault/1", 77),
    "memory taken for free while it is listed": ("fault/0", 346),
    "one out of reach and the others are signalled": ("fault/10", 7),
    "a mark of force below what is allowed": ("fault/2", 997),
    "the wrong container": ("fault/2", 50),
    "a single process that gave enough back and is killed": ("fault/45", 470),
    "unknown bytes that are lost": ("fault/0", 71),
    "one deed under way that holds up all others": ("fault/1", 516),
}
