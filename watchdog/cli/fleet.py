"""`top --cluster --prometheus`: all nodes by two instant queries, also of many clusters (Thanos, Mimir)."""

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from watchdog import clock
from watchdog.cli.cluster_rows import NodeAnswer
from watchdog.core.errors import Problem
from watchdog.kube.failure import DaemonError
from watchdog.kube.prometheus import Ask, Sample, instant
from watchdog.report.status import ABSENT, Moment, Status
from watchdog.report.summary import AccountSummary, GpuSummary, Summary
from watchdog.report.text import rfc3339

_MOST_ACCOUNTS: Final = 500
_MOST_IDLE: Final = 500
_OLDEST_S: Final = 366 * 86400.0
ROW: Final = "row"
_NODE: Final = "cluster, node"
_ACCOUNT: Final = "cluster, node, namespace, pod, container, gpu"


def _max(by: str, metric: str) -> str:
    """A metric by labels: two daemons of one node, the old one and its successor, may both have a series."""
    return f"max by ({by}) ({metric})"


def _of_cards(function: str, metric: str) -> str:
    """A sum or count over a node's GPUs, at first by daemon: by node and GPU it takes Prometheus twice as long."""
    return _max(_NODE, f"{function} without (gpu) ({metric})")


# Added to the bytes of each GPU, so that a sum says how many it is of: without some it must not pass for the whole
# node's, and to count them apart would take Prometheus as long again. More than a node has, and exact in a float.
_EACH: Final = 2**46
_UP: Final = "gpu_watchdog_gpu_up"
_GPU_USED: Final = "gpu_watchdog_gpu_memory_used_bytes"
_GPU_TOTAL: Final = "gpu_watchdog_gpu_memory_total_bytes"
_USED: Final = "gpu_watchdog_account_memory_used_bytes"
_ALLOWED: Final = "gpu_watchdog_account_memory_allowed_bytes"
_IS_OVER: Final = _max(_ACCOUNT, "gpu_watchdog_account_over_limit == 1")
# Both are of one daemon, with the same labels.
_MOST_URGENT: Final = f"topk({_MOST_ACCOUNTS}, {_USED} / {_ALLOWED})"
_UTILIZATION: Final = "gpu_watchdog_gpu_utilization_ratio"
_IDLE_S: Final = "gpu_watchdog_account_idle_seconds"
_IDLE_AFTER: Final = _max(_NODE, "gpu_watchdog_idle_after_seconds")
# For how long what is reported as idle has been. Most computes, and to compare all of it would take twice as long.
_IDLE: Final = f"(({_IDLE_S} > 0) >= on ({_NODE}) group_left () {_IDLE_AFTER})"
_CYCLE: Final = "gpu_watchdog_last_cycle_timestamp_seconds"
_SCRAPES: Final = _max(_NODE, 'up{job="gpu-memory-watchdog"}')
# What is asked for, by the value of a label that each row gets. Filters are within, before anything is grouped.
_NODES: Final[Mapping[str, str]] = {
    # Of a node that has a cycle the scrape is known.
    "up": f"{_SCRAPES} unless on ({_NODE}) {_CYCLE}",
    "age": _max(_NODE, f"timestamp({_CYCLE}) - {_CYCLE}"),
    "gpus": _of_cards("count", _UP),
    "down": _max(f"{_NODE}, gpu", f"{_UP} == 0"),
    "used": _of_cards("sum", f"{_GPU_USED} + {_EACH}"),
    "total": _of_cards("sum", f"{_GPU_TOTAL} + {_EACH}"),
    "enforcing": _max(_NODE, "gpu_watchdog_enforcing"),
    # Where it enforces, that is its mode.
    "mode": _max(f"{_NODE}, mode", f"gpu_watchdog_policy_info unless on ({_NODE}) gpu_watchdog_enforcing == 1"),
    "suspended": _max(f"{_NODE}, reason", "gpu_watchdog_enforcement_suspended == 1"),
    "breaker": _max(_NODE, "gpu_watchdog_breaker_open == 1"),
    "accounts": _max(f"{_NODE}, verdict", "gpu_watchdog_accounts > 0"),
    "utilization": _of_cards("avg", _UTILIZATION),
}
_AMOUNTS: Final[Mapping[str, str]] = {_USED: "account_used", _ALLOWED: "account_allowed"}
_URGENT: Final[Mapping[str, str]] = {
    # Both amounts by one row, so that those of all accounts are compared once.
    "account": _max(
        f"__name__, {_ACCOUNT}",
        f'{{__name__=~"{_USED}|{_ALLOWED}"}} and ({_MOST_URGENT} or topk({_MOST_IDLE}, {_IDLE}))',
    ),
    # Of all of them, since they are counted.
    "account_idle": _max(_ACCOUNT, _IDLE),
    "account_over": _IS_OVER,
}
# For JSON: each GPU, and all accounts.
_WHOLE: Final[Mapping[str, str]] = {
    "gpu_used": _max(f"{_NODE}, gpu", _GPU_USED),
    "gpu_total": _max(f"{_NODE}, gpu", _GPU_TOTAL),
    "gpu_up": _max(f"{_NODE}, gpu", _UP),
    "gpu_utilization": _max(f"{_NODE}, gpu", _UTILIZATION),
    "account_used": _max(_ACCOUNT, _USED),
    "account_allowed": _max(_ACCOUNT, _ALLOWED),
    "account_idle": _max(_ACCOUNT, _IDLE),
    "account_over": _IS_OVER,
    "account_verdict": _max(f"{_ACCOUNT}, verdict", "gpu_watchdog_account_verdict"),
}


def rows_query(rows: Mapping[str, str]) -> str:
    """One query for all of these, each row of the answer with its name in the label ROW."""
    return _either([f'label_replace({text}, "{ROW}", "{name}", "", "")' for name, text in rows.items()])


def _either(parts: Sequence[str]) -> str:
    """All of them, by a tree of `or`: in a chain Prometheus would take the first ones in hand again for each other."""
    half = len(parts) // 2
    return f"({_either(parts[:half])} or {_either(parts[half:])})" if half else parts[0]


# Asked at the same time, since a Prometheus computes each on one core.
LIVE_QUERIES: Final = (rows_query(_NODES), rows_query(_URGENT))
_WHOLE_QUERY: Final = rows_query({**_NODES, **_WHOLE})
_Key = tuple[str, str]


class Fleet:
    """The nodes that a Prometheus knows, and what each was like at its last scrape."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._answers: tuple[NodeAnswer[Summary], ...] = ()

    @property
    def answers(self) -> tuple[NodeAnswer[Summary], ...]:
        """The nodes, by cluster and name."""
        with self._lock:
            return self._answers

    @property
    def problem(self) -> Problem | None:
        """None: a node that is not scraped is known by the Prometheus that should."""
        return None

    def refresh(self) -> None:
        """Ask once; DaemonError."""
        found = _Found(self.samples(*LIVE_QUERIES))
        answers = tuple(found.answers())
        with self._lock:
            self._answers = answers

    def document(self) -> dict[str, Any]:
        """The JSON of `top --cluster --prometheus --json`; DaemonError."""
        found = _Found(self.samples(_WHOLE_QUERY))
        return {"via": "prometheus", "nodes": [found.json_of(answer) for answer in found.answers()]}

    def status_of(self, answer: NodeAnswer[Summary]) -> Status:
        """DaemonError: a Prometheus has no status."""
        remedy = "run `gpu-watchdog top --cluster` against that cluster, without --prometheus"
        raise DaemonError(Problem(f"Prometheus knows no more about node {answer.node}", remedy))

    def samples(self, *queries: str) -> Sequence[Sample]:
        """The series of all queries, asked at the same time."""
        begun = [self._begin(query) for query in queries]
        samples = [sample for each in begun for sample in each.result()]
        if not samples:
            remedy = "let it scrape the watchdog (docs/prometheus.md), or name another with --prometheus"
            raise DaemonError(Problem("this Prometheus has no metrics of the watchdog", remedy))
        return samples

    def _begin(self, query: str) -> Future[Sequence[Sample]]:
        """A query in a daemon thread, which no pool has: exiting must not wait for an answer that never comes."""
        answer: Future[Sequence[Sample]] = Future()

        def work() -> None:
            try:
                answer.set_result(instant(self._ask, query))
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=work, name="prometheus", daemon=True).start()
        return answer


class _Found:
    """The rows of an answer, by node."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._rows: defaultdict[_Key, defaultdict[str, list[Sample]]]
        self._rows = defaultdict(lambda: defaultdict(list))
        self._now = clock.now()
        for labels, number in samples:
            key = labels.get("cluster", ""), labels.get("node", "")
            self._rows[key][_AMOUNTS.get(labels.get("__name__", ""), labels.get(ROW, ""))].append((labels, number))

    def answers(self) -> Iterator[NodeAnswer[Summary]]:
        """A node each."""
        for (cluster, node), rows in sorted(self._rows.items()):
            values = {name: found[0][1] for name, found in rows.items()}
            age_s = values.get("age")
            if age_s is None or abs(age_s) > _OLDEST_S:
                why = "its daemon is not scraped" if values.get("up") == 0 else "Prometheus has no cycle of its daemon"
                problem = Problem(why, "see the Prometheus' targets, and the daemon's pod on that node")
                yield NodeAnswer(node=node, cluster=cluster, via="prometheus", problem=problem)
                continue
            suspended = tuple(sorted(labels.get("reason", "") for labels, _ in rows["suspended"]))
            verdicts = {labels.get("verdict", ""): int(number) for labels, number in rows["accounts"] if number}
            mode = next((labels.get("mode", "") for labels, _ in rows["mode"]), "")
            is_enforcing = values.get("enforcing") == 1
            summary = Summary(
                node=node,
                at=Moment(self._now.wall_s - age_s),
                mode="enforce" if is_enforcing else mode,
                enforcing=is_enforcing,
                suspended=suspended,
                breaker_open="breaker" in values,
                gpus=tuple(GpuSummary(number=labels.get("gpu", "")) for labels, _ in rows["down"]),
                gpus_in_all=int(values.get("gpus", 0)),
                used=_sum(values.get("used"), values.get("gpus")),
                total=_sum(values.get("total"), values.get("gpus")),
                utilization=_ratio(values.get("utilization")),
                verdicts=verdicts,
                idle=len(rows["account_idle"]),
                accounts=tuple(self._accounts(rows)),
                accounts_in_all=sum(verdicts.values()),
            )
            at_s = self._now.boottime_s
            yield NodeAnswer(node=node, cluster=cluster, answer=summary, at_s=at_s, via="prometheus")

    def _accounts(self, rows: Mapping[str, list[Sample]]) -> Iterator[AccountSummary]:
        used, allowed, over, declared, idle = (
            {_account(labels): number for labels, number in rows.get(name, ())}
            for name in ("account_used", "account_allowed", "account_over", "account_declared", "account_idle")
        )
        verdicts = {_account(labels): labels.get("verdict", "") for labels, _ in rows.get("account_verdict", ())}
        for key in dict.fromkeys((*used, *allowed, *over, *verdicts, *declared)):
            namespace, pod, container, gpu = key
            verdict = verdicts.get(key) or ("over" if key in over else "within" if key in used else "unknown")
            amount = _bytes(used.get(key))
            yield AccountSummary(
                namespace=namespace,
                pod=pod,
                container=container or None,
                gpu=gpu or None,
                used=amount,
                compared=amount,
                allowed=_bytes(allowed.get(key)),
                verdict=verdict,
                idle_s=idle.get(key, ABSENT),
            )

    def json_of(self, answer: NodeAnswer[Summary]) -> dict[str, Any]:
        """A node of the JSON."""
        summary, rows = answer.answer, self._rows[answer.cluster, answer.node]
        shown: dict[str, Any] = {"node": answer.node, "cluster": answer.cluster or None, "age_s": None, "status": None}
        if summary is None:
            return {**shown, "problem": str(answer.problem or "")}
        used, total = (
            {labels.get("gpu", ""): _bytes(number) for labels, number in rows.get(name, ())}
            for name in ("gpu_used", "gpu_total")
        )
        busy = {labels.get("gpu", ""): _ratio(number) for labels, number in rows.get("gpu_utilization", ())}
        gpus = [
            {
                "uuid": labels.get("gpu", ""),
                "up": number == 1,
                "utilization": busy.get(labels.get("gpu", "")),
                "memory": {"total": total.get(labels.get("gpu", "")), "used": used.get(labels.get("gpu", ""))},
            }
            for labels, number in rows.get("gpu_up", ())
        ]
        accounts = [
            {
                name: getattr(account, name)
                for name in ("namespace", "pod", "container", "gpu", "used", "allowed", "verdict")
            }
            | {"idle": account.idle_s is not ABSENT}
            for account in summary.accounts
        ]
        status = {
            "node": summary.node,
            "at": rfc3339(summary.at),
            "mode": summary.mode,
            "enforcing": summary.enforcing,
            "suspended": list(summary.suspended),
            "gpus": gpus,
            "accounts": accounts,
        }
        age_s = round(max(self._now.wall_s - summary.at, 0.0), 1)
        return {**shown, "age_s": age_s, "status": status, "problem": None}


def _account(labels: Mapping[str, str]) -> tuple[str, str, str, str]:
    return labels.get("namespace", ""), labels.get("pod", ""), labels.get("container", ""), labels.get("gpu", "")


def _sum(number: float | None, gpus: float | None) -> int | None:
    """The bytes of all GPUs together; None if those of some are unknown."""
    if number is None or gpus is None:
        return None
    counted, total = divmod(int(number), _EACH)
    return total if counted == gpus else None


def _ratio(number: float | None) -> float | None:
    return None if number is None or not 0 <= number <= 1 else round(number, 3)


def _bytes(number: float | None) -> int | None:
    return None if number is None else int(number)
