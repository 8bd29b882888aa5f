"""The faults that the soak must find. The seven without which it would prove nothing come first."""

from typing import Final

from tests.soak.faults import Edit, Fault

BRAKES: Final = "law 6"
FAULTS: Final = (
    Fault(
        "a brake that forgets on restart",
        BRAKES,
        (Edit("journal/journal.py", "return self.kept.memory(now)", "return BrakeMemory()"),),
    ),
    Fault(
        "a ladder that counts gaps",
        "law 5",
        (
            Edit("core/ladder.py", "    if not is_blind and (stretches", "    if (stretches"),
            Edit(
                "core/ladder.py",
                "return None if is_sure else before",
                "return None if is_sure else replace(before, counted_s=before.counted_s + policy.interval_s)",
            ),
        ),
    ),
    Fault(
        "a victim by PID alone",
        "law 4",
        (Edit("node/scan.py", "first is None or first == process.key", "first is None or first.pid == process.pid"),),
    ),
    Fault(
        "a unit mixed up",
        "law 4",
        (Edit("core/amount.py", "math.ceil(number * unit)", "math.ceil(number * (1 if unit == 2**20 else unit))"),),
    ),
    Fault(
        "a protection looked up after the act",
        "law 4",
        (
            Edit("daemon/last_look.py", "    if assessment.rule is not entry.rule:\n", "    if False:\n"),
            Edit("daemon/last_look.py", "    if assessment.protected is not None:\n", "    if False:\n"),
            Edit("daemon/last_look.py", "    if is_same and pod in inputs.pods.pods:\n", "    if True:\n"),
            Edit("daemon/sources.py", "return None if protected is None else", "return None if True else"),
        ),
    ),
    Fault(
        "observe and enforce differing",
        "law 7",
        (
            Edit(
                "daemon/cycle.py",
                "self.ledger, asked, inputs)",
                "self.ledger, asked, replace(inputs, pods_stale=not inputs.enforcing))",
            ),
        ),
    ),
    Fault(
        "an order of pods that matters",
        "law 2",
        (
            Edit("core/decide.py", "in sorted(others, key=urgency)", "in others"),
            Edit("core/decide.py", "return sorted(candidates, key=order_of)", "return list(candidates)"),
        ),
    ),
    Fault(
        "a gap that counts in full",
        "law 5",
        (
            Edit(
                "core/ladder.py",
                "min(alone.last.boottime_s - before.last.boottime_s, policy.interval_s)",
                "(alone.last.boottime_s - before.last.boottime_s)",
            ),
        ),
    ),
    Fault(
        "a rule that observes and acts",
        "law 7",
        (
            Edit("core/assessment.py", "return self.enforcing and not assessment.observes", "return self.enforcing"),
            Edit("daemon/last_look.py", "    if assessment.observes:\n", "    if False:\n"),
            Edit("daemon/sources.py", "or not enforces or observes(rule, now)", "or not enforces"),
        ),
    ),
    Fault(
        "a grace that goes on although force was withdrawn",
        "point 20",
        (Edit("daemon/kill.py", "kill.is_in_grace and (reason := objection", "False and (reason := objection"),),
    ),
    Fault(
        "half a policy that is loaded",
        "point 20",
        (Edit("config/watch.py", "is_still and not _has_writer(self.path)", "is_still"),),
    ),
    Fault(
        "a first signal while the policy is being written",
        "point 20",
        (Edit("daemon/enforcement.py", "if not (self.enforcing or self.suspended):", "if True:"),),
    ),
    Fault(
        "a grace that ends while the policy is being written",
        "point 20",
        (Edit("daemon/kill.py", "                if policy_unsettled:\n", "                if False:\n"),),
    ),
    Fault(
        "a grace that goes on although its pod has gone from the list",
        "point 20",
        (Edit("daemon/sources.py", "if pod is None and inputs.pods.synced is not None:", "if False:"),),
        seeds="process",
    ),
    Fault(
        "a half-open breaker that lets two through",
        BRAKES,
        (
            Edit(
                "core/brakes.py",
                "return max(half_open_s - now_s, last_s + breaker.hold_s - now_s, 0.0)",
                "return max(half_open_s - now_s, 0.0)",
            ),
        ),
        seeds="breaker",
    ),
    Fault(
        "a breaker that never opens",
        BRAKES,
        (Edit("core/brakes.py", "if has_reached and not blind else", "if False else"),),
    ),
    Fault(
        "decoys that go before the account most bytes over",
        "point 25",
        (Edit("core/gate.py", "return (-over, assessment.pod.priority or 0,", "return (over, 0,"),),
    ),
    Fault(
        "a journal that is lost under the daemon and gets nothing back",
        BRAKES,
        (Edit("journal/actions.py", "lacked = self.write_missing(connection)", "lacked = 0"),),
    ),
    Fault(
        "a journal lost between two daemons that counts as a new node's",
        BRAKES,
        (Edit("daemon/sinks.py", "journal.presume(now)", "pass"),),
    ),
    Fault(
        "brakes that count as full for half their time",
        BRAKES,
        (Edit("core/brakes.py", "self.lost_s + whole_s - now_s", "self.lost_s + whole_s / 2 - now_s"),),
    ),
    Fault(
        "a window off by one",
        BRAKES,
        (
            Edit("core/brakes.py", "if len(actions) >= window.count", "if len(actions) > window.count"),
            Edit("core/brakes.py", "actions[-window.count].at_s", "actions[-window.count - 1].at_s"),
        ),
    ),
    Fault(
        "a back-off that does not grow", BRAKES, (Edit("core/brakes.py", "wait_s *= backoff.factor", "wait_s *= 1"),)
    ),
    Fault(
        "a brake that forgets on reboot",
        BRAKES,
        (Edit("core/brakes.py", "return now.boottime_s - max(now.wall_s - then.wall_s, 0.0)", "return -1e9"),),
        seeds="reboots",
    ),
    Fault(
        "unknown bytes that count",
        "law 4",
        (Edit("core/assess.py", "sum(use.used or 0 for use in own if", "sum(use.used or 2**40 for use in own if"),),
    ),
    Fault(
        "a spoofed cgroup believed",
        "law 4",
        (Edit("core/attribute.py", "        if matching:\n            return Reason.SPOOFED\n", ""),),
    ),
    Fault(
        "a stale list acted on",
        "law 3",
        (Edit("daemon/sources.py", "> policy.stale_after_s", "> 9 * policy.stale_after_s"),),
    ),
    Fault(
        "SIGKILL before the grace is over",
        "point 23",
        (
            Edit(
                "daemon/kill.py",
                "start_s + self.entry.definition.grace_s\n",
                "start_s + self.entry.definition.grace_s / 2\n",
            ),
        ),
    ),
    Fault(
        "no last look",
        "law 4",
        (Edit("daemon/last_look.py", "return update(entry, reassessed.get(entry.account), now)", "return entry"),),
    ),
    Fault(
        "a last look that forgets what was allowed before",
        "law 5",
        (Edit("daemon/last_look.py", "if stretch is None or entry.definition.for_s <= 0:", "if True:"),),
    ),
    Fault(
        "a last look before the commit instead of after it",
        "point 22",
        (
            Edit(
                "daemon/last_look.py",
                "if not self.opened.is_written and",
                "if self._requests and not self.opened.is_written and",
            ),
            Edit(
                "core/plan.py",
                "is_on_disk = any(future.done() and future.exception() is None for future in futures)",
                "is_on_disk = any(True for _ in futures)",
            ),
        ),
    ),
    Fault(
        "a last look that may be old",
        "point 22",
        (
            Edit("daemon/last_look.py", "is_in_time = reading.took_s <= FRESH_S", "is_in_time = True"),
            Edit("daemon/last_look.py", "FRESH_S: Final = 2.0", "FRESH_S: Final = 60.0"),
        ),
    ),
    Fault(
        "a recovery that resets nothing",
        "law 5",
        (
            Edit("core/ladder.py", "return None if is_sure else before", "return before"),
            Edit("core/ledger.py", "0 <= gap_s < reset_after_s", "0 <= gap_s"),
        ),
    ),
    Fault(
        "a deletion that shields for as long as its grace",
        "law 1[01]",
        (Edit("core/rules.py", "MOST_TERMINATING_S: Final = 600.0", "MOST_TERMINATING_S: Final = 1e9"),),
        seeds="deletions",
    ),
    Fault(
        "a reset triggered by a tenant",
        "law 11",
        (
            Edit(
                "core/ladder.py",
                "before, used = state.stretches.get(key), _compared",
                "before, used = state.stretches.get(key) if is_current else None, _compared",
            ),
        ),
    ),
    Fault(
        "a reset triggered by a byte in an annotation",
        "law 11",
        (
            Edit(
                "core/ladder.py",
                "if before is None or not",
                "if before is None or before.threshold_bytes != alone.threshold_bytes or not",
            ),
        ),
    ),
    Fault(
        "a relabel that kills at once",
        "law 5",
        (Edit("core/ladder.py", "for rule in policy.rules if rule.name in ran_under]", "for rule in policy.rules]"),),
    ),
    Fault(
        "enforcement that goes on with the ladders of observing",
        "law 5",
        (
            Edit(
                "core/ledger.py",
                "key: AccountState(under_way=state.under_way, pending_eviction=state.pending_eviction)",
                "key: replace(state, observed=frozenset())",
            ),
            Edit("core/ledger.py", "            if state.has_action\n        }", "        }"),
        ),
    ),
    Fault(
        "a grace period that ends with the first processes",
        "point 23",
        (
            Edit(
                "daemon/kill.py",
                "now.boottime_s < self._grace_ends_s:",
                "now.boottime_s < self._grace_ends_s and self._close_ended():",
            ),
        ),
    ),
    Fault(
        "an action that does not wait for the last one",
        "point 24",
        (Edit("core/gate.py", "None if escalates else self._busy_until_s(entry)", "None"),),
    ),
    Fault(
        "memory taken for free while it is listed",
        "point 24",
        (Edit("daemon/kill.py", "if not any(still_listed(key) for key in self._handles):", "if True:"),),
    ),
    Fault(
        "one out of reach and the others are signalled",
        "point 23",
        (
            Edit(
                "daemon/kill.py",
                "_close(handles)\n                denied",
                "continue\n                denied",
            ),
        ),
    ),
    Fault(
        "an intention that is not committed",
        "point 31",
        (
            Edit(
                "journal/journal.py",
                "self._file.transaction(write)\n        self.kept.add",
                'self._file.use(lambda c: (c.execute("SAVEPOINT a"), write(c)))\n        self.kept.add',
            ),
        ),
    ),
    Fault(
        "a mark of force below what is allowed",
        "law 4",
        (
            Edit(
                "core/policy.py",
                "max(threshold_bytes, allowed) if do.enforces else threshold_bytes, LARGEST",
                "threshold_bytes, LARGEST",
            ),
        ),
    ),
    Fault(
        "the wrong container",
        "law 4",
        (Edit("core/decide.py", "min(excess)[2]", "max(excess)[2]"),),
    ),
    Fault(
        "the default applied to what cannot be determined",
        "law 4",
        (
            Edit(
                "core/declare.py",
                "            if amount is not None:\n                return order, replace(amount, count=_count",
                "            if amount is not None and amount.size is not None:\n"
                "                return order, replace(amount, count=_count",
            ),
        ),
    ),
    Fault(
        "an annotation judged by the cards that are left",
        "law 4",
        (Edit("core/declare.py", "(self.cards.complete or is_beyond_any):", "True:"),),
        seeds="cards",
    ),
    Fault(
        "a container within its own declaration that is a victim",
        "law 4",
        (Edit("core/decide.py", "share.container and used > own", "share.container and used"),),
    ),
    Fault(
        "a container that the list does not have yet, counted at once",
        "law 4",
        (Edit("core/assess.py", "return not use.container and (", "return False and ("),),
    ),
    Fault(
        "the phase of an old list",
        "law 4",
        (Edit("core/assess.py", "    if not account.is_behind:\n", "    if True:\n"),),
    ),
    Fault(
        "a single process that gave enough back and is killed",
        "point 22",
        (Edit("daemon/kill.py", "used_now <= kill.entry.threshold_bytes", "used_now < 0"),),
        seeds="process",
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
        "one action under way that holds up all others",
        "law 10",
        (
            Edit(
                "core/gate.py",
                "waits = [self._busy.get((uid, None)), self._busy.get((uid, entry.victim))]",
                "waits = list(self._busy.values())",
            ),
        ),
    ),
    Fault(
        "a client of an MPS server that is ended with its neighbours",
        "point 36",
        (
            Edit("core/gate.py", "return Brake.MPS if entry.mps_hazard is not None else None", "return None"),
            Edit("daemon/last_look.py", "if updated.mps_hazard is not None:", "if False:"),
        ),
    ),
    Fault(
        "a client of an MPS server outside its pod taken for any other process",
        "point 36",
        (
            Edit(
                "core/mps.py",
                "return use.gpu in self.shared if use.mps is None else use.mps and use.gpu not in served",
                "return False",
            ),
        ),
    ),
    Fault(
        "a signal before all clients are drained",
        "point 36",
        (Edit("daemon/kill.py", "if self.drain.is_clear and now.boottime_s >= self._not_before_s:", "if True:"),),
        seeds="mps",
    ),
    Fault(
        "a refusal to drain that does not matter",
        "point 36",
        (
            Edit("daemon/drain.py", "if not is_done and not self._accepts_clients:", "if False:"),
            Edit("daemon/drain.py", "known = {*self._accepted,", "known = {*self._settled,"),
        ),
        seeds="mps",
    ),
    Fault(
        "a client that joined and is signalled undrained",
        "point 36",
        (Edit("daemon/kill.py", "return self.drain.is_clear and self.drain.has_read(", "return True or bool("),),
        seeds="mps",
    ),
    Fault(
        "a client that is drained after enforcement was turned off",
        "point 20",
        (
            Edit(
                "daemon/kill.py",
                "return self._phase in (_Phase.DRAINING, _Phase.GRACE)",
                "return self._phase is _Phase.GRACE",
            ),
        ),
        seeds="mps",
    ),
    Fault(
        "an MPS client by its own container alone",
        "point 36",
        (Edit("core/mps.py", "if step.hits_whole_pod:", "if not step.do.takes_scope:"),),
        seeds="shared",
    ),
)
