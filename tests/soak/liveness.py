"""Law 10: an account that is due, and held back by nothing, is acted on in this cycle, whatever happens to others."""

from typing import Final

from tests.soak.book import Book
from tests.soak.brakebook import is_ready
from tests.soak.timers import reset_after_s
from tests.soak.truth import Fact, comes_first, protected, true_to_claim, victims
from tests.soak.violation import fail
from watchdog.core.model import Now
from watchdog.core.plan import Plan

LAW10: Final = "law 10, one pending or failing target never holds up another"
LAW11: Final = "law 11, nothing a tenant can write holds enforcement back"
_MOST_PUT_OFF: Final = 5  # cycles
_SETTLES_S: Final = 5.0  # after the end of an action on a pod: until then the daemon may still have its doubts


def nobody_is_held_up(book: Book, planned: Plan, now: Now, *, written: bool) -> None:
    """To be asked after a cycle that nothing has disturbed, and whose last look, if it needed one, was in time.

    `planned` is its plan before the act.
    """
    here, reading = book.standing, book.standing.reading
    if reading is None or not here.enforcing or here.stale or not written:
        return
    is_bright = reading.bright and (reading.second is None or reading.second.is_bright)
    if here.waiting_s is not None or not is_bright or here.policy.brakes.breaker is not None:
        return
    # Who was let through and needed no action in the end took a place under the brakes: for this cycle, and not for
    # ever.
    let_through = {entry.account for entry in planned.taken if entry.do.enforces and not entry.escalates}
    most = _MOST_PUT_OFF if len(let_through) > len(book.begun_now) else 0
    for fact in reading.facts.values():
        if fact.key in book.begun_now or not _is_ripe(fact, book, now):
            book.put_off.pop(fact.key, None)
            continue
        book.put_off[fact.key] = book.put_off.get(fact.key, 0) + 1
        if book.put_off[fact.key] > most:
            mine = [e for e in planned.entries if e.account.uid == fact.key[0]]
            entries = [(e.step_index, e.do.value, e.due_in_s, e.withheld_by, e.assessment.protected) for e in mine]
            law = LAW11 if book.timers.is_rewritten(fact.key) else LAW10
            fail(law, f"{fact.key} uses {fact.used} of {fact.allowed} and is due; the plan has {entries}")


def _is_ripe(fact: Fact, book: Book, now: Now) -> bool:
    """Whether a kill on this account can't be put off for any reason."""
    here, uid = book.standing, fact.key[0]
    if not is_ready(fact, book.timers) or fact.allowed is None or fact.rule.mode == "observe":
        return False
    if not book.is_on_its_own(fact) and not _has_its_turn(fact, book, now):
        return False
    # A pod whose grace is over only now was protected still when the reading was asked for.
    is_spared = protected(fact.tenant, here.policy, now, _SETTLES_S)
    if uid not in here.tenants or is_spared or here.tenants[uid] != fact.tenant or book.may_lack_keys(uid):
        return False
    settles_s = max(reset_after_s(here.policy), _SETTLES_S)
    is_settled = now.boottime_s - book.actions.closed_s.get(uid, -settles_s) > settles_s
    is_settled = is_settled and now.boottime_s - here.opened_s > here.policy.release_timeout_s
    is_acted_on = any(action.key[0] == uid for action in book.actions.open.values() if action.key not in book.begun_now)
    others = any(key[0] == uid for key in book.begun_now if key != fact.key)
    tasks = [use.task for use in fact.uses]
    is_acted_on = is_acted_on or book.actions.may_seem_to_live(uid, now)
    if not is_settled or is_acted_on or others or not victims(fact) or here.is_withheld_for_mps(fact):
        return False
    if not all(task.lives and not task.aloof and true_to_claim(task) for task in tasks):
        return False
    planned_s = here.reading.asked.boottime_s if here.reading is not None else now.boottime_s
    return book.brakes.is_free(fact.tenant.workload, here.policy.brakes, planned_s)


def _has_its_turn(fact: Fact, book: Book, now: Now) -> bool:
    """Whether it surely comes first of those that hold a part of a claim with it, none of which is acted on."""
    rivals = {each.key[0] for each in fact.part.beside} if fact.part is not None else set()
    acted_on = {action.key[0] for action in book.actions.open.values()} | {key[0] for key in book.begun_now}
    acted_on |= {uid for uid, at_s in book.actions.closed_s.items() if now.boottime_s - at_s <= _SETTLES_S}
    acted_on |= {uid for uid in rivals if book.actions.may_seem_to_live(uid, now)}
    return rivals.isdisjoint(acted_on) and comes_first(fact, book.standing.policy, now)
