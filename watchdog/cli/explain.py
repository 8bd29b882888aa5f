"""`explain`: what was done to a pod or would be, and why; from the daemon, or from the journal where none answers."""

import difflib
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

import click

from watchdog import clock
from watchdog.cli.client import AskError, ask_status, help_lines, to_run_inside
from watchdog.cli.explain_past import (
    action_sentences,
    earlier_sentences,
    last_accounts,
    lead_sentences,
    past_sentences,
    told,
)
from watchdog.core.errors import WatchdogError
from watchdog.core.units import format_bytes
from watchdog.daemon.enforcement import remedy_on
from watchdog.journal.errors import JournalError
from watchdog.journal.read import HistoryRow, history, pods_in, reading
from watchdog.past.read import RecordedNode, spans
from watchdog.report.brakes import NO_TIME_COUNTS, OUT_OF_DATE
from watchdog.report.status import GapStatus, GpuStatus, Status, encode
from watchdog.report.text import clock_time, count, date_time, inert, rfc3339
from watchdog.report.why import account_paragraphs

_LONGEST: Final = 600
_MOST_CARDS: Final = 3
_MOST_PODS: Final = 3
_NVML: Final = "NVML"  # what the gap is about that leaves nothing known


def hanging(status: Status) -> Iterator[str]:
    """That the daemon answers while its loop hangs: nothing that it says is of now."""
    since, at = status.hangs_since, status.at
    if since is None or at is None:
        return
    yield f"The watchdog of this node hangs: no pass has ended since {clock_time(since, at)}."
    yield (
        f"All that follows is as of {clock_time(at, at)}, and until a pass ends again nobody new is killed or evicted. "
        f"{_begun(status)} "
        "Whoever runs the node can look at its driver (`nvidia-smi`, and the kernel log for NVRM and Xid)."
    )


def unseen(status: Status) -> tuple[str, ...]:
    """That NVML does not answer, or which GPUs do not; under maintenance that is meant, and said elsewhere."""
    if status.maintenance is not None:
        return ()
    return tuple(_no_driver(status)) or tuple(_no_cards(status))


def out_of_sight(status: Status) -> tuple[str, ...]:
    """All that keeps the daemon from knowing its node; nothing: what it does not know of is not there."""
    maintenance = status.maintenance
    let_go = f"Its GPUs are under maintenance ({inert(maintenance or '', _LONGEST)}): nothing is known of them."
    found = (*hanging(status), *((let_go,) if maintenance is not None else ()), *unseen(status))
    return found or tuple(_unlisted(status))


def without_told(status: Status) -> Status:
    """The status without the gaps that `unseen` tells."""
    cards = {gpu.uuid for gpu in _silent(status)}
    return status.without_gaps({_NVML, *cards})


def _no_driver(status: Status) -> Iterator[str]:
    health = status.health
    blind = health.blind_since if health is not None else None
    why = _why(status, _NVML)
    if blind is None and not why:
        return
    yield f"NVML {_silent_since(blind, status)}: nothing is known of the GPUs of this node and of who uses them."
    if why:
        yield f"What it said: {why}."
    yield f"Until it answers again nobody new is killed or evicted. {_begun(status)}"


def _begun(status: Status) -> str:
    """That what has begun needs no cycle to go on, and of which pods that is known."""
    pods = {
        inert(title)
        for title in (
            *(account.title for account in status.accounts if account.under_way is not None),
            *(entry.title for entry in status.plan if entry.trying is not None),
        )
    }
    first = sorted(pods)[:_MOST_PODS]
    more = f" and {count(len(pods) - len(first), 'more pod', 'more pods')}" if len(pods) > len(first) else ""
    known = f"; it had begun for {', '.join(first)}{more}" if first else ""
    return f"What has begun may go on all the same, as far as SIGKILL or an eviction that is tried again{known}."


def _no_cards(status: Status) -> Iterator[str]:
    silent = _silent(status)
    for gpu in silent[:_MOST_CARDS]:
        uuid, index = gpu.uuid or "", gpu.index
        since = next((gap.since for gap in status.gaps if gap.what == uuid), None)
        name = f"GPU {index} ({inert(uuid)})" if index is not None else inert(uuid)
        why = _why(status, uuid)
        yield f"{name} {_silent_since(since, status)}: who uses how much of it is not known."
        if why:
            yield f"What NVML said: {why}."
    if len(silent) > _MOST_CARDS:
        yield f"{count(len(silent) - _MOST_CARDS, 'more GPU does', 'more GPUs do')} not answer either."


def _unlisted(status: Status) -> Iterator[str]:
    """Cards that answer, and whose processes are not all told."""
    for gpu in status.gpus:
        if gpu.up and not gpu.listed:
            uuid = gpu.uuid or ""
            gap = next((each for each in status.gaps if (each.what or "").startswith(uuid)), GapStatus())
            since, at = gap.since, status.at
            lasting = f", since {clock_time(since, at)}" if since is not None and at is not None else ""
            why = inert(gap.text or "the driver does not list them", _LONGEST).rstrip(".")
            yield f"Not all who use {inert(uuid)} are known{lasting}: {why}."


def _silent(status: Status) -> list[GpuStatus]:
    return [gpu for gpu in status.gpus if not gpu.up]


def _why(status: Status, what: str) -> str:
    """What the driver said of something, with the remedy; empty where it said nothing."""
    said = (gap.text for gap in status.gaps if gap.what == what)
    return inert(next(said, ""), _LONGEST).rstrip(".")


def _silent_since(since: float | None, status: Status) -> str:
    at = status.at
    return "does not answer" if since is None or at is None else f"has not answered since {clock_time(since, at)}"


LATELY: Final = "7 days"
LATELY_S: Final = 7 * 86400.0
_MOST_LINES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A paragraph for each account of a pod and one for the node, and what was done lately.

    `source` is `daemon` or `journal`; `at_s` is the moment it is true of (Unix time). `no_past` says why what was done
    lately is not known; empty where it is. `hints` are lines to be printed as they are: commands.
    """

    pod: str
    node: str
    source: str
    at_s: float
    accounts: tuple[dict[str, Any], ...]
    plan: tuple[dict[str, Any], ...]
    paragraphs: tuple[tuple[str, ...], ...]
    past: tuple[HistoryRow, ...]
    no_past: str = ""
    hints: tuple[str, ...] = ()

    @property
    def document(self) -> dict[str, Any]:
        """The JSON of `explain --json`."""
        namespace, _, name = self.pod.partition("/")
        return {
            "namespace": namespace,
            "pod": name,
            "node": self.node,
            "source": self.source,
            "at": rfc3339(self.at_s),
            "accounts": list(self.accounts),
            "plan": list(self.plan),
            "sentences": [sentence for paragraph in self.paragraphs for sentence in paragraph],
            "history": [{"at": row.at, **asdict(row)} for row in self.past],
        }

    def lines(self, width: int) -> Iterator[str]:
        """The text of `explain`, in lines of at most `width` characters."""
        yield f"Pod {inert(self.pod)} on node {inert(self.node)}, {date_time(self.at_s)}"
        for paragraph in self.paragraphs:
            if paragraph:
                # Names have hyphens, and whoever copies one must get it whole.
                yield from ("", *wrap(" ".join(paragraph), width, break_on_hyphens=False))
        if self.hints:
            yield from ("", *self.hints)
        if self.past:
            yield from ("", f"What was decided and done in the last {LATELY}, from the journal:")
        for row in self.past:
            line = f"- {date_time(row.wall_s)}: {inert(row.sentence, 4000)}"
            yield from wrap(line, width, subsequent_indent="  ", break_on_hyphens=False)


def by_daemon(pod: str, status: Status, rows: Iterable[HistoryRow]) -> Explanation | None:
    """By what the daemon says now; None where it knows nothing of the pod."""
    accounts = tuple(each for each in status.accounts if each.title == pod)
    now_s, (namespace, _, name) = status.at or 0.0, pod.partition("/")
    node = status.node or ""
    here = [row for row in rows if row.node == node]
    lead = lead_sentences(status, here, namespace, name, now_s)
    if not accounts and (here or not lead):
        return None
    if lead and not accounts:
        lead = (*lead, "It uses and declares no GPU memory on this node now.")
    is_unknown = any(each.used is None for each in accounts)
    blind, told_of = (unseen(status), without_told(status)) if is_unknown else ((), status)
    return Explanation(
        pod=pod,
        node=node,
        source="daemon",
        at_s=now_s,
        accounts=tuple(encode(each) for each in accounts),
        plan=tuple(encode(each) for each in status.plan if each.title == pod),
        paragraphs=(
            lead,
            (*hanging(status), *blind, *_idle(status)),
            *(p for each in accounts for p in account_paragraphs(each, told_of)),
            earlier_sentences(status, here, namespace, name, now_s),
            _of_node(status),
        ),
        past=told(here, _MOST_LINES),
    )


def by_journal(
    pod: str, rows: Sequence[HistoryRow], why_not: str, now_s: float, hints: tuple[str, ...] = ()
) -> Explanation:
    """By what the journal last had of it; `why_not` says why the daemon is not the source, `hints` what helps."""
    last, accounts = rows[-1], last_accounts(rows)
    source = f"{why_not[:1].upper()}{why_not[1:]}; this is from the journal, as of {clock_time(last.wall_s, now_s)}."
    return Explanation(
        pod=pod,
        node=last.node,
        source="journal",
        at_s=last.wall_s,
        accounts=accounts,
        plan=(),
        paragraphs=(
            action_sentences(rows, now_s),
            (source,),
            *(past_sentences(each, last.node, now_s) for each in accounts),
        ),
        past=told(rows, _MOST_LINES),
        hints=hints,
    )


def _idle(status: Status) -> tuple[str, ...]:
    """Why nothing is done on the whole node: it comes first, since all that would follow does not."""
    sentences = []
    suspended, node = status.suspended, inert(status.node or "")
    if suspended:
        why = "; ".join(remedy_on(reason, node) or inert(reason) for reason in suspended)
        sentences.append(f"At the moment the watchdog kills and evicts nobody on this node, although it should: {why}.")
    elif not status.enforcing:
        sentences.append(
            "The watchdog only observes on this node: it works everything out and records it, and does nothing."
        )
    maintenance = status.maintenance
    if maintenance is not None:
        sentences.append(
            f"The GPUs of this node are under maintenance ({inert(maintenance, 600)}): until that is over nothing is "
            "known of them, and nobody is killed or evicted."
        )
    return tuple(sentences)


def _of_node(status: Status) -> tuple[str, ...]:
    """What else holds for everybody on the node, and whom to ask."""
    sentences, contact = _of_breaker(status), status.contact
    synced, now = status.pods_synced_at, status.at
    if status.pods_stale:
        last = f", last true at {clock_time(synced, now)}" if synced is not None and now is not None else ""
        sentences.append(f"{OUT_OF_DATE}{last}: {NO_TIME_COUNTS}, and nobody is killed or evicted.")
    if contact:
        sentences.append(f"Questions: ask {inert(contact, 600)}.")
    return tuple(sentences)


def _of_breaker(status: Status) -> list[str]:
    """That the breaker of the node holds everybody back; nothing where it is closed."""
    breaker, now = status.breaker, status.at
    if breaker is None or now is None or not breaker.open:
        return []
    since, until = breaker.since, breaker.until
    begun = f" since {clock_time(since, now)}" if since is not None else ""
    nobody = f"until {clock_time(until, now)} nobody is killed or evicted, and then" if until is not None else "now"
    return [
        f"The breaker of this node is open{begun}, because so many workloads were over at once: {nobody} one at a time."
    ]


_MOST_MISSES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked about a pod, and in vain.

    `status` is the daemon's (None: it was not asked, or could not be), `why_not` why it says nothing, `hints` what
    helps. `no_journal` says why the journal can't be read, `before` what its past has of the pod; they may be empty.
    """

    pod: str
    status: Status | None
    why_not: str
    hints: tuple[str, ...]
    journal: Path
    no_journal: str
    before: str


def say_unknown(asked: Asked) -> str:
    """Say that nothing is known of a pod, what was asked, what can be done, and which pods may have been meant."""
    pod, status, no_journal = asked.pod, asked.status, asked.no_journal
    known = {each.title for each in status.accounts} if status is not None else set()
    if not no_journal:
        try:
            known |= set(pods_in(asked.journal))
        except JournalError as error:
            no_journal = str(error)
    lines = [f"nothing {'was decided about' if asked.before else 'is known of'} pod {inert(pod)}"]
    lines += [asked.why_not] if asked.why_not else []
    lines += asked.hints
    lines.append(no_journal or f"the journal {asked.journal} has nothing about it in the last {LATELY}")
    lines += [asked.before] if asked.before else []
    lines += _places(status) if status is not None else []
    misses = near_misses(pod, known)
    lines += [f"did you mean {' or '.join(inert(each) for each in misses)}?"] if misses else []
    return "\n  ".join(lines)


def _places(status: Status) -> list[str]:
    """Where a pod may be of which the daemon knows nothing."""
    if out_of_sight(status):
        places = [
            "so it may be here and use GPU memory all the same, or be on another node: ask again when that is over"
        ]
    else:
        places = ["it may be on another node, or it neither uses GPU memory nor declares any"]
    if any(use.reason == "unknown_pod" for use in status.unattributed):
        places.append("processes of pods that the pod list does not have use GPU memory here: it may be one of them")
    return places


def near_misses(pod: str, known: Iterable[str]) -> list[str]:
    """Pods of the same name in another namespace, and then those with a name much like it."""
    _, _, name = pod.partition("/")
    candidates = sorted(known)
    same = [each for each in candidates if each.partition("/")[2] == name]
    alike = difflib.get_close_matches(pod, candidates, n=_MOST_MISSES)
    return list(dict.fromkeys([*same, *alike]))[:_MOST_MISSES]


_HAS_PAST: Final = "SELECT count(*) FROM sqlite_schema WHERE name = 'past_span'"
_LAST: Final = "SELECT max(until_wall_s) FROM past_span"


def last_seen(journal: Path, pod: str, now_s: float) -> str:
    """What a pod (`namespace/name`) used at the last recorded pass, as a clause; empty where that is not known."""
    try:
        last_s, scene = _last_scene(journal)
    except JournalError:
        return ""
    for known in scene.pods.values():
        if known.title == pod:
            amounts = [use.used for use in scene.uses_of(known.uid)]
            least = "at least " if None in amounts else ""
            used = f"{least}{format_bytes(sum(amount or 0 for amount in amounts))} of GPU memory"
            return f"when the daemon last recorded the node, at {clock_time(last_s, now_s)}, {inert(pod)} used {used}"
    return ""


def _last_scene(journal: Path) -> tuple[float, RecordedNode]:
    """The node as it stood when the record ends; JournalError where there is none."""
    with reading(journal) as connection:
        has_past = connection.execute(_HAS_PAST).fetchone()[0]
        last_s = connection.execute(_LAST).fetchone()[0] if has_past else None
    if last_s is None:
        raise JournalError(f"journal {journal} holds no past")
    scene = RecordedNode()
    for span in spans(journal, last_s):
        for look in span.looks:
            scene = look.scene
    return last_s, scene


_WIDTH: Final = 100
_NARROWEST: Final = 40


def print_explanation(pod: str, url: str | None, journal: Path, *, as_json: bool, from_afar: bool = False) -> None:
    """Explain a pod (`namespace/name`) by the daemon at `url`, or else by the journal; None: by the journal alone.

    `from_afar`: the daemon is another node's, maybe, and the journal that lies here is not its own.
    """
    try:
        explanation = explain_pod(pod, url, journal, clock.now().wall_s, from_afar=from_afar)
    except UnexplainedError as error:
        raise click.ClickException(str(error)) from error
    if explanation.no_past:
        click.echo(f"History is not available here: {explanation.no_past}", err=True)
    if as_json:
        click.echo(json.dumps(explanation.document, indent=1))
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    click.echo("\n".join(explanation.lines(max(width, _NARROWEST))))


class UnexplainedError(WatchdogError):
    """Nothing is known of a pod; the text says what was asked and which pods may have been meant."""


def explain_pod(pod: str, url: str | None, journal: Path, now_s: float, *, from_afar: bool = False) -> Explanation:
    """Find out why a pod was or was not acted on, as of now (Unix time); UnexplainedError where nothing is known."""
    status, silent = _ask(url) if url is not None else (None, None)
    rows, no_journal = _read(journal, pod, now_s)
    if from_afar and not rows and not journal.exists():
        no_journal = "it stands in the journal of the daemon's own node, and none is kept here"
        if status is not None:
            no_journal = f"it stands in the journal of the daemon's own node: {to_run_inside('explain', pod)}"
    found = by_daemon(pod, status, rows) if status is not None else None
    if found is not None:
        return replace(found, no_past=no_journal)
    hints: tuple[str, ...] = ()
    if status is not None:
        why_not = _nothing(status, pod, now_s)
    elif silent is not None:
        why_not, hints = str(silent), help_lines(silent, "explain", pod)
    else:
        why_not = "no daemon was asked (--journal); --url asks one"
    if rows:
        return by_journal(pod, rows, why_not, now_s, hints)
    before = "" if no_journal or status is not None else last_seen(journal, pod, now_s)
    raise UnexplainedError(
        say_unknown(
            Asked(
                pod=pod,
                status=status,
                why_not=why_not,
                hints=hints,
                journal=journal,
                no_journal=no_journal,
                before=before,
            )
        )
    )


def _nothing(status: Status, pod: str, now_s: float) -> str:
    """Why the daemon that answers has nothing about a pod: what it can't see comes first."""
    node, at = inert(status.node or ""), clock_time(status.at or now_s, now_s)
    blind = out_of_sight(status)
    if blind:
        return f"the daemon of node {node} does not see all of its node at {at}. {' '.join(blind).rstrip('.')}"
    return f"the daemon of node {node} knew of no GPU memory of pod {inert(pod)} at {at}"


def _ask(url: str) -> tuple[Status | None, AskError | None]:
    """The status of the daemon there, or why there is none."""
    try:
        return ask_status(url), None
    except AskError as error:
        return None, error


def _read(journal: Path, pod: str, now_s: float) -> tuple[list[HistoryRow], str]:
    """What the journal has about a pod, or why it can't be read."""
    try:
        return history(journal, pod, now_s - LATELY_S), ""
    except JournalError as error:
        return [], str(error)
