"""The pods, the Node object and the namespaces: from files, or not at all."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.worlds import Gi, at, container, inputs, planned, pod, policy, process, rule, snapshot, step, use
from watchdog.clock import now
from watchdog.core.assess import assess
from watchdog.core.attribute import attribute
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Now, PodList
from watchdog.core.plan import Moment
from watchdog.core.policy import Capacity, Match, Policy, Protect
from watchdog.daemon.sources import NoSource, Sources, missing_sources, uses_api, with_gaps
from watchdog.options import Options

FILE = Path("/nowhere/objects.json")
BY_NODE = rule(name="by node", match=Match(node_labels={"pool": "shared"}))
BY_NAMESPACE = rule(step(), name="by team", match=Match(namespace_labels={"team": "ml"}))
ALSO = rule(name="also", match=Match(namespaces=("a",), namespace_labels={"stage": "*"}))


def test_what_is_not_named_is_not_known() -> None:
    """Without a file the node is known by its name alone, and no namespace is: neither counts as one without labels."""
    options = Options(node="n1")
    node, gaps = Sources(options, None).node.read(now())
    assert (node.name, node.known, gaps) == ("n1", False, ())
    assert Sources(options, None).namespaces.read(now()) == ({}, ())


def test_what_is_named_is_read(tmp_path: Path) -> None:
    """`--namespaces` names the file of the namespaces."""
    path = tmp_path / "namespaces.json"
    path.write_text(json.dumps({"kind": "Namespace", "metadata": {"name": "a", "labels": {"team": "ml"}}}))
    assert Sources(Options(node="n1", namespaces=path), None).namespaces.read(now()) == ({"a": {"team": "ml"}}, ())


@pytest.mark.parametrize(
    ("options", "rules", "expected"),
    [
        ({}, (rule(step()),), []),
        ({}, (BY_NODE,), ["the labels of nodes are not available (rules by node): give --kubeconfig"]),
        ({}, (BY_NAMESPACE, ALSO), ["the labels of namespaces are not available (rules by team, also): give --k"]),
        ({}, (BY_NODE, BY_NAMESPACE), ["the labels of nodes are not available", "the labels of n"]),
        ({"namespaces": FILE}, (BY_NODE, BY_NAMESPACE), ["the labels of nodes are not available"]),
        ({"namespaces": FILE, "node_object": FILE}, (BY_NODE, BY_NAMESPACE), []),
    ],
)
def test_a_source_that_a_rule_needs_is_missed(
    options: dict[str, Path], rules: tuple[object, ...], expected: list[str]
) -> None:
    """A policy whose rules can never be judged is warned of at the start, by the rules' names; no rule is, no word."""
    warnings = missing_sources(Options(node="n1", **options), policy(*rules))  # type: ignore[arg-type]
    assert len(warnings) == len(expected)
    for warning, words in zip(warnings, expected, strict=True):
        assert warning.startswith(words)
        assert "has no rule and is left alone" in warning
        option = "--node-object" if "of nodes" in warning else "--namespaces"
        assert f"give --kubeconfig FILE, or {option} FILE with --pods; " in warning


def test_what_needs_the_api_is_warned_of() -> None:
    """With --pods, a policy that evicts or advertises capacity is warned of at the start."""
    capacity = policy(rule(step()), capacity=Capacity(resource="example.com/gpu-memory"))
    assert [text.partition(" ")[0] for text in missing_sources(Options(node="n1", pods=FILE), capacity)] == [
        "[capacity]"
    ]
    evicts = policy(rule(step(do="evict")))
    (warning,) = missing_sources(Options(node="n1", pods=FILE), evicts)
    assert "each eviction fails with the reason `no API`" in warning
    assert missing_sources(Options(node="n1", pods=FILE), replace(evicts, mode="observe")) == ()
    assert missing_sources(Options(node="n1", kubeconfig=FILE), evicts) == ()


def test_what_was_missing_for_a_rule_is_one_gap() -> None:
    """Two pods of one namespace whose labels are not known make one gap, after those that were there already."""
    tenants = [pod(uid, container(declared="1Gi", of=uid)) for uid in "ab"]
    seen = snapshot([use(5, 2 * Gi), use(6, 2 * Gi)], [process(5, "a/main"), process(6, "b/main")])
    under = policy(BY_NAMESPACE)
    earlier = Gap(reason=GapReason.PODS, what="x", problem=Problem("y"))
    listed = PodList(pods=tuple(tenants), gaps=(earlier,))
    doubtful = assess(attribute(seen, tenants), seen, inputs(under, tenants))
    found = with_gaps(listed, doubtful).gaps
    assert [(gap.reason, gap.what) for gap in found] == [
        (GapReason.PODS, "x"),
        (GapReason.NAMESPACES, "labels of namespace ns"),
    ]
    known = inputs(under, tenants, namespaces={"ns": {}})
    assert with_gaps(listed, assess(attribute(seen, tenants), seen, known)) is listed
    assert not planned(seen, tenants, under).entries


def test_what_the_api_takes_is_not_loaded_without_it() -> None:
    """A daemon with --pods pays nothing for the client of the API, 8 MiB on every node, nor for an unused asyncio."""
    code = (
        "import sys; import watchdog.cli.run, watchdog.daemon.main; from watchdog.daemon.sources import open_cluster; "
        "from watchdog.clock import Bell; from watchdog.options import Options; from pathlib import Path; "
        "assert open_cluster(Options(node='n1', pods=Path('p')), Bell()) is None; "
        "print(sorted({'kubernetes', 'urllib3', 'yaml', 'asyncio'} & set(sys.modules)))\n"
        "import asyncio; asyncio.run(asyncio.sleep(0))"
    )
    environment = {**os.environ, "KUBERNETES_SERVICE_HOST": "192.0.2.1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [
        ({}, {}, False),
        ({}, {"KUBERNETES_SERVICE_HOST": "192.0.2.1"}, True),
        ({"kubeconfig": Path("k")}, {}, True),
        ({"kubeconfig": Path("k"), "pods": Path("p")}, {"KUBERNETES_SERVICE_HOST": "192.0.2.1"}, False),
    ],
)
def test_when_the_api_is_asked(
    options: dict[str, Path], environment: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of pods means no call at all; otherwise a kubeconfig, or a pod to run in, is the way to the API."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert uses_api(Options(node="n1", **options)) is expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("later", "objects"),
    [
        (policy(rule(step())), False),
        (policy(rule(step("100%", 0, "warn"))), True),
        (policy(rule(step(), mode="observe")), True),
        (policy(rule(step("100%", 0, "warn"), mode="observe")), True),
    ],
    ids=["kills", "only warns", "only observes", "neither"],
)
def test_a_rule_that_does_not_enforce_any_more_sends_no_signal(later: Policy, *, objects: bool) -> None:
    """Point 20: a grace period in progress sends no SIGKILL once the rule of the pod only warns, or only observes."""
    seen, tenants = snapshot([use(5, 2 * Gi)]), [pod("a", container(declared="1Gi"))]
    (entry,) = planned(seen, tenants, policy(rule(step()))).taken
    reported = Sources(Options(node="n1"), None).objection(entry, later, at(1), Moment.REQUEST)
    assert reported == ("its rule no longer allowed enforcement" if objects else None)


def test_a_pod_that_has_gone_from_the_list_gets_no_first_signal(tmp_path: Path) -> None:
    """Points 27 and 28: a list without the pod cancels an action that has not begun; one that has begun goes on."""
    path, under = tmp_path / "pods.json", policy(rule(step()))
    path.write_text('{"kind": "PodList", "items": []}', encoding="utf-8")
    (entry,) = planned(snapshot([use(5, 2 * Gi)]), [pod("a", container(declared="1Gi"))], under).taken
    sources = Sources(Options(node="n1", pods=path), None)
    assert "gone" in (sources.objection(entry, under, at(1), Moment.REQUEST) or "")
    assert sources.objection(entry, under, at(1), Moment.GRACE) is None


class _Api(NoSource[PodList]):
    """The pods as from the API server."""

    def read(self, now: Now) -> PodList:
        return replace(super().read(now), synced=now)


YEAR_S = 365 * 86400.0
OFFENDER = pod("a", container(declared="1Gi"), grace_s=1.0)
# How the pod is now -> why no first signal may be sent, and whether one that was sent is followed by SIGKILL.
DELETIONS: dict[str, tuple[PodList, str, bool]] = {
    "it is there": (PodList(pods=(OFFENDER,)), "", True),
    "it terminates": (PodList(pods=(replace(OFFENDER, deletion_deadline_s=at(YEAR_S).wall_s),)), "terminating", True),
    "a list lacks it": (PodList(), "gone from the list", True),
    "it was deleted": (PodList(gone=frozenset({"a"})), "deleted by then", True),
    "it is spared": (PodList(pods=(replace(OFFENDER, annotations={"spare": ""}),)), "annotation", False),
    "it terminates and is spared": (
        PodList(pods=(replace(OFFENDER, annotations={"spare": ""}, deletion_deadline_s=at(YEAR_S).wall_s),)),
        "terminating",
        False,
    ),
}


@pytest.mark.parametrize("case", DELETIONS)
def test_a_deletion_counts_before_the_first_signal_alone(case: str) -> None:
    """Points 27 and 28: it cancels what has not begun, and changes nothing of what has; protection always does."""
    later, why, goes_on = DELETIONS[case]
    under = policy(rule(step()), protect=Protect(annotation="spare"))
    (entry,) = planned(snapshot([use(5, 2 * Gi)]), [OFFENDER], under).taken
    sources = Sources(Options(node="n1"), None)
    sources.pods = _Api(PodList(pods=(OFFENDER,)))
    sources.inputs(under, at(0))
    sources.pods = _Api(later)
    reported = sources.objection(entry, under, at(1), Moment.REQUEST)
    assert why in reported if reported else not why, reported
    assert (sources.objection(entry, under, at(1), Moment.GRACE) is None) is goes_on
