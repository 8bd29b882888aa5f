"""The faults that the soak must find. The seven without which it would prove nothing come first."""

from typing import Final

from tests.soak.faults import Edit, Fault

BRAKES: Final = "law 6"
FAULTS: Final = {
    "the brakes are forgotten on restart": Fault(
        BRAKES, ("fault/1", 300), Edit("journal/journal.py", "return self.kept.memory(now)", "return BrakeMemory()")
    ),
    "time in inconclusive readings counts": Fault(
        "law 5",
        ("fault/5", 500),
        Edit("core/ladder.py", "    if not is_blind and (stretches", "    if (stretches"),
        Edit(
            "core/ladder.py",
            "return None if is_sure else before",
            "return None if is_sure else replace(before, counted_s=before.counted_s + policy.interval_s)",
        ),
    ),
    "a victim is known by its PID alone": Fault(
        "law 4",
        ("fault/0", 100),
        Edit("node/scan.py", "first is None or first == process.key", "first is None or first.pid == process.pid"),
    ),
    "a declaration is read in the wrong unit": Fault(
        "law 4",
        ("fault/0", 1000),
        Edit("core/amount.py", "math.ceil(number * unit)", "math.ceil(number * (1 if unit == 2**20 else unit))"),
    ),
    "protection is not checked again before a kill": Fault(
        "law 4",
        ("fault/2", 2400),
        Edit("daemon/last_look.py", "    if assessment.rule is not entry.rule:\n", "    if False:\n"),
        Edit("daemon/last_look.py", "    if assessment.protected is not None:\n", "    if False:\n"),
        Edit("daemon/last_look.py", "    if is_same and pod in inputs.pods.pods:\n", "    if True:\n"),
        Edit("daemon/sources.py", "return None if protected is None else", "return None if True else"),
    ),
    "observe mode makes other plans": Fault(
        "law 7",
        ("fault/1", 100),
        Edit("daemon/cycle.py", "asked, inputs)", "asked, replace(inputs, pods_stale=not inputs.enforcing))"),
    ),
    "a plan depends on the order of pods": Fault(
        "law 2",
        ("fault/1", 100),
        Edit("core/decide.py", "in sorted(others, key=urgency)", "in others"),
        Edit("core/decide.py", "return sorted(candidates, key=order_of)", "return list(candidates)"),
    ),
    "a gap between readings counts in full": Fault(
        "law 5",
        ("fault/0", 1400),
        Edit("core/ladder.py", ".last.boottime_s, policy.interval_s)", ".last.boottime_s, 1e9)"),
    ),
    "a rule that only observes acts": Fault(
        "law 7",
        ("fault/1", 1800),
        Edit("core/assessment.py", "return self.enforcing and not assessment.observes", "return self.enforcing"),
        Edit("daemon/last_look.py", "    if assessment.observes:\n", "    if False:\n"),
        Edit("daemon/sources.py", "or not enforces or observes(rule, now)", "or not enforces"),
    ),
    "a grace period goes on after enforcement was turned off": Fault(
        "point 20",
        ("fault/2", 200),
        Edit("daemon/kills.py", "kill.is_in_grace and (reason := objection", "False and (reason := objection"),
    ),
    "a half-written policy is loaded": Fault(
        "point 20", ("fault/0", 300), Edit("config/watch.py", "is_still and not _has_writer(self.path)", "is_still")
    ),
    "a first signal is sent while the policy is being written": Fault(
        "point 20",
        ("fault/0", 1000),
        Edit("daemon/enforcement.py", "if not (self.enforcing or self.suspended):", "if True:"),
    ),
    "a grace period ends while the policy is being written": Fault(
        "point 20",
        ("fault/0", 1800),
        Edit("daemon/kills.py", "                if policy_unsettled:\n", "                if False:\n"),
    ),
    "a grace period goes on after its pod has left the list": Fault(
        "point 20",
        ("process/2", 900),
        Edit("daemon/sources.py", "if pod is None and inputs.pods.synced is not None:", "if False:"),
    ),
    "a half-open breaker lets two actions through": Fault(
        BRAKES,
        ("breaker/0", 200),
        Edit("core/brakes.py", "half_open_s - now_s, last_s + breaker.hold_s - now_s,", "half_open_s - now_s,"),
    ),
    "the breaker never opens": Fault(
        BRAKES, ("fault/32", 200), Edit("core/brakes.py", "if has_reached and not blind else", "if False else")
    ),
    "the account the fewest bytes over goes first": Fault(
        "point 25",
        ("fault/1", 1700),
        Edit("core/gate.py", "return (-over, assessment.pod.priority or 0,", "return (over, 0,"),
    ),
    "a journal lost under the daemon is not filled again": Fault(
        BRAKES, ("fault/1", 2700), Edit("journal/actions.py", "lacked = self.write_missing(connection)", "lacked = 0")
    ),
    "a journal lost between two daemons is taken for a new node's": Fault(
        BRAKES, ("fault/4", 600), Edit("daemon/sinks.py", "journal.presume(now)", "pass")
    ),
    "the brakes of a lost journal hold for half their time": Fault(
        BRAKES,
        ("fault/6", 500),
        Edit("core/brakes.py", "self.lost_s + whole_s - now_s", "self.lost_s + whole_s / 2 - now_s"),
    ),
    "a window allows one action too many": Fault(
        BRAKES,
        ("fault/1", 100),
        Edit("core/brakes.py", "if len(actions) >= window.count", "if len(actions) > window.count"),
        Edit("core/brakes.py", "actions[-window.count].at_s", "actions[-window.count - 1].at_s"),
    ),
    "the back-off does not grow": Fault(
        BRAKES, ("fault/17", 400), Edit("core/brakes.py", "wait_s *= backoff.factor", "wait_s *= 1")
    ),
    "the brakes are forgotten on reboot": Fault(
        BRAKES,
        ("reboots/1", 200),
        Edit("core/brakes.py", "return now.boottime_s - max(now.wall_s - then.wall_s, 0.0)", "return -1e9"),
    ),
    "unknown bytes count": Fault(
        "law 4",
        ("fault/1", 800),
        Edit("core/assess.py", "sum(use.used or 0 for use in own if", "sum(use.used or 2**40 for use in own if"),
    ),
    "a spoofed cgroup is believed": Fault(
        "law 4",
        ("fault/0", 1300),
        Edit("core/attribute.py", "        if matching:\n            return Reason.SPOOFED\n", ""),
    ),
    "a stale pod list is acted on": Fault(
        "law 3", ("fault/5", 1500), Edit("daemon/sources.py", "> policy.stale_after_s", "> 9 * policy.stale_after_s")
    ),
    "SIGKILL is sent before the grace period is over": Fault(
        "point 23",
        ("fault/0", 1400),
        Edit("daemon/kill.py", "self.entry.definition.grace_s\n", "self.entry.definition.grace_s / 2\n"),
    ),
    "the last look changes nothing": Fault(
        "law 4",
        ("fault/2", 2800),
        Edit("daemon/last_look.py", "return update(entry, reassessed.get(entry.account), now)", "return entry"),
    ),
    "the last look forgets what was allowed before": Fault(
        "law 5",
        ("fault/24", 3500),
        Edit("daemon/last_look.py", "if stretch is None or entry.definition.for_s <= 0:", "if True:"),
    ),
    "the last look comes before the commit": Fault(
        "point 22",
        ("fault/2", 600),
        Edit("daemon/last_look.py", "not self.opened.is_written", "self._requests and not self.opened.is_written"),
        Edit("core/plan.py", "any(future.done() and future.exception() is None for", "any(True for"),
    ),
    "the last look may be old": Fault(
        "point 22",
        ("fault/15", 1700),
        Edit("daemon/last_look.py", "is_in_time = reading.took_s <= FRESH_S", "is_in_time = True"),
        Edit("daemon/last_look.py", "FRESH_S: Final = 2.0", "FRESH_S: Final = 60.0"),
    ),
    "a recovery resets nothing": Fault(
        "law 5",
        ("fault/3", 1900),
        Edit("core/ladder.py", "return None if is_sure else before", "return before"),
        Edit("core/ledger.py", "0 <= gap_s < reset_after_s", "0 <= gap_s"),
    ),
    "a terminating pod is spared for its whole grace period": Fault(
        "law 1[01]",
        ("deletions/7", 800),
        Edit("core/rules.py", "MOST_TERMINATING_S: Final = 600.0", "MOST_TERMINATING_S: Final = 1e9"),
    ),
    "a tenant resets a ladder with a label": Fault(
        "law 11",
        ("fault/3", 200),
        Edit("core/ladder.py", "state.stretches.get(key), _", "state.stretches.get(key) if is_current else None, _"),
    ),
    "a tenant resets a ladder with one byte in an annotation": Fault(
        "law 11",
        ("fault/23", 1200),
        Edit(
            "core/ladder.py",
            "before is None or not",
            "before is None or before.threshold_bytes != alone.threshold_bytes or not",
        ),
    ),
    "a new label kills at once": Fault(
        "law 5",
        ("fault/4", 1200),
        Edit("core/ladder.py", "for rule in policy.rules if rule.name in ran_under]", "for rule in policy.rules]"),
    ),
    "enforcement begins with the ladders of observe mode": Fault(
        "law 5",
        ("fault/0", 2200),
        Edit(
            "core/ledger.py",
            "key: AccountState(under_way=state.under_way, pending_eviction=state.pending_eviction)",
            "key: replace(state, observed=frozenset())",
        ),
        Edit("core/ledger.py", "            if state.has_action\n        }", "        }"),
    ),
    "a grace period ends with the first processes": Fault(
        "point 23",
        ("fault/2", 100),
        Edit("daemon/kill.py", "< self._grace_ends_s:", "< self._grace_ends_s and self._close_ended():"),
    ),
    "an action does not wait for the previous one": Fault(
        "point 24", ("fault/0", 600), Edit("core/gate.py", "None if escalates else self._busy_until_s(entry)", "None")
    ),
    "memory counts as free while it is listed": Fault(
        "point 24",
        ("fault/0", 900),
        Edit("daemon/kill.py", "if not any(still_listed(key) for key in self._handles):", "if True:"),
    ),
    "the others are signalled although one is out of reach": Fault(
        "point 23",
        ("fault/5", 500),
        Edit("daemon/kills.py", "close_all(handles)\n                denied", "continue\n                denied"),
    ),
    "an intention is not committed": Fault(
        "point 31",
        ("fault/0", 600),
        Edit(
            "journal/journal.py",
            "self._file.transaction(write)\n        self.kept.add",
            'self._file.use(lambda c: (c.execute("SAVEPOINT a"), write(c)))\n        self.kept.add',
        ),
    ),
    "a kill's threshold is below what is allowed": Fault(
        "law 4",
        ("fault/6", 100),
        Edit("core/policy.py", "max(threshold_bytes, allowed) if do.enforces else threshold_bytes", "threshold_bytes"),
    ),
    "the wrong container is killed": Fault(
        "law 4", ("fault/1", 100), Edit("core/decide.py", "min(excess)[2]", "max(excess)[2]")
    ),
    "the default applies to a declaration that can't be determined": Fault(
        "law 4",
        ("fault/2", 800),
        Edit(
            "core/declare.py",
            "            if amount is not None:\n                return order, replace",
            "            if amount is not None and amount.size is not None:\n                return order, replace",
        ),
    ),
    "an annotation is judged by the cards that are left": Fault(
        "law 4", ("cards/6", 3800), Edit("core/declare.py", "(self.cards.complete or is_beyond_any):", "True:")
    ),
    "a container within its own declaration is killed": Fault(
        "law 4", ("fault/0", 3600), Edit("core/decide.py", "share.container and used > own", "share.container and used")
    ),
    "a container that the pod list does not have yet counts at once": Fault(
        "law 4", ("fault/6", 100), Edit("core/assess.py", "return not use.container and (", "return False and (")
    ),
    "the phase is taken from an old pod list": Fault(
        "law 4", ("fault/14", 1700), Edit("core/assess.py", "    if not account.is_behind:\n", "    if True:\n")
    ),
    "a process that has given enough back is killed": Fault(
        "point 22",
        ("process/1", 1700),
        Edit("daemon/kills.py", "used_now <= kill.entry.threshold_bytes", "used_now < 0"),
    ),
    "unknown bytes are lost": Fault(
        "law 1",
        ("fault/0", 100),
        Edit(
            "core/attribute.py",
            "sorted(snapshot.uses,",
            "sorted((use for use in snapshot.uses if use.used is not None),",
        ),
    ),
    "one action holds up all others": Fault(
        "law 10",
        ("fault/4", 1900),
        Edit(
            "core/gate.py", "self._busy.get((uid, None)), self._busy.get((uid, entry.victim))", "*self._busy.values()"
        ),
    ),
    "a client of an MPS server is killed with its neighbours": Fault(
        "point 36",
        ("fault/1", 200),
        Edit("core/gate.py", "return Brake.MPS if entry.mps_hazard is not None else None", "return None"),
        Edit("daemon/last_look.py", "if updated.mps_hazard is not None:", "if False:"),
    ),
    "a client of an MPS server outside its pod counts as any other process": Fault(
        "point 36",
        ("fault/1", 800),
        Edit(
            "core/mps.py",
            "return use.gpu in self.shared if use.mps is None else use.mps and use.gpu not in served",
            "return False",
        ),
    ),
    "a first signal is sent before all clients are drained": Fault(
        "point 36",
        ("mps/0", 600),
        Edit("daemon/kill.py", "if self.drain.is_clear and now.boottime_s >= self._not_before_s:", "if True:"),
    ),
    "a refused drain is ignored": Fault(
        "point 36",
        ("mps/2", 100),
        Edit("daemon/drain.py", "if not is_done and not self._accepts_clients:", "if False:"),
        Edit("daemon/drain.py", "known = {*self._accepted,", "known = {*self._settled,"),
    ),
    "a client that joined is signalled without a drain": Fault(
        "point 36",
        ("mps/2", 100),
        Edit("daemon/kill.py", "return self.drain.is_clear and self.drain.has_read(", "return True or bool("),
    ),
    "a client is drained after enforcement was turned off": Fault(
        "point 20",
        ("mps/5", 2600),
        Edit("daemon/kill.py", "self._phase in (_Phase.DRAINING, _Phase.GRACE)", "self._phase is _Phase.GRACE"),
    ),
    "only the container of an MPS client is checked": Fault(
        "point 36", ("shared/3", 500), Edit("core/mps.py", "if step.hits_whole_pod:", "if not step.do.takes_scope:")
    ),
}
