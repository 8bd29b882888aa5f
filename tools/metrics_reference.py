"""Writes docs/metrics.md: docs/templates/metrics.md with every metric family, from the catalogue that is exported."""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

from tools import ROOT
from watchdog.config.load import load_policy
from watchdog.core.assessment import Verdict
from watchdog.core.brakes import Brake
from watchdog.core.model import GapReason
from watchdog.core.policy import Do, Policy
from watchdog.core.sharing import Sharing
from watchdog.export.catalogue import FAMILIES, RESULTS, SECTIONS, Family, MetricKind, Per
from watchdog.report.recent import MOST

TEMPLATE: Final = ROOT / "docs" / "templates" / "metrics.md"
REFERENCE: Final = ROOT / "docs" / "metrics.md"
POLICY: Final = ROOT / "config" / "policy.toml"
# process_virtual_memory_bytes and its five sisters, of prometheus_client.ProcessCollector.
OF_THE_PROCESS: Final = 6

_EACH: Final[Mapping[Per, str]] = {
    Per.NODE: "node",
    Per.CARD: "GPU, and card in MIG mode",
    Per.GPU: "GPU (a card, or a MIG instance)",
    Per.PLACE: "container and GPU that it uses",
    Per.POD: "pod that uses or declares GPU memory",
    Per.ACCOUNT: "account of such a pod",
    Per.NAMESPACE: "namespace that holds GPU memory, or did in the last day",
    Per.SHARING: "such account that shares a resource claim with others",
    Per.UNJUDGED: "such account that is neither within nor over",
    Per.HELD: "such account, and brake, with a due kill or eviction that is withheld",
    Per.ACTION: "kind of step in the policy",
    Per.RULE_ACTION: "rule and kind of step in it",
    Per.ACTED_ON: f"recent kind of action on a pod, at most {MOST}",
    Per.REASON: "reason why enforcement is suspended",
    Per.MAINTENANCE: "maintenance of the GPUs in progress",
}
_VALUES: Final[Mapping[str, type[StrEnum] | tuple[StrEnum, ...]]] = {
    "sharing": Sharing,
    "verdict": Verdict,
    "action": Do,
    "result": RESULTS,
    "brake": Brake,
    "reason` of `scan_gaps_total": GapReason,
}


def metrics_reference() -> str:
    """The whole text of docs/metrics.md."""
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, families in SECTIONS.items():
        text = text.replace(f"{{{name}}}", "\n".join(_table(families)))
    text = text.replace("{values}", "\n".join(_values())).replace("{series}", "\n".join(_series()))
    example = number_of_series(load_policy(POLICY), gpus=16, pods=200, namespaces=10)
    return text.replace("{example}", f"{example:,}").replace("{most}", f"{MOST:,}")


def number_of_series(policy: Policy, *, gpus: int, pods: int, namespaces: int) -> int:
    """How many series a node has: no MIG, no API, a judged account and a container on a GPU each pod, nothing done."""
    ways = {(rule.name, step.do) for rule in policy.rules for step in rule.steps}
    there = {
        Per.NODE: 1,
        Per.CARD: gpus,
        Per.GPU: gpus,
        Per.PLACE: pods,
        Per.POD: pods,
        Per.ACCOUNT: pods,
        Per.NAMESPACE: namespaces,
        Per.SHARING: 0,
        Per.UNJUDGED: 0,
        Per.HELD: 0,
        Per.ACTION: len({do for _, do in ways}),
        Per.RULE_ACTION: len(ways),
        Per.ACTED_ON: 0,
        Per.REASON: 0,
        Per.MAINTENANCE: 0,
    }
    of_the_api = sum(family.times for family in FAMILIES if "Absent without the API" in family.help)
    return sum(family.times * there[family.per] for family in FAMILIES) - of_the_api + OF_THE_PROCESS


def _table(families: tuple[Family, ...]) -> Iterator[str]:
    yield "| name | labels | type | meaning |"
    yield "|---|---|---|---|"
    for family in families:
        kind = "gauge" if family.kind is MetricKind.INFO else family.kind.value
        labels = f" {', '.join(family.labels)} " if family.labels else " "
        yield f"| `{family.name}` |{labels}| {kind} | {family.help} |"


def _values() -> Iterator[str]:
    for label, values in _VALUES.items():
        yield f"| `{label}` | {', '.join(f'`{value.value}`' for value in values)} |"


def _series() -> Iterator[str]:
    by_unit: defaultdict[Per, list[Family]] = defaultdict(list)
    for family in FAMILIES:
        by_unit[family.per].append(family)
    for unit, words in _EACH.items():
        names = [f"`{each.name}`" + (f" ({each.times})" if each.times > 1 else "") for each in by_unit[unit]]
        number = sum(family.times for family in by_unit[unit])
        if unit is Per.NODE:
            number, names = number + OF_THE_PROCESS, [*names, f"`process_` ({OF_THE_PROCESS})"]
        yield f"| {words} | {number} | {', '.join(names)} |"


def main() -> int:
    """Write the file, or with `--check` say whether it is as it would be written."""
    text = metrics_reference()
    if "--check" in sys.argv[1:]:
        return 0 if REFERENCE.read_text(encoding="utf-8") == text else 1
    REFERENCE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
