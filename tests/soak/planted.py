"""The faults that the soak must find. The seven without which it would prove nothing come first."""

from typing import Final

from tests.soak.faults import Edit, Fault

BRAKES: Final = "law 6"
FAULTS: Final = (
    Fault(
        "a brake that forgets on restart",
        BRAKES,
        (Edit("export/journal.py", "return self._kept.memory(now)", "return BrakeMemory()"),),
    ),
    Fault(
        "a ladder that counts gaps",
        "law 5",
        (Edit("core/ladder.py", "    if reading is Reading.INCONCLUSIVE:\n        return timer\n", ""),),
    ),
    Fault(
        "a victim by PID alone",
        "law 4",
        (
            Edit(
                "node/listings.py", "first is None or first == process.key", "first is None or first.pid == process.pid"
            ),
        ),
    ),
    Fault(
        "a unit mixed up",
        "law 4",
        (Edit("core/amount.py", "exact = number * unit", "exact = number * (1 if unit == 2**20 else unit)"),),
    ),
    Fault(
        "a protection looked up after the act",
        "law 4",
        (Edit("cycle/second_look.py", "assessment.rule is not entry.rule or assessment.protected is not None or", ""),),
    ),
    Fault(
        "observe and enforce differing",
        "law 7",
        (
            Edit(
                "cycle/cycle.py",
                "self.ledger, asked, view.conditions)",
                "self.ledger, asked, replace(view.conditions, pods_stale=not view.enforcing))",
            ),
        ),
    ),
    Fault(
        "an order of pods that matters",
        "law 2",
        (
            Edit("core/decide.py", "in sorted(others, key=urgency)", "in others"),
            Edit("core/decide.py", "in sorted(candidates, key=_turn)", "in candidates"),
        ),
    ),
    Fault(
        "a gap that counts in full",
        "law 5",
        (Edit("core/ladder.py", "min(blind_s, policy.interval_s)", "blind_s"),),
    ),
    Fault(
        "a rule that observes and acts",
        "law 7",
        (
            Edit("core/passes.py", "return self.enforcing and not entry.assessment.observes", "return self.enforcing"),
            Edit(
                "cycle/second_look.py",
                "assessment.protected is not None or assessment.observes",
                "assessment.protected is not None",
            ),
        ),
    ),
    Fault(
        "a grace that goes on although force was withdrawn",
        "point 20",
        (Edit("act/kills.py", "deed.is_in_grace and (reason := objection", "False and (reason := objection"),),
    ),
    Fault(
        "a grace that goes on although its pod has gone from the list",
        "point 20",
        (Edit("loop/surroundings.py", "if pod is None and view.pods.synced is not None:", "if False:"),),
    ),
    Fault(
        "a half-open breaker that lets two through",
        BRAKES,
        (
            Edit(
                "core/breaker.py",
                "return max(half_open_s - now_s, last_s + breaker.hold_s - now_s, 0.0)",
                "return max(half_open_s - now_s, 0.0)",
            ),
        ),
    ),
    Fault(
        "a breaker that never opens",
        BRAKES,
        (Edit("core/breaker.py", "if is_crowded and not blind else", "if False else"),),
    ),
    Fault(
        "a window off by one",
        BRAKES,
        (
            Edit("core/brakes.py", "or len(deeds) < window.count", "or len(deeds) <= window.count"),
            Edit("core/brakes.py", "deeds[-window.count].at_s", "deeds[-window.count - 1].at_s"),
        ),
    ),
    Fault(
        "a back-off that does not grow", BRAKES, (Edit("core/brakes.py", "wait_s *= backoff.factor", "wait_s *= 1"),)
    ),
    Fault(
        "a brake that forgets on reboot",
        BRAKES,
        (Edit("core/brakes.py", "return now.boottime_s - max(now.wall_s - then.wall_s, 0.0)", "return -1e9"),),
    ),
    Fault(
        "unknown bytes that count",
        "law 4",
        (Edit("core/assess.py", "sum(use.used or 0 for use in own)", "sum(use.used or 2**40 for use in own)"),),
    ),
    Fault(
        "a spoofed cgroup believed",
        "law 4",
        (Edit("core/attribute.py", "        if holders:\n            return Reason.SPOOFED\n", ""),),
    ),
    Fault(
        "a stale list acted on",
        "law 3",
        (Edit("loop/sources.py", "> policy.stale_after_s", "> 9 * policy.stale_after_s"),),
    ),
    Fault(
        "SIGKILL before the grace is over",
        "point 23",
        (
            Edit(
                "act/deed.py",
                "start_s + self.entry.definition.grace_s\n",
                "start_s + self.entry.definition.grace_s / 2\n",
            ),
        ),
    ),
    Fault(
        "no second look",
        "law 4",
        (Edit("cycle/cycle.py", "again = renew(entry, renewed.get(entry.account), now)", "again = entry"),),
    ),
    Fault(
        "a recovery that resets nothing",
        "law 5",
        (
            Edit(
                "core/ladder.py",
                "if reading is Reading.BELOW:\n        return None",
                "if reading is Reading.BELOW:\n        return timer",
            ),
            Edit(
                "core/ladder.py",
                "        calm=assessment,\n",
                "        timers=before.timers if before is not None else {},\n",
            ),
        ),
    ),
    Fault(
        "enforcement that goes on with the ladders of observing",
        "law 5",
        (
            Edit(
                "core/ledger.py",
                "key: AccountState(\n                    rule=state.rule, declared=state.declared,",
                "key: replace(\n                    state, observed=False,",
            ),
            Edit("core/ledger.py", "                if state.has_deed\n", ""),
        ),
    ),
    Fault(
        "a deed that does not wait for the last one",
        "point 24",
        (Edit("core/gate.py", "None if hastens else self._busy_until_s(entry)", "None"),),
    ),
    Fault(
        "memory taken for free while it is listed",
        "point 24",
        (Edit("act/deed.py", "if not any(still_listed(key) for key in self._handles):", "if True:"),),
    ),
    Fault(
        "one out of reach and the others are signalled",
        "point 23",
        (
            Edit(
                "act/kills.py",
                'raise PermissionError(f"no right to signal process {handle.key.pid}; it takes CAP_KILL") from error',
                "continue",
            ),
        ),
    ),
    Fault(
        "an intention that is not committed",
        "point 31",
        (
            Edit(
                "export/journal.py",
                "self._file.transaction(write)\n        self._kept.add",
                'self._file.use(lambda c: (c.execute("SAVEPOINT a"), write(c)))\n        self._kept.add',
            ),
        ),
    ),
    Fault(
        "a mark of force below what is allowed",
        "law 4",
        (Edit("core/policy.py", "return max(height, allowed) if do.is_force else height", "return height"),),
    ),
    Fault(
        "the wrong container",
        "law 4",
        (Edit("core/victim.py", "return min(candidates, key=lambda s:", "return max(candidates, key=lambda s:"),),
    ),
    Fault(
        "a single process that gave enough back and is killed",
        "point 22",
        (Edit("act/kills.py", "assessment.used <= deed.entry.height", "assessment.used < 0"),),
    ),
    Fault(
        "unknown bytes that are lost",
        "law 1",
        (
            Edit(
                "core/attribute.py",
                "in sorted(snapshot.uses,",
                "in sorted((use for use in snapshot.uses if use.used is not None),",
            ),
        ),
    ),
    Fault(
        "one deed under way that holds up all others",
        "law 10",
        (
            Edit(
                "core/gate.py",
                "waits = [self._busy.get((uid, None)), self._busy.get((uid, entry.victim))]",
                "waits = list(self._busy.values())",
            ),
        ),
    ),
)
