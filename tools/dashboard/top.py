"""What is above the panels: the variables, and the marks of what was done in every graph."""

from typing import Final

from tools.dashboard.panels import DATASOURCE, GREEN, ORANGE, PURPLE, RED, YELLOW, Json
from tools.dashboard.queries import CARD, JOB, NODE, OF_PODS, ON_NODES, by, metric
from watchdog.core.policy import Do

_ALL: Final = {"selected": True, "text": ["All"], "value": ["$__all"]}
# A series of a pod that has been acted on stays 15 minutes after the pod: a step of a minute cannot miss it.
_STEP: Final = "1m"


def variables() -> list[Json]:
    """Give the variables in the order in which they are chosen: each one narrows those after it."""
    in_cluster = 'cluster=~"$cluster"'
    named = f'{ON_NODES}, namespace=~"$namespace"'
    return [
        {
            "name": "datasource",
            "label": "Prometheus",
            "description": "The Prometheus that scrapes the watchdogs.",
            "type": "datasource",
            "query": "prometheus",
            "current": {},
            "hide": 0,
            "includeAll": False,
            "multi": False,
            "options": [],
            "refresh": 1,
            "regex": "",
            "skipUrlSync": False,
        },
        _labels("cluster", "Cluster", "", "If the scrape configuration adds this label; otherwise All.", "build_info"),
        _labels("node", "Node", in_cluster, "Nodes with a watchdog.", "build_info"),
        _labels("namespace", "Namespace", ON_NODES, "Of the measured pods.", "pod_memory_peak_bytes"),
        _labels("pod", "Pod", named, "The measured pods, including those that are gone.", "pod_memory_peak_bytes"),
        _cards(),
    ]


def _labels(name: str, label: str, where: str, description: str, source: str) -> Json:
    selector = metric(source, where) if where else f"gpu_watchdog_{source}"
    return _query(name, label, description, f"label_values({selector}, {name})") | {
        "allValue": ".*",
        "current": _ALL,
        "includeAll": True,
    }


def _cards() -> Json:
    shown = f"max by ({CARD}, index, profile) ({metric('gpu_info')} and on ({CARD}) {metric('gpu_up')})"
    card = f'label_join({shown}, "card", " GPU ", "node", "index")'
    title = f'label_join({card}, "title", " ", "card", "profile")'
    about = "The cards that are drawn one per graph; by default the first."
    # What the query gives is a text with the labels in it; the groups `value` and `text` pick two of them.
    picked = '/gpu="(?<value>[^"]+)|title="(?<text>[^"]+?) ?"/g'
    return _query("gpu", "Card", about, f"query_result({title})") | {
        "current": {},
        "includeAll": False,
        "regex": picked,
    }


def _query(name: str, label: str, description: str, query: str) -> Json:
    return {
        "name": name,
        "label": label,
        "description": description,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"Variable-{name}"},
        "hide": 0,
        "multi": True,
        "options": [],
        # 2: read again whenever the time range changes, so that pods which are gone by now can be chosen.
        "refresh": 2,
        "regex": "",
        "skipUrlSync": False,
        "sort": 1,
    }


def annotations() -> list[Json]:
    """Give the marks in the graphs.

    The metrics have *when* a pod was last acted on, as the value of a gauge. Grafana takes that value for the mark's
    time with `useValueForTime`, in milliseconds: hence times 1000. A value that repeats is one mark, not one each step
    (processEvents in packages/grafana-prometheus/src/annotations.ts of Grafana).
    """
    action = "{{node}}: {{namespace}}/{{pod}} {{container}}, rule {{rule}}"
    restarted = f"max by ({NODE}) (process_start_time_seconds{{{JOB}, {ON_NODES}}})"
    return [
        {
            "builtIn": 1,
            "datasource": {"type": "grafana", "uid": "-- Grafana --"},
            "enable": True,
            "hide": True,
            "iconColor": "rgba(0, 211, 255, 1)",
            "name": "Annotations & Alerts",
            "type": "dashboard",
        },
        *(
            _mark(f"{do.verb.noun.capitalize()}s", color, _actions(do), f"{do.capitalize()}: {{{{result}}}}", action)
            for do, color in _by_severity()
        ),
        _mark("Starts of the watchdog", PURPLE, restarted, "Watchdog started", "{{node}}", enable=False),
        _mark(
            "New policies",
            GREEN,
            by(NODE, "policy_last_reload_success_timestamp_seconds"),
            "Policy loaded",
            "{{node}}",
            enable=False,
        ),
    ]


def _by_severity() -> list[tuple[Do, str]]:
    """The actions with their colors: first those that end processes, last those that enforce nothing."""
    colors = {do: RED if do.ends_processes else ORANGE if do.enforces else YELLOW for do in Do}
    return sorted(colors.items(), key=lambda each: [RED, ORANGE, YELLOW].index(each[1]))


def _actions(action: Do) -> str:
    labels = f"{NODE}, namespace, pod, container, result, rule"
    return by(labels, "pod_last_action_timestamp_seconds", OF_PODS, f'action="{action}"')


def _mark(name: str, color: str, seconds: str, title: str, text: str, *, enable: bool = True) -> Json:
    expr = f"{seconds} * 1000"
    return {
        "datasource": DATASOURCE,
        "enable": enable,
        "hide": False,
        "iconColor": color,
        "name": name,
        "titleFormat": title,
        "textFormat": text,
        "tagKeys": "namespace,pod",
        "useValueForTime": True,
        # Up to Grafana 12 the query is read from here, later from the target.
        "expr": expr,
        "step": _STEP,
        "target": {"expr": expr, "interval": _STEP, "refId": "Anno"},
    }
