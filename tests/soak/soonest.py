"""The episode (its seed and steps) in which `make soak` found each planted fault soonest.

Another code gives other histories: what is not found there is looked for in others.
"""

from typing import Final

SOONEST: Final = {
    "a brake that forgets on restart": ("fault/8", 357),
    "a ladder that counts gaps": ("fault/1", 69),
    "a victim by PID alone": ("fault/0", 39),
    "a unit mixed up": ("fault/1", 27),
    "a protection looked up after the act": ("fault/0", 162),
    "observe and enforce differing": ("fault/0", 4),
    "an order of pods that matters": ("fault/13", 1078),
    "a gap that counts in full": ("fault/1", 87),
    "a rule that observes and acts": ("fault/10", 240),
    "a grace that goes on although force was withdrawn": ("fault/20", 1219),
    "a grace that goes on although its pod has gone from the list": ("fault/1", 41),
    "a half-open breaker that lets two through": ("fault/23", 815),
    "a breaker that never opens": ("fault/5", 6),
    "a window off by one": ("fault/1", 334),
    "a back-off that does not grow": ("fault/19", 383),
    "a brake that forgets on reboot": ("fault/4", 455),
    "unknown bytes that count": ("fault/1", 3),
    "a spoofed cgroup believed": ("fault/8", 368),
    "a stale list acted on": ("fault/22", 379),
    "SIGKILL before the grace is over": ("fault/1", 29),
    "no second look": ("fault/0", 162),
    "a recovery that resets nothing": ("fault/37", 3060),
    "enforcement that goes on with the ladders of observing": ("fault/2", 274),
    "a deed that does not wait for the last one": ("fault/1", 77),
    "memory taken for free while it is listed": ("fault/0", 219),
    "one out of reach and the others are signalled": ("fault/10", 7),
    "a mark of force below what is allowed": ("fault/8", 28),
    "the wrong container": ("fault/2", 50),
    "a single process that gave enough back and is killed": ("fault/25", 1026),
    "unknown bytes that are lost": ("fault/0", 39),
    "one deed under way that holds up all others": ("fault/11", 1887),
}
