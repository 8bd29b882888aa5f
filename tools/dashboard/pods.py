"""The pods against what they declared: who is over and by how much, and who uses memory that they do not declare."""

from typing import Final

from tools.dashboard.kinds import gauges, heads, share_cell, table
from tools.dashboard.panels import GREEN, GREY, RED, YELLOW, Json, Panel, Query, Row, limits, mapping, override
from tools.dashboard.queries import ACCOUNT, ACCOUNT_TITLE, OF_PODS, POD, by, metric

_NEAR: Final = ((None, GREEN), (0.9, YELLOW), (1, RED))
USED: Final = by(ACCOUNT, "account_memory_used_bytes", OF_PODS)
ALLOWED: Final = by(ACCOUNT, "account_memory_allowed_bytes", OF_PODS)
DECLARED: Final = by(ACCOUNT, "account_memory_declared_bytes", OF_PODS)
# An account that is allowed nothing (`default = "0"`) has no share of it: dividing by nothing gives no number.
SHARE: Final = f"{USED} / ({ALLOWED} > 0)"
_COLUMNS: Final = {
    **heads("cluster", "node", "namespace", "pod", "container"),
    "gpu": "GPU",
    "rule": "Rule",
    "Value #A": "Used",
    "Value #B": "Declared",
    "Value #C": "Allowed",
    "Value #D": "Used of allowed",
    "Value #E": "Peak of the pod",
    "Value #F": "Verdict",
    "Value #G": "Over, share of the range",
}


def _exprs() -> tuple[str, ...]:
    # The peak is the pod's: every account of the pod gets it, those whose use is unknown too.
    accounts = f"({USED} or {ALLOWED}) * 0 + 1"
    peak = f"({accounts}) * on ({POD}) group_left () {by(POD, 'pod_memory_peak_bytes', OF_PODS)}"
    over = by(ACCOUNT, "account_over_limit", OF_PODS)
    # Of those that are there now: the actions have those that are gone.
    lasting = f"max by ({ACCOUNT}) (avg_over_time({metric('account_over_limit', OF_PODS)}[$__range])) and {over}"
    return (USED, DECLARED, ALLOWED, SHARE, peak, over, lasting)


def _table() -> Panel:
    verdicts = mapping({"0": ("within", GREEN), "1": ("over", RED)})
    unjudged = {"type": "special", "options": {"match": "null", "result": {"text": "not judged", "color": GREY}}}
    text = {"type": "color-text"}
    lasting = {
        "unit": "percentunit",
        "thresholds": limits((None, GREEN), (0.001, YELLOW)),
        "custom.cellOptions": text,
        "noValue": "not judged",
    }
    return table(
        "Pods against what they declared",
        "One row per account: a pod, or a container if the rule says so. Allowed is the limit: declared plus the "
        "allowance. Peak is that of the whole pod. Not judged: it declares nothing, its declaration is invalid, or a "
        "part of its use is unknown. The last column is the share of the time range, as far as judged, in which it "
        "was over.",
        "bytes",
        _COLUMNS,
        *_exprs(),
        sort="Used of allowed",
        height=11,
        overrides=[
            override("Declared", {"noValue": "none or invalid"}),
            override("Allowed", {"noValue": "not judged"}),
            override("Used of allowed", {**share_cell(1.5, _NEAR), "noValue": "not judged"}),
            override("Verdict", {"mappings": [*verdicts, unjudged], "unit": "short", "custom.cellOptions": text}),
            override("Over, share of the range", lasting),
            override("Pod", {"links": [_link()]}),
        ],
    )


def _link() -> Json:
    chosen = "&var-namespace=${__data.fields.Namespace}&var-pod=${__data.fields.Pod}"
    where = "${datasource:queryparam}&${cluster:queryparam}&${node:queryparam}"
    url = f"/d/gpu-memory-watchdog?${{__url_time_range}}&{where}{chosen}"
    return {"title": "Only this pod", "url": url, "targetBlank": False}


def _bars() -> Panel:
    return gauges(
        "Used of allowed, the 20 highest",
        "Use of each account as a share of its limit now. Above 100 % it is over, and its rule's ladder runs.",
        "percentunit",
        Query(expr=f"topk(20, {SHARE})", legend=ACCOUNT_TITLE, instant=True),
        steps=_NEAR,
        defaults={"min": 0, "max": 1.5},
        width=12,
    )


def _undeclared() -> Panel:
    verdicts = by(f"{ACCOUNT}, verdict", "account_verdict", OF_PODS, 'verdict=~"undeclared|misdeclared"')
    held = f"{verdicts} * on ({ACCOUNT}) group_left () {USED}"
    return table(
        "Used and not declared",
        "Pods that use GPU memory and declare none, or have an invalid declaration. They are measured, and no action "
        "is taken on them.",
        "bytes",
        {**heads("cluster", "node", "namespace", "pod", "verdict"), "Value": "Used"},
        f"sum by ({POD}, verdict) ({held})",
        sort="Used",
        width=12,
        none="none, or unknown",
    )


def pods() -> Row:
    """Give the row."""
    return Row(title="Pods against what they declared", panels=[_table(), _bars(), _undeclared()])
