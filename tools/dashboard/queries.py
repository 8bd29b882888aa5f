"""The words of which the dashboard's PromQL is made: selectors by the variables, joins, sums that may be zero."""

from typing import Final

# What a scrape leaves (deploy/prometheus): `node` names the watchdog's node, `cluster` may be missing. A label that is
# missing matches `.*`, which is what "All" stands for in each of the variables.
ON_NODES: Final = 'cluster=~"$cluster", node=~"$node"'
OF_PODS: Final = f'{ON_NODES}, namespace=~"$namespace", pod=~"$pod"'
JOB: Final = 'job="gpu-memory-watchdog"'

NODE: Final = "cluster, node"
CARD: Final = "cluster, node, gpu"
POD: Final = "cluster, node, namespace, pod"
HOLDER: Final = "cluster, node, namespace, pod, container, gpu"
ACCOUNT: Final = "cluster, node, namespace, pod, container, gpu, rule"
ACTION_LABELS: Final = "cluster, node, namespace, pod, container, action, result, rule"


def metric(name: str, where: str = ON_NODES, *more: str) -> str:
    """Select a metric of the watchdog by its name without the prefix."""
    return f"gpu_watchdog_{name}{{{', '.join((where, *more))}}}"


def by(labels: str, name: str, where: str = ON_NODES, *more: str) -> str:
    """Give one series a set of labels, from whichever watchdog pod: a restarted daemon is a new `watchdog_pod`."""
    return f"max by ({labels}) ({metric(name, where, *more)})"


def or_none(count: str, knowing: str = "") -> str:
    """Count zero where there is nothing to count, but only where that is known, by a series of `knowing` or a watchdog.

    Where a watchdog is there and does not know, as while a call into the driver hangs, zero would be a claim.
    """
    return f"{count} or 0 * count({knowing or metric('build_info')})"


def counted(labels: str, name: str) -> str:
    """Count what happened at each step of a graph, by labels; steps at which nothing happened give no bar.

    What a counter has grown by since the step before, which is a whole number and counts nothing twice. `rate` and
    `increase` extrapolate: a kill would be 0.8 of one. Where the counter started over, or has not been there in the
    last hour, it is what it has counted since; a gap in the scrapes is one step.
    """
    now = metric(name)
    return f"sum by ({labels}) ({now} - last_over_time({now}[1h] offset $__interval) >= 0 or {now}) > 0"


def grown(name: str, *more: str) -> str:
    """Say how often something was counted in the whole time range. `increase` extrapolates: hence whole numbers."""
    return f"round(sum(increase({metric(name, ON_NODES, *more)}[$__range])))"


def quantile(share: str, labels: str, name: str, over: str = "$__rate_interval") -> str:
    """Take a quantile of a histogram; no series where nothing was observed, since the comparison drops not-a-number."""
    buckets = f"sum by ({f'{labels}, le' if labels else 'le'}) (increase({metric(f'{name}_bucket')}[{over}]))"
    return f"histogram_quantile({share}, {buckets}) >= 0"


def titled(per_card: str) -> str:
    """Give each card's series its index and MIG profile besides its UUID."""
    shown = "index, profile"
    return f"({per_card}) * on ({CARD}) group_left ({shown}) {by(f'{CARD}, {shown}', 'gpu_info')}"


def of_kind(per_card: str) -> str:
    """Give each card's series its model and how it is shared besides its UUID.

    While one daemon follows another on a node, both may have said how; one of them counts.
    """
    shown = "model, sharing"
    kind = f"topk by ({CARD}) (1, {by(f'{CARD}, {shown}', 'gpu_info')})"
    return f"({per_card}) * on ({CARD}) group_left ({shown}) {kind}"


# The cards that pods use.
PLACES: Final = f"group by ({POD}, gpu) ({metric('container_memory_used_bytes')})"


def declared_by_card() -> str:
    """What the pods on each card declare: what is declared for all of a pod's cards is divided among those it uses.

    Where claims give amounts by card, what is declared beside them counts on each, and is in the account of each.
    """
    of_cards, of_all = (by(ACCOUNT, "account_memory_declared_bytes", ON_NODES, each) for each in ('gpu!=""', 'gpu=""'))
    alone = f"sum by ({POD}) ({of_all} unless on ({POD}, container) {of_cards})"
    each = f"count by ({POD}) ({PLACES}) * on ({POD}) group_right () {PLACES}"
    return f"sum by ({CARD}) ({of_cards} or {alone} / on ({POD}) group_right () ({each}))"


CARD_TITLE: Final = "{{node}} GPU {{index}} {{profile}}"
PLACE_TITLE: Final = "{{namespace}}/{{pod}} {{container}} on {{node}} GPU {{index}} {{profile}}"
ACCOUNT_TITLE: Final = "{{namespace}}/{{pod}} {{container}} {{gpu}}"
