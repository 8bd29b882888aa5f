"""Valid policy documents, put together at random from values that every key may have."""

from copy import deepcopy
from random import Random
from typing import Any, Final

Document = dict[str, Any]

# Values that are valid under their key, wherever the key stands alone.
VALUES: Final[dict[str, list[Any]]] = {
    "mode": ["observe", "enforce"],
    "interval": ["1s", "1500ms", "5m"],
    "stale_after": ["3m", "1d", "0.5h"],
    "release_timeout": ["30s", "1h"],
    "schemes": [["*"], [], ["veriff", "hami"], ["kai", "*"]],
    "unit": ["1", "1Mi", "256Mi", "1Gi", "1k", "1e3", "percent", "fraction", "mig"],
    "per": ["total", "gpu"],
    "node_labels": [{}, {"nvidia.com/gpu.sharing-strategy": "time-slicing"}, {"pool": "gpu-*"}],
    "per_context": ["0", "512Mi", "1.5Gi"],
    "max_contexts": [0, 4, 100_000],
    "percent": ["0%", "2%", "12.5%", "100%"],
    "namespaces": [["jupyter-*"], ["a", "b?"]],
    "pods": [["trainer-*"]],
    "labels": [{"tier": "dev"}, {"example.com/team": "a*", "x": ""}],
    "owner_kinds": [["Job", "StatefulSet"]],
    "namespace_labels": [{"team": "a"}],
    "account": ["pod", "container"],
    "default": ["0", "4Gi", "104857600", ".5Gi"],
    "active": ["Mon-Fri 08:00-18:00 Europe/Berlin", "Sat,Sun 22:00-06:00 UTC", "Mon-Sun 00:00-24:00 UTC"],
    "under_pressure": [True, False],
    "priority_at_least": [-5, 1_000_000_000, 2_147_483_647],
    "annotation": ["", "example.com/spare"],
    "node": ["10 per 10m"],
    "namespace": ["5 per 250s"],
    "owner": ["3 per 7d"],
    "first": ["1m", "1s"],
    "factor": [1, 2, 1.5],
    "max": ["1h", "7d"],
    "offenders": ["50%", "0.1%"],
    "of_at_least": [1, 3],
    "hold": ["10m"],
    "free_below": ["5%", "99%"],
    "amount": ["cards", "40Gi"],
    "reserve": ["0", "1Gi"],
    "observe": [True, False],
    "contact": ["", "GPU-Team, Zimmer 5, \u00e4\u4e2d\U0001f600", 'A "quoted" \\ name'],
    "max_age": ["30d", "1h"],
    "max_size": ["256Mi", "1Ti"],
    "foreign_pid_namespace": [True, False],
    "signal_without_pidfd": [True, False],
    "signal_mps_clients": [True, False],
    "every": ["50ms", "0s", "1s"],
    "rise": ["16Mi"],
    "looks": ["60 per 1m"],
    "control": ["nvidia-cuda-mps-control", "/usr/bin/nvidia-cuda-mps-control"],
    "pipe": [[], ["/run/nvidia/mps/*/pipe"]],
    "timeout": ["5s"],
}
_LADDERS: Final = (
    ["100%", "110%", "150%"],
    ["100%", "+512Mi", "+2Gi"],
    ["50%", "20Gi", "40Gi"],
    ["0%", "100%", "+0"],
    ["10000%", "20Gi", "+1Gi"],
)


def pick(random: Random, *keys: str) -> Document:
    """Some of these keys, with valid values."""
    return {key: deepcopy(random.choice(VALUES[key])) for key in keys if random.random() < 0.6}


def valid_document(random: Random) -> Document:
    """A valid document; any key may be in it, and `version` always is."""
    document: Document = {"version": 1} | pick(random, "mode", "interval", "stale_after", "release_timeout")
    document |= pick(random, "schemes")
    document["declaration"] = [_declaration(random, number) for number in range(random.randrange(3))]
    document["allowance"] = pick(random, "per_context", "max_contexts", "percent")
    document["rule"] = [_rule(random, number) for number in range(random.randrange(1, 4))]
    document["protect"] = pick(random, "namespaces", "pods", "priority_at_least", "annotation")
    if random.random() < 0.3:
        document["brakes"] = pick(random, "node", "namespace", "owner") | {
            "owner_backoff": pick(random, "first", "factor", "max"),
            "breaker": pick(random, "offenders", "of_at_least", "hold"),
        }
        document["pressure"] = pick(random, "free_below")
        document["capacity"] = {"resource": "example.com/gpu-memory"} | pick(random, "amount", "reserve")
    document["events"] = pick(random, "observe", "contact")
    document["journal"] = pick(random, "max_age", "max_size")
    document["safety"] = pick(random, "foreign_pid_namespace", "signal_without_pidfd", "signal_mps_clients")
    if random.random() < 0.3:
        document["pulse"] = pick(random, "every", "rise", "looks")
        document["mps"] = pick(random, "control", "pipe", "timeout")
    return document


def _declaration(random: Random, number: int) -> Document:
    key = f"example.com/gpu-memory-{number}"
    declaration = pick(random, "per", "node_labels") | {"unit": random.choice(VALUES["unit"])}
    kind = random.choice(["resource", "resource", "annotation", "label"])
    declaration[kind] = key if kind == "resource" else random.choice([key, f"{{container}}.{key}", "gpu-*"])
    if kind == "resource" and random.random() < 0.3:
        declaration["unless"] = {"resource": "example.com/cores", "at_least": 100}
        declaration["limit_annotation"] = "example.com/limit"
    if random.random() < 0.3:
        declaration |= {"unit": "share", "shares": random.choice([1, 4, "label:nvidia.com/gpu.replicas"])}
    if random.random() < 0.3:
        declaration["allowance"] = pick(random, "per_context", "max_contexts", "percent")
    return declaration


def _rule(random: Random, number: int) -> Document:
    match = pick(random, "namespaces", "pods", "labels", "owner_kinds", "namespace_labels", "node_labels")
    rule: Document = {"name": f"rule {number}", "match": match} | pick(random, "account", "default", "mode", "active")
    rule["step"] = [_step(random, above, index) for index, above in enumerate(random.choice(_LADDERS))]
    return rule


def _step(random: Random, above: str, index: int) -> Document:
    kinds = ["warn", "kill", "evict"] if above not in ("0%", "50%") else ["warn"]
    step: Document = {"above": above, "for": f"{index}s", "do": random.choice(kinds)}
    if step["do"] == "warn":
        step["repeat"] = random.choice(["1h", "1s"])
    else:
        step["grace"] = random.choice(["1s", "30s"])
    if step["do"] == "kill":
        step["scope"] = random.choice(["process", "container", "pod"])
    return step
