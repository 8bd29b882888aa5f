"""What is known of a pod: by what a daemon says of it now, or by what the journal last had of it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from textwrap import wrap
from typing import Any, Final

from watchdog.daemon.enforcement import remedy_on
from watchdog.explain.blind import hanging, unseen, without_told
from watchdog.export.brake_words import NO_TIME_COUNTS, OUT_OF_DATE
from watchdog.export.journal_read import HistoryRow
from watchdog.export.phrases import clock_time, date_time, inert, rfc3339
from watchdog.export.status_read import Part, doubts_of
from watchdog.export.why import account_paragraphs
from watchdog.export.why_deed import deed_sentences, earlier_sentences, lead_sentences
from watchdog.export.why_past import last_accounts, past_sentences, told

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


def title(part: Part) -> str:
    """The pod that an account or a plan entry is about, as `namespace/name`."""
    return f"{part.text('namespace')}/{part.text('pod')}"


def by_daemon(pod: str, status: Part, rows: Iterable[HistoryRow]) -> Explanation | None:
    """By what the daemon says now; None where it knows nothing of the pod. StatusError on what is no status."""
    accounts = tuple(each for each in status.parts("accounts") if title(each) == pod)
    now_s, (namespace, _, name) = status.moment("at") or 0.0, pod.partition("/")
    node = status.text("node") or ""
    here = [row for row in rows if row.node == node]
    lead = lead_sentences(status, here, namespace, name, now_s)
    if not accounts and (here or not lead):
        return None
    if lead and not accounts:
        lead = (*lead, "It uses and declares no GPU memory on this node now.")
    is_unknown = any(each.whole("used") is None for each in accounts)
    blind, told_of = (unseen(status), without_told(status)) if is_unknown else ((), status)
    explanation = Explanation(
        pod=pod,
        node=node,
        source="daemon",
        at_s=now_s,
        accounts=tuple(dict(each.values) for each in accounts),
        plan=tuple(dict(each.values) for each in status.parts("plan") if title(each) == pod),
        paragraphs=(
            lead,
            (*hanging(status), *blind, *_idle(status)),
            *(p for each in accounts for p in account_paragraphs(each, told_of)),
            earlier_sentences(status, here, namespace, name, now_s),
            _of_node(status),
        ),
        past=told(here, _MOST_LINES),
    )
    doubts = doubts_of(status)
    return replace(explanation, paragraphs=(*explanation.paragraphs, (f"{doubts}.",))) if doubts else explanation


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
            deed_sentences(rows, now_s),
            (source,),
            *(past_sentences(each, last.node, now_s) for each in accounts),
        ),
        past=told(rows, _MOST_LINES),
        hints=hints,
    )


def _idle(status: Part) -> tuple[str, ...]:
    """Why nothing is done on the whole node: it comes first, since all that would follow does not."""
    sentences = []
    suspended, node = status.texts("suspended"), inert(status.text("node") or "")
    if suspended:
        why = "; ".join(remedy_on(reason, node) or inert(reason) for reason in suspended)
        sentences.append(f"At the moment the watchdog kills and evicts nobody on this node, although it should: {why}.")
    elif not status.flag("enforcing"):
        sentences.append(
            "The watchdog only observes on this node: it works everything out and records it, and does nothing."
        )
    maintenance = status.text("maintenance")
    if maintenance is not None:
        sentences.append(
            f"The GPUs of this node are under maintenance ({inert(maintenance, 600)}): until that is over nothing is "
            "known of them, and nobody is killed or evicted."
        )
    return tuple(sentences)


def _of_node(status: Part) -> tuple[str, ...]:
    """What else holds for everybody on the node, and whom to ask."""
    sentences, contact = _of_breaker(status), status.text("contact")
    synced, now = status.moment("pods_synced_at"), status.moment("at")
    if status.flag("pods_stale"):
        last = f", last true at {clock_time(synced, now)}" if synced is not None and now is not None else ""
        sentences.append(f"{OUT_OF_DATE}{last}: {NO_TIME_COUNTS}, and nobody is killed or evicted.")
    if contact:
        sentences.append(f"Questions: ask {inert(contact, 600)}.")
    return tuple(sentences)


def _of_breaker(status: Part) -> list[str]:
    """That the breaker of the node holds everybody back; nothing where it is closed."""
    breaker, now = status.part("breaker"), status.moment("at")
    if breaker is None or now is None or not breaker.flag("open"):
        return []
    since, until = breaker.moment("since"), breaker.moment("until")
    begun = f" since {clock_time(since, now)}" if since is not None else ""
    nobody = f"until {clock_time(until, now)} nobody is killed or evicted, and then" if until is not None else "now"
    return [
        f"The breaker of this node is open{begun}, because so many workloads were over at once: {nobody} one at a time."
    ]
