"""The cards, each a bar of who uses it, with the same as text below."""

from collections.abc import Iterator, Sequence

from watchdog.core.plan import CycleReport
from watchdog.export.page.bars import Segment, bar, swatch
from watchdog.export.page.html import amount, at_least, items, name, section, tag, text
from watchdog.export.page.shares import REST, Share, Shares, shares
from watchdog.export.page.sight import gpu_label
from watchdog.report.figures import Sum
from watchdog.report.text import count


def cards(report: CycleReport, as_of: str = "") -> str:
    """The section of the cards; `as_of` marks numbers that are old."""
    if not report.snapshot.gpus:
        why = "Not known: NVML does not answer." if report.snapshot.blind else "None seen."
        return section("gpus", "GPUs", tag("p", why))
    return section("gpus", "GPUs", items((_card(each, report, as_of) for each in shares(report)), "cards"))


def _card(card: Shares, report: CycleReport, as_of: str) -> str:
    gpu = card.gpu
    model = f"{gpu.name} {gpu.profile or ''}".strip()
    head = f'<h3>{text(gpu_label(gpu))} <small title="{text(gpu.uuid)}">{name(model, 60)}</small></h3>'
    if not gpu.up:
        why = "Let go for maintenance." if report.maintenance is not None else "Does not answer."
        return f'{head}<p class="bad">{why}</p>'
    share = f" ({100 * gpu.used // gpu.total}%)" if gpu.total and gpu.used is not None else ""
    old = f' <b class="watch">{text(as_of)}</b>' if as_of else ""
    numbers = f"<p><b>{amount(gpu.used)}</b> of {amount(gpu.total)}{share}{old}</p>"
    parts = [each for each in (*card.pods, *card.others) if each.at_least > 0]
    # The numbers are read one after the other, and can add up to more than there is.
    whole = max(gpu.total or 0, sum(each.at_least for each in parts))
    drawn = bar((Segment(css=each.css, amount=each.at_least) for each in parts), whole) if gpu.total else ""
    free = gpu.total - gpu.used if gpu.total is not None and gpu.used is not None else None
    legend = items([*_pods(card.pods), *_others(card.others), f"{swatch('free')}{amount(free)} free"], "legend")
    return f"{head}{numbers}{drawn}{legend}"


def _pods(pods: Sequence[Share]) -> Iterator[str]:
    hidden, sums = [each for each in pods if not each.is_named], Sum()
    for each in pods:
        if each.is_named:
            over = " <b>over</b>" if each.is_over else ""
            yield f"{swatch(each.css)}{at_least(each.used, each.at_least)} {name(each.label)}{over}"
    for each in hidden:
        sums.at_least += each.at_least
        sums.known = sums.known and each.used is not None
    if hidden:
        over_too = sum(each.is_over for each in hidden)
        over = f" <b>({over_too} over)</b>" if over_too else ""
        yield f"{swatch(REST[0])}{at_least(sums.total, sums.at_least)} {count(len(hidden), 'more pod')}{over}"


def _others(others: Sequence[Share]) -> Iterator[str]:
    for each in others:
        if each.used != 0:
            yield f"{swatch(each.css)}{at_least(each.used, each.at_least)} {text(each.label)}"
