"""The table of the kinds of objects that are watched."""

from pathlib import Path
from typing import Any

import pytest

from watchdog.clock import now
from watchdog.core.model import OBJECT_GAPS, PodList
from watchdog.kube.kinds import WATCHED_KINDS, WatchedKind
from watchdog.options import OBJECTS_OPTIONS, Options

KINDS = pytest.mark.parametrize("kind", WATCHED_KINDS, ids=lambda kind: kind.resource)


def test_each_file_of_objects_is_of_a_watched_kind() -> None:
    """An option that no kind reads would do nothing, and a kind without one could not be tried without a cluster.

    Claims are read one by one, and not watched.
    """
    assert {*(kind.option for kind in WATCHED_KINDS), "claims"} == OBJECTS_OPTIONS.keys()


def test_the_gaps_of_each_kind_are_those_of_objects() -> None:
    """Otherwise a blind card could be blamed on a list that was refused, and `health.api` be ok in spite of one."""
    assert {kind.reason for kind in WATCHED_KINDS} == OBJECT_GAPS


@KINDS
def test_a_file_that_can_not_be_read_is_a_gap_of_its_kind(kind: WatchedKind[Any, Any], tmp_path: Path) -> None:
    """It has the reason that the table has, and its remedy is the command whose output the option takes."""
    path = tmp_path / "objects.json"
    named: dict[str, Any] = {kind.option: path}
    assert kind.path(Options(node="n1", **named)) == path
    read = kind.open_file(path, "n1").read(now())
    (gap,) = read.gaps if isinstance(read, PodList) else read[1]
    assert gap.reason is kind.reason
    assert f"`kubectl {OBJECTS_OPTIONS[kind.option].command} -o json`" in gap.problem.remedy
