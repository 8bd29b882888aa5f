"""What is kept of what the command says: names and numbers of the contract, no sentence, no time."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml

from tests.rig.command import Samples

# docs/status.md, docs/metrics.md: keys and names of these lists are promised to people.
_KEPT: Final = frozenset(
    """
    mode enforcing suspended gpus accounts unattributed gaps plan pods_stale breaker open health node
    uuid index parent gi ci profile up memory total used reserved residual listed
    namespace pod uid container gpu used_at_least used_at_most declared declared_by allowed verdict rule processes pid
    owner kind requested allowed_by_request allowance percent per_context contexts misdeclarations source counts
    behind observes active now ladder step do scope above threshold_bytes for_s grace_s repeat_s under_pressure state
    reason what pids withheld_by card account due_in_s under_way signals ended pending tries blocked
    ready journal policy_ok
    """.split()  # noqa: SIM905 - eighty names in a list are eighty lines
)
# Sentences and times: whether there is one.
_PRESENT: Final = frozenset(
    {
        "protected",
        "over_since",
        "maintenance",
        "held_because",
        "advice",
        "why",
        "remedy",
        "rule_unknown",
        "releases_in_s",
        "declare_by",
    }
)
# What is null, false or an empty list is left out, but for these, of which null says that they are not known.
_UNKNOWN: Final = frozenset(["used", "declared", "allowed", "total", "reserved", "residual", "unattributed", "verdict"])
_METRICS: Final = frozenset(
    """
    gpu_info gpu_up gpu_memory_total_bytes gpu_memory_used_bytes gpu_memory_reserved_bytes gpu_memory_residual_bytes
    gpu_memory_unattributed_bytes container_memory_used_bytes pod_memory_used_bytes pod_memory_declared_bytes
    pod_memory_peak_bytes account_memory_used_bytes account_memory_declared_bytes account_memory_allowed_bytes
    account_over_limit account_withheld accounts pod_last_action_timestamp_seconds actions_total would_act_total
    withheld_total reaction_seconds_count release_seconds_count scan_gaps_total last_cycle_timestamp_seconds
    pods_last_sync_timestamp_seconds enforcing breaker_open enforcement_suspended policy_info
    policy_last_reload_successful policy_last_reload_success_timestamp_seconds build_info
    scan_duration_seconds_count cycle_duration_seconds_count
    """.split()  # noqa: SIM905
)
# Depends on the number of cycles, or on the clock: only whether there are any.
_UNCOUNTED: Final = frozenset({"scan_gaps_total", "scan_duration_seconds_count", "cycle_duration_seconds_count"})
_VERSIONS: Final = frozenset({"version", "python", "sha256"})
_ROW: Final = tuple(
    """
    container gpu rule step do scope used used_at_least declared declared_by allowed result owner_kind owner_name
    """.split()  # noqa: SIM905
)
# The rows that follow `intended` repeat its numbers.
_AFTER: Final = frozenset({"signalled", "kill_ended", "released", "explained"})
_AMOUNTS: Final = frozenset({"used", "used_at_least", "declared", "declared_by", "allowed"})
_BRAKES: Final = frozenset(
    """
    protected pending stale owner owner_backoff namespace node breaker journal maintenance unknown_container mps
    """.split()  # noqa: SIM905
)
_TIMES: Final = ("_timestamp_seconds", "_seconds_created")


class Names:
    """Names for what is another on each run: PIDs by where the process runs, UIDs by the pod, the world's folder."""

    def __init__(self, pids: Mapping[int, str], uids: Mapping[str, str], root: str) -> None:
        self._root = root
        self._pids = pids
        self._uids = uids

    def status(self, told: Mapping[str, Any], *, exact: bool) -> dict[str, Any]:
        """A document of /api/status, or of `scan --json`, where `exact` is how long something takes to be due."""
        plan = told["plan"] if exact else lasting(told["plan"])
        found = self._clean({**told, "plan": plan}, exact=exact)
        assert isinstance(found, dict)
        return found

    def _clean(self, value: Any, *, exact: bool) -> Any:
        if isinstance(value, list):
            return [self._clean(each, exact=exact) for each in value]
        if not isinstance(value, dict):
            return value
        if "withheld_by" in value:  # an entry of the plan; its mark is told by the ladder
            value = {key: each for key, each in value.items() if key not in ("above", "threshold_bytes", "for_s")}
        found = {key: self._value(key, each, exact=exact) for key, each in value.items() if key in _KEPT}
        found |= {key: "there" for key, each in value.items() if key in _PRESENT and each}
        if "kind" in value:  # of other objects it is no promise: a process may take another name at any time
            found["name"] = value["name"]
        is_told = {key: each is not None and each is not False and each not in ([], {}) for key, each in found.items()}
        return {key: each for key, each in found.items() if key in _UNKNOWN or is_told[key]}

    def _value(self, key: str, value: Any, *, exact: bool) -> Any:
        match key:
            case "pid":
                found: Any = self._pids.get(value, "another")
            case "pids":
                found = sorted(self._pids.get(each, "another") for each in value)
            case "uid":
                found = self._uids.get(value, value)
            case "what":
                found = self.text(value)
            case "due_in_s" if value and not exact:
                found = "later"
            case "processes" | "unattributed" if isinstance(value, list):
                rows = [self._clean(each, exact=exact) for each in value]
                found = sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
            case _:
                found = self._clean(value, exact=exact)
        return found

    def text(self, text: str) -> str:
        """A text with names for all of these."""
        text = text.replace(self._root, "ROOT")
        for uid, name in self._uids.items():
            text = text.replace(uid, name)
        return re.sub(r"\d+", lambda found: self._pids.get(int(found[0]), found[0]), text)

    def history(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
        """The journal's rows by pod, those of one action together: what comes first within a cycle is no promise."""
        found: dict[str, dict[object, list[str]]] = {}
        for number, row in enumerate(rows):
            whose = f"{row['namespace']}/{row['pod']}" if row["pod"] else "the node"
            action = ("action_id", row["action_id"]) if row["action_id"] else number
            found.setdefault(whose, {}).setdefault(action, []).append(self._row(row))
        return {whose: [row for each in actions.values() for row in each] for whose, actions in found.items()}

    def _row(self, row: Mapping[str, Any]) -> str:
        left_out = _AMOUNTS if row["event"] in _AFTER else ()
        told = [f"{key}={row[key]}" for key in _ROW if row[key] is not None and key not in left_out]
        if row["reason"]:
            told.append("reason=no API" if row["reason"] == "no API" else "reason")
        if detail := row["detail"]:
            signal = re.match(r"SIG[A-Z]+", detail)
            told.append(f"detail={signal[0] if signal else detail}" if signal or detail in _BRAKES else "detail")
        return " ".join([row["event"], *told])


def metrics(samples: Samples) -> list[str]:
    """The samples, a line each; of counters at 0 only how many there are by that name."""
    found, zeros = [], dict[str, int]()
    for (name, labels), value in samples.items():
        if name not in _METRICS:
            continue
        if value == 0 and name.endswith(("_total", "_count")):
            zeros[name] = zeros.get(name, 0) + 1
            continue
        shown = ",".join(f"{key}={'*' if key in _VERSIONS else text}" for key, text in sorted(labels))
        found.append(f"{name}{{{shown}}} {_number(name, value)}" if shown else f"{name} {_number(name, value)}")
    return sorted([*found, *(f"{name} 0, {count} times" for name, count in zeros.items())])


def _number(name: str, value: float) -> str:
    if name in _UNCOUNTED or name.endswith(_TIMES):
        return "some"
    return f"{value:.0f}" if value == int(value) else f"{value:.6g}"


def lasting(plan: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Without repeats of warnings that are still to come: a cycle that is milliseconds early does not have them."""
    return [each for each in plan if each["do"] != "warn" or each["due_in_s"] == 0]


def explained(told: Mapping[str, Any]) -> dict[str, Any]:
    """What `explain --json` is made of: its sentences are not kept, only that there are some."""
    return {
        "source": told["source"],
        "verdicts": [each.get("verdict") for each in told["accounts"]],
        "plan": [(each["do"], each["withheld_by"]) for each in lasting(told["plan"] or ())],
        "sentences": bool(told["sentences"]),
        "history": bool(told["history"]),
    }


def keys(told: Mapping[str, Any]) -> dict[str, list[str]]:
    """The keys that each kind of object has, whatever their values are."""
    account, plan = told["accounts"][0], told["plan"][0]
    kinds = {"status": told, "gpu": told["gpus"][0], "memory": told["gpus"][0]["memory"], "account": account}
    kinds |= {"process": account["processes"][0], "step": account["ladder"][0], "plan": plan, "policy": told["policy"]}
    return {kind: sorted(found) for kind, found in kinds.items()}


def places(text: str, root: str) -> list[str]:
    """Of each line of `check` its place: the file, the line where there is one, the key; not what it says of it."""
    form = re.compile(r"(?P<file>\S+?\.toml)(?P<line>:\d+)?:( warning:)?( (?P<key>[a-z_]+[\w.\[\]]*):)?")
    lines = text.replace(f"{root}/", "").splitlines()
    found = [match[0] for line in lines if (match := form.match(line))]
    return found or ["something"] * bool(lines)


def needs(text: str) -> dict[str, Any]:
    """What `rights` asks for: the objects, and of the roles their rules."""
    documents = [each for each in yaml.safe_load_all(text) if each]
    return {f"{each['kind']} {each['metadata']['name']}": each.get("rules", "there") for each in documents}


def shown(value: Any, indent: int = 0, room: int = 200) -> str:
    """JSON with sorted keys, indented; what fits stands on one line."""
    flat = json.dumps(value, sort_keys=True)
    if not isinstance(value, dict | list) or not value or (len(flat) + indent <= room and indent):
        return flat
    pad = " " * (indent + 1)
    if isinstance(value, list):
        body = [shown(each, indent + 1, room) for each in value]
        return "[\n" + ",\n".join(pad + each for each in body) + f"\n{' ' * indent}]"
    body = [f"{json.dumps(key)}: {shown(value[key], indent + 1, room - len(key) - 4)}" for key in sorted(value)]
    return "{\n" + ",\n".join(pad + each for each in body) + f"\n{' ' * indent}}}"
