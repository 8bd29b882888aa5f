"""The keys of pods that a policy reads."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Final

import pytest

from tests.laws.nodes import DECLARATIONS
from tests.worlds import policy, rule, step
from watchdog.config.load import load_policy
from watchdog.core.keys import WantedKeys, keys_of
from watchdog.core.model import PodKeys
from watchdog.core.policy import Match, Protect

WHOLE: Final = Path(__file__).parents[1] / "config" / "whole.toml"


def test_every_key_that_a_policy_names_is_read() -> None:
    """Point 6: sources, their limits and counts, the annotation that protects, the labels that choose a rule."""
    under = load_policy(WHOLE)
    keys = keys_of(under)
    for each in under.declarations:
        assert {each.annotation, *(limit.key for limit in each.limits)} - {None} <= keys.annotations
        assert not each.container_annotation or each.container_annotation in keys.annotations
        assert {each.resource, each.unless and each.unless.resource} - {None} <= keys.resources
        assert each.label is None or each.label in keys.labels
    assert under.protect.annotation in keys.annotations
    assert {key for each in under.rules for key in each.match.labels} <= keys.labels
    assert {"nvidia.com/gpu", "nvidia.com/mig-*"} <= keys.resources
    assert "gpu-fraction-num-devices" in keys.annotations


@pytest.mark.parametrize(
    ("key", "named", "matched"),
    [
        ("vram", True, False),
        ("main.vram", True, False),
        ("x.vram", False, False),
        ("{container}.vram", False, False),
        ("note-1", False, True),
        ("anything.limit-1", False, True),
        ("vram-", False, False),
    ],
)
def test_keys_are_found_by_name_or_by_pattern(key: str, *, named: bool, matched: bool) -> None:
    """`{container}` stands for the containers that the pod has; with a wildcard besides, for any name."""
    wanted = WantedKeys({"vram", "{container}.vram", "note-*", "{container}.limit-?"}, ["main", "side"])
    assert (wanted.names(key), wanted.matches(key)) == (named, matched)


def test_keys_cover_those_of_another_policy_or_not() -> None:
    """A policy that names a key more, of whatever kind, is noticed; one that names fewer is not."""
    less = policy(rule(step()), declarations=DECLARATIONS[:1])
    for more in (
        replace(less, declarations=DECLARATIONS),
        replace(less, protect=Protect(annotation="spare")),
        replace(less, rules=(rule(step(), match=Match(labels={"tier": "a"})),)),
    ):
        assert (keys_of(more).cover(keys_of(less)), keys_of(less).cover(keys_of(more))) == (True, False)
    assert all((PodKeys() | keys_of(less)) == keys_of(less) for _ in fields(PodKeys))
