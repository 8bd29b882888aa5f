"""The command `recommend`: what it prints, and what is said where it can't."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.past import runs
from tests.past.life import holding, tenant
from tests.past.runs import recently
from tests.past.test_recommend import HOURS, lived, only, using
from tests.worlds import Gi, Mi, container, gpu, owner, pod
from watchdog.past.recommendation import Fit

POLICY = """
[[declaration]]
resource = "veriff.com/gpu-memory"
unit = "1"
[allowance]
per_context = "0"
percent = "0%"
"""


def call(path: Path, *arguments: str, text: str = POLICY) -> tuple[int, str]:
    """The command on a journal."""
    return runs.call("recommend", path, *arguments, policy=text)


def test_the_command_for_people(path: Path) -> None:
    """Each workload has what it used, the reason, and a line that can be copied."""
    recently(path, (100, using(6.1, tenant(declared="4Gi", owner=owner("Deployment", "w" * 150)))))
    code, text = call(path)
    assert code == 0
    assert f"ns/Deployment {'w' * 150}  main" in text, "a pipe gets whole names"
    assert "declare veriff.com/gpu-memory: 6912Mi, which allows 6.8Gi\n" in text
    assert "1 workload, 1 suggestion." in text


def test_the_command_as_json(path: Path) -> None:
    """Every amount is in bytes and every time in hours, and its key says so."""
    recently(path, (100, using(6.0, tenant(declared="4Gi"))))
    (one,) = json.loads(call(path, "--json")[1])
    assert one["workload"] == {"kind": "Pod", "name": "pod-a"}
    assert (one["p50_bytes"], one["p99_bytes"], one["peak_bytes"]) == (6 * Gi, 6 * Gi, 6 * Gi)
    assert (one["declared_bytes"], one["declared_by"]) == (4 * Gi, "veriff.com/gpu-memory")
    assert one["seen_hours"] == pytest.approx(99 / 3600, abs=1e-4)
    assert (one["stand"], one["suggested"]["value"]) == ("too_little", "6912Mi")
    assert (one["suggested"]["bytes"], one["suggested"]["allows"]) == (6912 * Mi, 6912 * Mi)


def test_hostile_names_are_made_inert(path: Path) -> None:
    """A tenant cannot speak to the terminal of the operator who asks."""
    evil = replace(tenant(), name="a\x1b[2J", namespace="n\u202e")
    recently(path, (60, using(3.0, evil)))
    text = call(path)[1]
    assert "\\x1b[2J" in text
    assert "\x1b" not in text


def test_without_a_recording(path: Path) -> None:
    """No journal is exit code 1; nothing in that time is an answer, as for `history`: 0."""
    code, text = call(path)
    assert (code, "there is no journal" in text) == (1, True)
    recently(path, (20, using(1.0, tenant())))
    code, text = call(path, "--since", "1m")
    assert (code, "nothing to recommend" in text) == (0, True)
    code, text = call(path, "--since", "1m", "--json")
    assert (code, text.endswith("[]\n")) == (0, True)


def test_the_gpus_of_the_node_say_what_a_share_is_worth(path: Path) -> None:
    """A percentage is one of this node's cards."""
    of = pod("a", container(of="a", resources={"nvidia.com/gpumem-percentage": "50"}))
    state = replace(using(10.0, of), gpus=(gpu(0, 40 * Gi),))
    usage, advice = only(lived(path, (100, state)))
    assert (usage.last.declared, advice.fit) == (20 * Gi, Fit.FITS)
    usage, advice = only(lived(path.with_name("less.db"), (HOURS, replace(state, used=holding(5.0))), every=60))
    assert (usage.last.declared, advice.fit) == (20 * Gi, Fit.TOO_MUCH)
    assert advice.suggestion is not None
    assert advice.suggestion.value == "14"
