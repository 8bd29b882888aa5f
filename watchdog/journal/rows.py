"""The rows of the journal: the columns and the sentence of each occurrence."""

from collections.abc import Iterable, Mapping
from typing import Final

from watchdog.core.assessment import Assessment
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import CycleReport, PlanEntry
from watchdog.core.policy import Do
from watchdog.core.units import LARGEST
from watchdog.journal.schema import COLUMNS
from watchdog.report.changes import BEGUN, ENDED, Change, ChangeKind, Changes
from watchdog.report.sentences.action import TakenAction, by_rule
from watchdog.report.sentences.draining import asked_to_end, is_drain
from watchdog.report.sentences.usage import threshold_text
from watchdog.report.text import capital, count, inert

Value = str | int | float | None
Row = dict[str, Value]
_LONGEST: Final = 4096
# Actions write these themselves, immediately, and not with the later report.
_WRITTEN_BY_ACTIONS: Final = frozenset({*BEGUN, *ENDED, ChangeKind.RELEASED})

INSERT: Final = (
    f"INSERT INTO occurrence ({', '.join(COLUMNS)}) VALUES ({', '.join(':' + column for column in COLUMNS)})"
)


def base_row(event: str, node: str, now: Now, sentence: str) -> Row:
    """The columns that every row has."""
    return {
        "event": event,
        "node": node,
        "boot_id": now.boot_id,
        "boottime_s": now.boottime_s,
        "wall_s": now.wall_s,
        "sentence": sentence,
    }


class ReportRows:
    """The rows of what each report of a daemon changes, made by the loop and without disk access.

    The first report is recorded in full, since the journal may have been opened long after the daemon started.
    """

    def __init__(self, node: str, remedies: Mapping[str, str] | None) -> None:
        self._node = node
        self._introduction: Changes | None = Changes(remedies)

    def of(self, report: CycleReport, changes: Iterable[Change]) -> list[Row]:
        """The rows of a report's changes, except those that actions write themselves."""
        introduction, self._introduction = self._introduction, None
        return [
            _row_of(item, self._node, report)
            for item in (changes if introduction is None else introduction.since(report))
            if not item.is_repeated
            and (item.event not in _WRITTEN_BY_ACTIONS or item.outcome is None or item.outcome.number is None)
        ]


def _row_of(item: Change, node: str, report: CycleReport) -> Row:
    """The row of a change."""
    row = base_row(item.event.value, node, item.at, item.sentence)
    row |= {"policy": report.policy.sha256, "detail": item.detail or None}
    if item.entry is not None:
        row |= entry_columns(item.entry)
    elif item.assessment is not None:
        row |= account_columns(item.assessment)
    elif item.pod is not None:
        row |= {"namespace": item.pod.namespace, "pod": item.pod.name, "uid": item.pod.uid}
    if item.outcome is not None:
        row |= {
            "action_id": item.outcome.number,
            "result": item.outcome.result.value,
            "reason": item.outcome.reason or None,
        }
    return row


def entry_columns(entry: PlanEntry) -> Row:
    """The columns that a plan entry fills."""
    return account_columns(entry.assessment) | {
        "container": entry.victim or entry.account.container,
        "rule": entry.rule.name,
        "step": entry.step_index,
        "do": entry.do.value,
        "scope": entry.definition.effective_scope,
        "threshold": threshold_text(entry),
    }


def account_columns(assessment: Assessment) -> Row:
    """The columns that an assessment fills."""
    pod, owner, rule = assessment.pod, assessment.pod.owner, assessment.rule
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        "uid": pod.uid,
        "container": assessment.account.container,
        "account": assessment.account.container,
        "gpu": assessment.account.gpu,
        "owner_kind": owner.kind if owner is not None else None,
        "owner_name": owner.name if owner is not None else None,
        "rule": rule.name if rule is not None else None,
        "used": assessment.used,
        "used_at_least": assessment.used_at_least,
        "used_beside": assessment.beside or None,
        "declared": assessment.declared,
        "declared_by": assessment.declared_by,
        "allowed": assessment.allowed,
    }


def bound(row: Row) -> Row:
    """A row for SQLite: with every column, texts without control characters, and 64-bit integers."""
    return {column: _storable(row.get(column)) for column in COLUMNS}


def _storable(value: Value) -> Value:
    if isinstance(value, str):
        return storable_text(value)
    return max(-LARGEST, min(value, LARGEST)) if isinstance(value, int) else value


def storable_text(text: str) -> str:
    """A text without control characters, cut to a limit; names that Kubernetes permits are unchanged."""
    return inert(text, _LONGEST)


def action_of(do: object) -> Do:
    """The action in a row; without one, or with one of a newer version, it is taken for a kill."""
    return next((known for known in Do if known == do), Do.KILL)


def signalled_sentence(context: Row, signal: str, keys: tuple[ProcessKey, ...]) -> str:
    """The sentence that a signal was sent to these processes."""
    pids = ", ".join(str(key.pid) for key in keys[:20]) + (", ..." if len(keys) > 20 else "")
    whose = _victim(context)
    got = f"{signal} to {count(len(keys), 'process', 'processes')} of {whose}"
    what = asked_to_end(len(keys), whose) if is_drain(signal) else got
    return f"{capital(_title(context))}: {what}: {pids}."


def taken_action(context: Row, result: str, reason: str, release_s: float | None = None) -> TakenAction:
    """The action whose intention has these columns."""
    rule, threshold = context.get("rule"), context.get("threshold")
    return TakenAction(
        title=_title(context),
        do=action_of(context.get("do")),
        result=result,
        reason=reason,
        whom=_victim(context),
        by=by_rule(str(rule), inert(str(threshold))) if rule else "",
        release_s=release_s,
    )


def _title(context: Row) -> str:
    if not context.get("pod"):
        return "a pod from an earlier journal"
    return f"pod {inert(str(context['namespace']))}/{inert(str(context['pod']))}"


def _victim(context: Row) -> str:
    named = context.get("container") if action_of(context.get("do")).takes_scope else None
    return f"container {inert(str(named))}" if named else "the pod"
