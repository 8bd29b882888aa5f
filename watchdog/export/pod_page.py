"""The page of a pod: its last hour, what it declares, where its ladder stands, what was done, and what helps."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Final

from watchdog.core.assessment import AccountKey, Assessment
from watchdog.core.brakes import Brake
from watchdog.core.plan import Result
from watchdog.core.policy import Do
from watchdog.core.units import format_bytes, format_duration
from watchdog.export.documentation import Document, runbook
from watchdog.export.names import GpuName, PodName, Subject
from watchdog.export.page import stop_enforcement, template
from watchdog.export.page_cards import account_bar
from watchdog.export.page_headline import headline, is_recent
from watchdog.export.page_pods import Place, Row, place
from watchdog.export.plot import Level, Plot
from watchdog.export.subject_page import (
    REFRESH_S,
    SUBJECT_STYLE,
    SubjectInput,
    action_row,
)
from watchdog.report.advice import declared_as, to_write
from watchdog.report.hour import Series
from watchdog.report.manifest import Manifest, manifest
from watchdog.report.progress import AccountProgress, is_paused, planned_short, steps_by_account
from watchdog.report.progress import Level as Urgency
from watchdog.report.recent import is_action
from watchdog.report.sentences.account import account_sentences
from watchdog.report.sentences.action import acted_later, result_short, under_way_sentence
from watchdog.report.sentences.following import is_enforced
from watchdog.report.sentences.usage import idle_short, threshold_in_bytes
from watchdog.report.status import AccountStatus, PlanStatus, RecentStatus, StepStatus
from watchdog.report.text import capital, inert, span

_MOST_IN_FULL: Final = 12
_MOST_ACTIONS: Final = 12
_EARLIER: Final = "an earlier pod of this name"
_STATES: Final = {"undeclared": "nothing declared", "misdeclared": "invalid declaration", "unknown": "use unknown"}
_ON_WHICH_SIDE: Final = {"above": "above", "below": "not above"}
_TENANTS: Final = Document(title="For owners of pods: why it was killed, and what to do", path="tenants.md")
_BRAKES: Final = Document(title="What withholds an action, and until when", path="brakes.md#the-brakes-in-order")
_IDLE: Final = Document(title="Memory that is held and not used", path="measuring.md#memory-that-is-held-and-not-used")
_DECLARING: Final = Document(title="How a pod declares GPU memory", path="declarations.md")
_LADDER: Final = Document(title="How thresholds and timers count", path="policy.md#thresholds-and-the-ladder")
_SUSPENDED: Final = Document(title="Why enforcement is suspended", path="troubleshooting.md#enforcement-is-suspended")
_BLIND: Final = Document(title="When the driver hangs", path="troubleshooting.md#a-driver-that-hangs")
_RUNBOOKS: Final[Mapping[str, str]] = {
    "over": "GPUMemoryOverLimit",
    "undeclared": "GPUMemoryUndeclared",
    "misdeclared": "GPUMemoryMisdeclared",
    "unknown": "GPUMemoryUnknown",
}
_RUNBOOKS_OF_ACTIONS: Final[Mapping[Do, str]] = {Do.KILL: "GPUMemoryPodKilled", Do.EVICT: "GPUMemoryPodEvicted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSection:
    """What the page has about one account, or about one that is gone."""

    # The part of the pod that it covers.
    place: Place
    # Which pod it is about; empty: there is one of this name.
    whose: str = ""
    plot: Plot
    # Why the plot ends before now; empty: it does not.
    gone: str = ""
    # None: it is gone.
    progress: AccountProgress | None = None
    bar: object = None
    # The pods and GPUs that its sentences name.
    subjects: tuple[Subject, ...] = ()
    summary: tuple[str, ...] = ()
    # Where its limit comes from.
    limit: tuple[str, ...] = ()
    declared: tuple[tuple[str, str], ...] = ()
    # What claims gave it, on each GPU.
    given: tuple[tuple[GpuName, str], ...] = ()
    rule: tuple[str, ...] = ()
    steps: tuple[Row, ...] = ()
    # The action in progress, as a sentence.
    under_way: str = ""
    # What its owner can do, as a sentence, and as a part of a manifest.
    remedy: str = ""
    manifest: Manifest | None = None


def is_known(seen: SubjectInput) -> bool:
    """Whether there is anything to show of a pod: an account, an hour, or a recent action."""
    query = seen.query
    has_account = any(map(query.is_of, seen.status.accounts))
    return has_account or bool(seen.hour.of_pod(query.namespace, query.pod) or _actions(seen))


def pod_page(seen: SubjectInput) -> str:
    """The page of a pod, also of one that is gone, with what is known of its predecessors of the same name."""
    query, accounts, actions = seen.query, _accounts(seen), _actions(seen)
    sections = list(_sections(seen, accounts))
    head = headline(seen.seen)
    levels = {Urgency.GOOD, *(progress.level for progress in accounts)} | ({head.level} if head.remedy else set())
    levels |= {Urgency.WATCH} if any(is_recent(action, seen.seen.now_s) for action in actions) else set()
    return template("pod.html").render(
        style=SUBJECT_STYLE,
        seen=seen.seen,
        query=query,
        refresh_s=REFRESH_S,
        node=seen.status.node,
        level=next(worst for worst in Urgency if worst in levels),
        title=query.title,
        pod=PodName(query.namespace, query.pod),
        state=_state(seen, accounts, actions),
        node_state=head if head.remedy else None,
        owner=_owner(accounts),
        sections=[make() for _, _, make in sections[:_MOST_IN_FULL]],
        more=[(part, whose) for part, whose, _ in sections[_MOST_IN_FULL:]],
        done=[
            action_row(action, seen.seen, is_earlier=_is_earlier(action, accounts))
            for action in actions[:_MOST_ACTIONS]
        ],
        more_actions=max(len(actions) - _MOST_ACTIONS, 0),
        withheld=list(_withheld(seen, accounts)),
        gpus=list(_gpus(seen, accounts)),
        stop=stop_enforcement(seen.status),
        documents_found=list(dict.fromkeys(_documents(seen, accounts, actions))),
        contact=seen.status.contact,
    )


def _accounts(seen: SubjectInput) -> list[AccountProgress]:
    """Its accounts, the most urgent first."""
    return [each for each in seen.seen.by_urgency if seen.query.is_of(each.account)]


def _actions(seen: SubjectInput) -> list[RecentStatus]:
    return [action for action in seen.status.recent if seen.query.is_of(action)]


def _state(seen: SubjectInput, accounts: Sequence[AccountProgress], actions: Sequence[RecentStatus]) -> str:
    """In a few words: `over, kill in 7s`; of a pod without accounts when it was last seen, and what was done."""
    action = next((action for action in actions if is_action(action)), None)
    did = f"; {_did(action, accounts)} {seen.seen.ago(action.at or 0.0)}" if action is not None else ""
    if not accounts:
        return f"uses and declares no GPU memory on this node now{did}"
    first = accounts[0]
    state = _STATES.get(first.account.verdict, first.account.verdict)
    protected = ", protected" if first.account.protected is not None else ""
    idle = f", {idle_short(first.account)}" if first.account.idle else ""
    return f"{state}{f', {first.gravest.short}' if first.gravest is not None else ''}{idle}{protected}{did}"


def _did(action: RecentStatus, accounts: Sequence[AccountProgress]) -> str:
    result = result_short(action)
    if not _is_earlier(action, accounts):
        return result
    return f"the earlier pod of this name{' ' if action.result in (Result.DONE, Result.OBSERVED) else ': '}{result}"


def _is_earlier(action: RecentStatus, accounts: Sequence[AccountProgress]) -> bool:
    """Whether an action was on an earlier pod of this name than the one that is there now."""
    present = {each.account.uid for each in accounts if each.account.left_since is None}
    return action.uid is not None and bool(present) and action.uid not in present


def _owner(accounts: Sequence[AccountProgress]) -> str:
    owner = accounts[0].account.owner if accounts else None
    # The Node "owns" its static pods.
    return f"{owner.kind} {owner.name}" if owner is not None and owner.kind not in ("Pod", "Node") else ""


def _sections(
    seen: SubjectInput, accounts: Sequence[AccountProgress]
) -> Iterator[tuple[Place, str, Callable[[], AccountSection]]]:
    """The accounts, then what the hour has of parts that are no account any more: which part of which pod each is."""
    lives = dict(seen.hour.of_pod(seen.query.namespace, seen.query.pod))
    found = {each.account: each for each in seen.report.assessments}
    present = {each.account.uid for each in accounts}
    # The oldest account of a part continues the plot of its predecessors.
    ages = {key: lives[key].first_s if key in lives else math.inf for key in map(_key, accounts)}
    drawn = {key: _taken(key, lives, present) for key in sorted(ages, key=lambda key: ages[key])}
    has_several = len(present) > 1 or any(key.uid not in present for key in lives if present)
    for progress in accounts:
        whose = _whose(progress.account) if has_several else ""
        key = _key(progress)
        make = partial(_section, seen, progress, found.get(key), drawn[key], whose)
        yield place(progress.account, seen.seen), whose, make
    gone: dict[AccountKey, list[Series]] = {}
    for key, series in lives.items():
        gone.setdefault(key if key.uid in present else key._replace(uid=""), []).append(series)
    for key, left in gone.items():
        whose = (f"pod UID {inert(key.uid)}" if key.uid else "another pod of this name") if has_several else ""
        part = place(AccountStatus(container=key.container, gpu=key.gpu), seen.seen)
        yield part, whose, partial(_gone, seen, part, left, whose)


def _key(progress: AccountProgress) -> AccountKey:
    account = progress.account
    return AccountKey(uid=account.uid, container=account.container, gpu=account.gpu)


def _taken(key: AccountKey, lives: dict[AccountKey, Series], present: AbstractSet[str]) -> list[Series]:
    """The series of an account, after those of its predecessors that are gone; they are taken out of `lives`."""
    own = lives.pop(key, None)
    first_s = own.first_s if own is not None else math.inf
    part = (key.container, key.gpu)
    before = [
        each
        for each, series in lives.items()
        if (each.container, each.gpu) == part and each.uid not in present and series.first_s < first_s
    ]
    return [*map(lives.pop, before), *([own] if own is not None else [])]


def _whose(account: AccountStatus) -> str:
    """Which pod an account is of, where there are several of its name."""
    uid = f"UID {inert(account.uid)}"
    return f"{_EARLIER}, {uid}" if account.left_since is not None else f"pod {uid}"


def _gone(seen: SubjectInput, part: Place, series: Sequence[Series], whose: str) -> AccountSection:
    last = seen.seen.clock(seen.now.wall_s - (seen.now.boottime_s - max(each.seen_s for each in series)))
    gone = f"It was last seen at {last}."
    return AccountSection(place=part, whose=whose, plot=seen.draw(series, ()), gone=gone)


def _section(
    seen: SubjectInput,
    progress: AccountProgress,
    assessment: Assessment | None,
    series: Sequence[Series],
    whose: str,
) -> AccountSection:
    account, status = progress.account, seen.status
    said = account_sentences(account, status)
    written = (
        to_write(assessment, seen.report.policy, seen.report.node, seen.report.snapshot.gpus)
        if assessment is not None and account.protected is None
        else None
    )
    planned = {entry.step: entry for entry in steps_by_account(status).get(account.key, ())}
    return AccountSection(
        place=place(account, seen.seen),
        whose=whose,
        plot=seen.draw(series, _levels(account)),
        progress=progress,
        bar=account_bar(account),
        subjects=seen.seen.subjects_beside(account),
        summary=(*said.use, *said.verdict, *said.activity),
        limit=(*said.limit, *said.remarks),
        declared=tuple(declared_as(assessment)) if assessment is not None else (),
        given=tuple(_given(account, seen)),
        rule=said.rule,
        steps=tuple(_step(step, account, planned.get(step.step), seen) for step in account.ladder),
        under_way=under_way_sentence(account.under_way, status) if account.under_way is not None else "",
        remedy=_remedy(account, has_line=written is not None),
        manifest=manifest(written, assessment) if written is not None and assessment is not None else None,
    )


def _given(account: AccountStatus, seen: SubjectInput) -> Iterator[tuple[GpuName, str]]:
    """What claims gave it, on each GPU."""
    if isinstance(account.declared_by_gpu, dict):
        for uuid, amount in account.declared_by_gpu.items():
            yield seen.seen.gpu(uuid), format_bytes(amount)


def _levels(account: AccountStatus) -> Iterator[Level]:
    """Its limit and the thresholds of its rule, as lines of its plot."""
    for step in account.ladder:
        if step.threshold_bytes is not None:
            yield Level(step.do.value, f"{step.do.verb.noun} above", step.threshold_bytes)
    if account.allowed is not None:
        yield Level("allowed", "limit", account.allowed)


def _remedy(account: AccountStatus, *, has_line: bool) -> str:
    """What its owner can change, as a sentence; empty if a line of a manifest says all."""
    if account.advice is not None:
        return f"To stay within its limit, {account.advice}."
    nothing, is_default = "Nothing has to be changed", account.declared_by == "default"
    if account.protected is not None:
        return f"{nothing}: no action is taken on it."
    if account.verdict == "within":
        return f"{nothing}: {'it is within the default' if is_default else 'what it declares is enough'}."
    if account.verdict == "unknown":
        return "Whether anything has to be changed is not known."
    if has_line:
        return ""
    no_use = "It uses no GPU memory now, so there is no amount to suggest."
    return "There is no single line that would be enough." if account.least else no_use


def _step(step: StepStatus, account: AccountStatus, entry: PlanStatus | None, seen: SubjectInput) -> Row:
    """A step of the ladder: what it does, its threshold, how far it has counted, and what comes of it."""
    for_s = step.for_s or 0.0
    counted_s = max(step.counted_s or 0.0, step.tally_s or 0.0)
    lasting = f"for {format_duration(for_s)}" if for_s else "immediately"
    if for_s and (step.state == "above" or counted_s):
        lasting += f" (so far {span(min(counted_s, for_s))})"
    is_without = account.allowed is None and account.verdict in ("undeclared", "misdeclared")
    state = "does not apply" if is_without else _ON_WHICH_SIDE.get(step.state, "not known")
    if entry is not None:
        state = planned_short(entry, account, seen.status, seen.seen.passed_s)
    level = Urgency.WATCH if entry is not None else None
    if entry is not None and step.do.enforces and entry.withheld_by is None and is_enforced(account, seen.status):
        level = Urgency.WATCH if is_paused(entry, seen.status) else Urgency.BAD
    return {
        "does": capital(acted_later(step, account)).rstrip(","),
        "above": threshold_in_bytes(step, account, seen.status).removeprefix("above "),
        "lasting": lasting,
        "state": state,
        "css": level.value if level is not None else "",
        "detail": (entry.detail or entry.sentence) if entry is not None else "",
    }


def _withheld(seen: SubjectInput, accounts: Sequence[AccountProgress]) -> Iterator[tuple[str, tuple[Subject, ...]]]:
    """What withholds its steps now, a sentence each, with those that it names."""
    planned = steps_by_account(seen.status)
    for progress in accounts:
        for entry in planned.get(progress.account.key, ()):
            if entry.withheld_by is not None and entry.held_because:
                short = planned_short(entry, progress.account, seen.status, seen.seen.passed_s)
                subjects = seen.seen.subjects_beside(progress.account)
                yield f"{capital(short)}: {entry.held_because}.", subjects


def _gpus(seen: SubjectInput, accounts: Sequence[AccountProgress]) -> Iterator[GpuName]:
    """The GPUs on which it has memory."""
    used = {process.gpu for progress in accounts for process in progress.account.processes}
    used |= {progress.account.gpu for progress in accounts if progress.account.gpu is not None}
    yield from (gpu for uuid, gpu in seen.seen.gpus.items() if uuid in used)


def _documents(
    seen: SubjectInput, accounts: Sequence[AccountProgress], actions: Sequence[RecentStatus]
) -> Iterator[Document]:
    """The runbooks of the pod's state, then what explains it."""
    yield from map(runbook, _alerts(seen, accounts, actions))
    if seen.seen.is_blind or not seen.seen.health.turns:
        yield _BLIND
    elif seen.status.suspended:
        yield _SUSPENDED
    if any(progress.account.idle for progress in accounts):
        yield _IDLE
    yield _TENANTS
    if any(step.is_held for progress in accounts for step in progress.steps):
        yield _BRAKES
    yield _DECLARING
    yield _LADDER


def _alerts(seen: SubjectInput, accounts: Sequence[AccountProgress], actions: Sequence[RecentStatus]) -> Iterator[str]:
    """The alerts whose runbooks are about the pod's state."""
    verdicts = {progress.account.verdict for progress in accounts}
    verdicts |= {"misdeclared"} if any(progress.account.misdeclarations for progress in accounts) else set()
    yield from (alert for verdict, alert in _RUNBOOKS.items() if verdict in verdicts)
    for action in actions:
        if action.result == Result.BLOCKED:
            yield "GPUMemoryEvictionBlocked"
        elif is_action(action) and action.do in _RUNBOOKS_OF_ACTIONS:
            yield _RUNBOOKS_OF_ACTIONS[action.do]
    if any(progress.account.left_since is not None for progress in accounts):
        yield "GPUMemoryPodLeft"
    if any(progress.account.idle for progress in accounts):
        yield "GPUMemoryIdle"
    if any(entry.withheld_by == Brake.HAZARD and seen.query.is_of(entry) for entry in seen.status.plan):
        yield "GPUMemoryMPSWithheld"
    if seen.status.breaker.open:
        yield "GPUMemoryBreakerOpen"
    if seen.status.switched_off_by:
        yield "GPUWatchdogNotEnforcing"
