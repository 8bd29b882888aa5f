"""All accounts in a table of few columns, which a phone has room for: the most urgent first."""

from collections.abc import Sequence
from typing import Final

from watchdog.core.assessment import Assessment, Verdict
from watchdog.export.page.html import amount, at_least, name, section, tag, text
from watchdog.export.page.sight import Sight, account_place, not_known
from watchdog.export.page.standing import Standing
from watchdog.export.page.told import MARKS, account_bar
from watchdog.report.text import count

_STATES: Final = {
    Verdict.OVER: "over",
    Verdict.WITHIN: "within",
    Verdict.UNDECLARED: "declares nothing",
    Verdict.MISDECLARED: "declares what can't be",
    Verdict.UNKNOWN: "not known",
}
_CSS: Final = {Verdict.MISDECLARED: "watch", Verdict.UNKNOWN: "watch", Verdict.OVER: "watch"}


def accounts(sight: Sight, all_standings: Sequence[Standing]) -> str:
    """The section of all accounts."""
    if not all_standings:
        return section("accounts", "All accounts", tag("p", _none(sight)))
    head = "<thead><tr><th scope=col>Pod</th><th scope=col>Use</th><th scope=col>State</th></tr></thead>"
    rows = "".join(_row(each, sight) for each in all_standings)
    caption = f"<caption>{count(len(all_standings), 'account')}: what is over first, then by the share in use. "
    caption += f"{' '.join(filter(None, (MARKS, text(_old(sight)), text(not_known(sight.unlisted)))))}</caption>"
    return section("accounts", "All accounts", f"<table>{caption}{head}<tbody>{rows}</tbody></table>", "wide")


def _none(sight: Sight) -> str:
    if sight.report is not None and sight.report.snapshot.blind:
        return "Not known: NVML does not answer."
    if sight.unlisted:
        return f"No pod of the list declares GPU memory. {text(not_known(sight.unlisted))}"
    return "No pod of the list uses GPU memory or declares it."


def _old(sight: Sight) -> str:
    return f"This is {sight.as_of}." if sight.as_of else ""


def _row(standing: Standing, sight: Sight) -> str:
    assessment = standing.assessment
    place = account_place(assessment, sight.labels)
    where = f" <small>{name(place)}</small>" if place else ""
    rule = f" <small>rule {name(assessment.rule.name, 63)}</small>" if assessment.rule is not None else ""
    head = f"<th scope=row>{name(assessment.pod.title)}{where}{rule}</th>"
    use = tag("div", f"{account_bar(assessment)}<span>{_use(assessment, sight)}</span>", "use")
    return f"<tr>{head}<td>{use}</td><td>{_state(standing)}</td></tr>"


def _use(assessment: Assessment, sight: Sight) -> str:
    used, most = at_least(assessment.used, assessment.used_at_least), sight.at_most.get(assessment.account)
    used += f", at most {amount(most)}" if most is not None else ""
    if assessment.allowed is None:
        return used
    declared = (
        "" if assessment.declared == assessment.allowed else f" <small>(declared {amount(assessment.declared)})</small>"
    )
    return f"{used} of {amount(assessment.allowed)}{declared}"


def _state(standing: Standing) -> str:
    verdict = standing.assessment.verdict
    css = standing.level if standing.steps else _CSS.get(verdict, "")
    step = f", {text(standing.gravest.short)}" if standing.gravest is not None else ""
    protected = " <small>(protected)</small>" if standing.assessment.protected is not None else ""
    return f"{tag('b' if css else 'span', f'{_STATES[verdict]}{step}', css)}{protected}"
