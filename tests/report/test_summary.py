"""The summary of a node: bounded whatever the node has, and what matters most is in it."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.report.build import KILL, NOTEBOOKS, Story, busy, climbing, policy, status_document, trainer
from tests.worlds import Gi, container, gpu, process, snapshot, use
from watchdog.report.status import AccountStatus, GapStatus, GpuMemory, GpuStatus, Moment, Status, decode
from watchdog.report.summary import MOST_BYTES, encoded, summary_of

TEXT = st.text(max_size=400)
AMOUNT = st.none() | st.integers(min_value=0, max_value=2**50)


def summarised(report: Any) -> dict[str, Any]:
    """The summary as a reader gets it."""
    found: dict[str, Any] = json.loads(encoded(summary_of(decode(json.dumps(status_document(report)).encode()))))
    return found


def test_the_summary_has_what_matters_most() -> None:
    """One account over its limit, with its next step: by name, number of the GPU and in bytes."""
    found = summarised(climbing(9))
    assert (found["node"], found["mode"], found["enforcing"], found["gaps"]) == ("n1", "enforce", True, 0)
    assert (found["models"], found["gpus_in_all"]) == ({"Stub": 2}, 2)
    assert found["gpus"][0] == {"number": "0", "up": True, "total": 80 * Gi, "used": 13851269529, "utilization": None}
    assert (found["verdicts"], found["accounts_in_all"], found["idle"]) == ({"over": 1}, 1, 0)
    (account,) = found["accounts"]
    assert {**account, "due_in_s": None, "over_since": None} == {
        "namespace": "a", "pod": "trainer", "container": None, "gpu": None, "used": 13314398617,
        "used_at_least": 13314398617, "compared": 13314398617, "allowed": 10909216931, "verdict": "over",
        "over_since": None, "do": "kill", "due_in_s": None, "withheld_by": None, "acting": False,
    }  # fmt: skip
    assert summarised(busy(9, 20.0))["accounts"][0]["acting"]


def test_the_most_urgent_accounts_come_first() -> None:
    """250 pods, of which the last one by name is over its limit: it is in the summary, and the count of all of them."""
    pods = tuple(
        trainer(uid=f"u{n}", name=f"p{n:03}", containers=(container("main", "8Gi", of=f"u{n}"),)) for n in range(250)
    )
    uses = [use(100 + n, 20 * Gi if n == 249 else Gi) for n in range(250)]
    seen = snapshot(uses, [process(100 + n, f"u{n}/main") for n in range(250)], (gpu(used=300 * Gi, total=400 * Gi),))
    found = summarised(Story(under=policy(replace(NOTEBOOKS, steps=(KILL,))), pods=pods).see(seen))
    assert (found["accounts"][0]["pod"], found["accounts_in_all"]) == ("p249", 250)
    assert found["verdicts"] == {"over": 1, "within": 249}
    assert 5 < len(found["accounts"]) < 30


def test_what_is_held_idle_comes_right_after_what_is_over() -> None:
    """Who looks for memory to take back finds it among 250 pods, with for how long, and how busy the cards are."""
    accounts = tuple(
        AccountStatus(pod=f"p{n:03}", verdict="over" if n == 249 else "within", idle_s=7200 if n > 247 else None,
                      idle=n == 248, used=Gi, allowed=Gi, utilization={248: 0.0, 249: 0.35}.get(n))
        for n in range(250)
    )  # fmt: skip
    gpus = tuple(GpuStatus(uuid=f"GPU-{n}", index=n, utilization=ratio) for n, ratio in enumerate((0.3, 0.6, None)))
    status = Status(node="n1", at=Moment(1.8e9), accounts=accounts, gpus=gpus, plan=())
    found = json.loads(encoded(summary_of(status)))
    assert (found["utilization"], found["idle"]) == (0.45, 1)
    assert [gpu["utilization"] for gpu in found["gpus"]] == [0.3, 0.6, None]
    assert [(each["pod"], each.get("idle_s"), each.get("utilization")) for each in found["accounts"][:3]] == [
        ("p249", None, 0.35),
        ("p248", 7200, 0.0),
        ("p000", None, None),
    ]
    assert "utilization" not in found["accounts"][2]


@st.composite
def statuses(draw: st.DrawFn) -> Status:
    """Any status that a daemon could be made to give, by hostile names and large nodes."""
    gpus = tuple(
        GpuStatus(
            uuid=f"GPU-{n}", index=draw(st.none() | st.just(n)), name=draw(TEXT), memory=GpuMemory(total=draw(AMOUNT))
        )
        for n in range(draw(st.integers(0, 56)))
    )
    accounts = tuple(
        AccountStatus(
            namespace=draw(TEXT),
            pod=draw(TEXT),
            gpu=draw(st.none() | TEXT),
            used=draw(AMOUNT),
            allowed=draw(AMOUNT),
            idle=draw(st.booleans()),
            idle_s=draw(st.none() | st.integers(0, 10**9)),
            utilization=draw(st.none() | st.floats(0, 1)),
        )
        for _ in range(draw(st.integers(0, 20)))
    )
    texts = draw(st.lists(TEXT, max_size=8))
    gaps = tuple(GapStatus(what=text, why=text) for text in texts)
    return Status(
        node=draw(TEXT), at=Moment(1.8e9), suspended=tuple(texts), stopped_why=draw(st.none() | TEXT),
        maintenance=draw(st.none() | TEXT), gpus=gpus, accounts=accounts, gaps=gaps, plan=(),
    )  # fmt: skip


@given(statuses())
def test_the_summary_is_small_whatever_the_node_has(status: Status) -> None:
    """500 nodes are asked every second or two: none may answer with more than 4 kB, and what is left out is counted."""
    made = summary_of(status)
    assert len(encoded(made)) <= MOST_BYTES
    assert (made.gpus_in_all, made.accounts_in_all) == (len(status.gpus), len(status.accounts))
    assert made.gaps == len(status.gaps)
    assert sum(made.verdicts.values()) == len(status.accounts)
    json.loads(encoded(made))
