"""Tenants that rewrite their pods while they run: no label and no annotation puts a kill off."""

import itertools
from pathlib import Path
from typing import Any, Final

import pytest

from tests.rig import Daemon, Node
from tests.rig.volume import mount
from tests.stub import GIB
from tests.world.policies import HEAD, WARN_AT_ONCE, kill, write_policy
from tests.world.test_kill import explained, run

pytestmark = [pytest.mark.node, pytest.mark.slow]

NOTE: Final = '[[declaration]]\nannotation = "vram"\nunit = "1"\n[allowance]'
RULE: Final = """
[[rule]]
name = "{tier}"
match = {{ labels = {{ tier = "{tier}" }} }}
account = "{account}"
[[rule.step]]
above = "100%"
for = "{for_s}s"
do = "kill"
grace = "0s"
"""


def write(folder: Path, *rules: str) -> Path:
    """Write a policy with these rules."""
    return mount(folder / "policy.toml", HEAD.format(mode="enforce").replace("[allowance]", NOTE) + "".join(rules))


def rule(tier: str, account: str = "pod", for_s: int = 3) -> str:
    """A rule for the pods of a tier that kills after some seconds above what is allowed."""
    return RULE.format(tier=tier, account=account, for_s=for_s)


def marks(tier: str, vram: str | None = None) -> dict[str, Any]:
    """The labels and annotations that a tenant writes."""
    return {"labels": {"tier": tier}, "annotations": {} if vram is None else {"vram": vram}}


def killed(running: Daemon) -> bool:
    """Whether one kill has ended with its memory seen free, by whatever rule."""
    return 1.0 in (running.metric("actions_total", action="kill", result="done", rule=tier) for tier in "ab")


@pytest.mark.parametrize(
    ("kinds", "declared", "writes"),
    [
        (("pod", "pod"), "1Gi", (marks("a"), marks("b"))),
        (("pod", "pod"), None, (marks("a", "1073741824"), marks("a", "1073741825"))),
        (("pod", "container"), "1Gi", (marks("a"), marks("b"))),
    ],
    ids=["a label, between two rules", "an annotation, by a byte", "a label, between pod and container"],
)
def test_a_tenant_that_toggles_is_killed_all_the_same(
    any_world: Node, kinds: tuple[str, str], declared: str | None, writes: tuple[dict[str, Any], ...]
) -> None:
    """Point 15: a pod that is rewritten whenever its kill is less than a second away is killed in a few rounds.

    Where a change reset the 3 s, the rewriting would go on for ever.
    """
    over = any_world.single("hog", declared=declared, used=9 * GIB, metadata=writes[0])
    policy = write(any_world.root, *(rule(tier, account) for tier, account in zip("ab", kinds, strict=True)))
    with run(any_world, policy) as running:
        for metadata in itertools.islice(itertools.cycle(writes), 8):
            any_world.pods[0].metadata = metadata
            any_world.write()
            running.wait_passes(2)
            running.wait(lambda d: not over.is_alive or _is_close(d))
        assert not over.is_alive, "it toggled eight times and was never killed"
        running.wait(killed)


def _is_close(running: Daemon) -> bool:
    """Whether a kill is less than a second away."""
    return any(each["withheld_by"] is None and each["due_in_s"] < 1 for each in running.status()["plan"])


def test_who_is_relabelled_gets_the_full_time_of_a_rule_that_is_new_to_it(any_world: Node) -> None:
    """Point 15: time under a rule that is not concerned is no time under a stricter one, also where it warned."""
    over = any_world.single("hog", used=2 * GIB, metadata=marks("b"))
    lenient = rule("b", for_s=1).replace("100%", "900%")
    lenient = lenient.replace("[[rule.step]]", f"[[rule.step]]\n{WARN_AT_ONCE}\n[[rule.step]]")
    with run(any_world, write(any_world.root, rule("a"), lenient)) as running:
        running.wait(lambda d: d.metric("actions_total", action="warn", result="done", rule="b") == 1.0)
        running.wait_passes(4)
        any_world.pods[0].metadata = marks("a")
        any_world.write()
        running.wait(lambda d: any(entry["rule"] == "a" for entry in d.status()["plan"]))
        (entry,) = running.status()["plan"]
        assert entry["due_in_s"] > 1.5
        assert over.is_alive
        running.wait(killed)


def test_no_warning_is_announced_for_after_the_kill(any_world: Node) -> None:
    """Point 17: before, in and after its grace period no surface speaks of the warning that would come later."""
    over = any_world.single("hog", used=9 * GIB, behaviour="stubborn", metadata=marks("a"))
    late = '[[rule.step]]\nabove = "100%"\nfor = "30s"\ndo = "warn"\n[[rule.step]]'
    kill_first = rule("a", for_s=2).replace('grace = "0s"', 'grace = "2s"').replace("[[rule.step]]", late)
    with run(any_world, write(any_world.root, kill_first)) as running:
        running.wait(lambda d: d.status()["plan"])
        while over.is_alive:
            assert {entry["do"] for entry in running.status()["plan"]} <= {"kill"}
            assert "warning" not in explained(any_world, running).lower()
            assert "warn in" not in running.get("/")[1].lower()
        running.wait(killed)
        assert "warning" not in explained(any_world, running).lower()


DECOYS: Final = {f"a{number}": "" for number in range(201)}
LONG: Final = "example.com/gpu-memory-of-this-pod"


def test_empty_annotations_push_out_no_declaration(any_world: Node) -> None:
    """Point 6: 201 empty annotations, shorter than the one that declares, make nobody undeclared; nor do labels."""
    over = any_world.single(
        "hog", declared=None, used=9 * GIB, metadata={"annotations": {LONG: "1Gi", **DECOYS}, "labels": {"tier": "a"}}
    )
    plain = any_world.single(
        "plain", declared=None, used=9 * GIB, metadata={"annotations": {LONG: "1Gi"}, "labels": {"tier": "b"}}
    )
    policy = mount(any_world.root / "policy.toml", _named(rule("a", for_s=0), rule("b", for_s=0)))
    with run(any_world, policy) as running:
        running.wait(lambda _: not over.is_alive and not plain.is_alive)


def test_empty_labels_choose_no_laxer_rule(any_world: Node) -> None:
    """Point 6: 201 empty labels, shorter than the one that a rule matches, bring no pod under the next rule."""
    labels = {"example.com/tier-of-this-pod": "strict"}
    over = any_world.single("hog", used=9 * GIB, metadata={"labels": {**DECOYS, **labels}})
    strict = rule("a", for_s=0).replace('labels = { tier = "a" }', 'labels = { "example.com/tier-of-this-pod" = "*" }')
    lax = strict.replace("of-this-pod", "of-no-pod").replace('"a"', '"b"')
    with run(any_world, mount(any_world.root / "policy.toml", _named(strict, lax))) as running:
        running.wait(killed)
    assert not over.is_alive


def test_what_only_a_later_policy_names_is_read_with_it(any_world: Node) -> None:
    """Point 6: a reload has the keys of the new policy too, though the pods have not changed since."""
    metadata = {"annotations": {LONG: "1Gi", **DECOYS}, "labels": {"tier": "a"}}
    over = any_world.single("hog", declared=None, used=9 * GIB, metadata=metadata)
    before = write(any_world.root, rule("a", for_s=0))
    with run(any_world, before) as running:
        running.wait_passes(2)
        assert [each["verdict"] for each in running.status()["accounts"]] == ["undeclared"]
        mount(before, _named(rule("a", for_s=0)))
        running.wait(lambda _: not over.is_alive)


def test_an_annotation_that_protects_is_read_among_many(any_world: Node) -> None:
    """Point 6: an innocent with 201 annotations of other tools keeps the protection that its operator gave it."""
    spared = any_world.single("many", used=9 * GIB, metadata={"annotations": {"example.com/spare": "", **DECOYS}})
    over = any_world.single("hog", used=9 * GIB, metadata={"annotations": DECOYS})
    protect = '\n[protect]\nannotation = "example.com/spare"\n'
    with run(any_world, write_policy(any_world.root, kill(), more=protect)) as running:
        running.wait(lambda _: not over.is_alive)
        running.wait_passes(2)
        assert (spared.is_alive, spared.terms) == (True, [])


def _named(*rules: str) -> str:
    """A policy with these rules that reads a long annotation."""
    return HEAD.format(mode="enforce").replace("[allowance]", NOTE.replace('"vram"', f'"{LONG}"')) + "".join(rules)
