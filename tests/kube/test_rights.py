"""The rights that a policy needs, as manifests."""

import re
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner

from tests.worlds import parse_policy
from watchdog.cli.main import main
from watchdog.kube.kinds import Piece
from watchdog.kube.rights import ServiceAccount, render, rights_of

ACCOUNT: Final = ServiceAccount()
parsed: Final = partial(parse_policy, source="policy.toml")
_POLICY: Final = "ValidatingAdmissionPolicy"
OBSERVE: Final = 'mode = "observe"'
WHOLE: Final = """
mode = "enforce"
schemes = ["dra"]
[[declaration]]
resource = "example.com/gpu-memory"
unit = "1"
[[rule]]
name = "r"
match = { namespace_labels = { team = "a" } }
[[rule.step]]
above = "110%"
for = "10s"
do = "evict"
[protect]
namespaces = ["gpu-operator", "jupyter-*"]
[capacity]
resource = "example.com/gpu-memory"
"""
EVERYTHING: Final = {
    ("", "pods"): {"list", "watch", "get"},
    ("", "nodes"): {"list", "watch"},
    ("", "namespaces"): {"list", "watch"},
    ("resource.k8s.io", "resourceslices"): {"list", "watch"},
    ("resource.k8s.io", "resourceclaims"): {"get"},
    ("", "pods/eviction"): {"create"},
    ("", "nodes/status"): {"patch"},
    ("events.k8s.io", "events"): {"create", "patch"},
}


def objects(text: str) -> dict[tuple[str, str], Any]:
    """The objects of a YAML text by kind and name, each of them unique."""
    documents = list(yaml.safe_load_all(text))
    found = {(each["kind"], each["metadata"]["name"]): each for each in documents}
    assert len(found) == len(documents)
    return found


def granted(text: str) -> dict[tuple[str, str], set[str]]:
    """What the roles in a YAML text allow: verbs by API group and resource, without the markers."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for rule in _rules(text):
        assert rule.keys() == {"apiGroups", "resources", "verbs"}
        if rule["apiGroups"] != ["gpu-memory-watchdog"]:
            (group,), (resource,) = rule["apiGroups"], rule["resources"]
            verbs.setdefault((group, resource), set()).update(rule["verbs"])
    return verbs


def markers(text: str) -> set[str]:
    """The markers in the roles of a YAML text."""
    found = [rule for rule in _rules(text) if rule["apiGroups"] == ["gpu-memory-watchdog"]]
    assert all(rule["verbs"] == ["use"] for rule in found)
    return {marker for rule in found for marker in rule["resources"]}


def _rules(text: str) -> list[dict[str, Any]]:
    return [rule for (kind, _), each in objects(text).items() if kind == "ClusterRole" for rule in each["rules"]]


def test_an_observing_policy_only_reads_and_one_that_uses_everything_needs_every_right() -> None:
    """It can change nothing: its own node is read because it may request the release of the driver."""
    text = render(parsed(OBSERVE), ACCOUNT)
    claims = {("resource.k8s.io", "resourceslices"): {"list", "watch"}, ("resource.k8s.io", "resourceclaims"): {"get"}}
    assert granted(text) == {**{("", each): {"list", "watch"} for each in ("pods", "nodes")}, **claims}
    assert granted(render(parsed("schemes = []\n" + OBSERVE), ACCOUNT)) == {
        ("", each): {"list", "watch"} for each in ("pods", "nodes")
    }
    assert not [kind for kind, _ in objects(text) if "Admission" in kind]
    assert {right.piece for right in rights_of(parsed(WHOLE))} == set(Piece)


@pytest.mark.parametrize("text", [OBSERVE, WHOLE, WHOLE.replace("enforce", "observe")])
def test_each_role_is_bound_to_the_account_only(text: str) -> None:
    """A role without a subject is useless, and one with another subject is a hole."""
    account = ServiceAccount(namespace="gpu", name="watch.dog")
    found = objects(render(parsed(text), account))
    roles = {name for kind, name in found if kind == "ClusterRole"}
    bindings = {name: each for (kind, name), each in found.items() if kind == "ClusterRoleBinding"}
    assert {each["roleRef"]["name"] for each in bindings.values()} == roles == set(bindings)
    assert all(name.startswith("watch.dog-") for _, name in found)
    who = [{"kind": "ServiceAccount", "namespace": "gpu", "name": "watch.dog"}]
    assert all(each["subjects"] == who for each in bindings.values())


@pytest.mark.parametrize(
    ("text", "tied"),
    [
        (WHOLE, {"gpu-watchdog-capacity", "gpu-watchdog-evict"}),
        (WHOLE.replace("enforce", "observe"), {"gpu-watchdog-capacity"}),
        (WHOLE.partition("[capacity]")[0], {"gpu-watchdog-evict"}),
    ],
)
def test_rights_to_change_something_are_limited(text: str, tied: set[str]) -> None:
    """A right to change something comes with the admission policy that limits it, and the marker that it goes by."""
    printed = render(parsed(text), ACCOUNT)
    found = objects(printed)
    policies = {name: each["spec"] for (kind, name), each in found.items() if kind == "ValidatingAdmissionPolicy"}
    bound = {
        each["spec"]["policyName"]: each["spec"]["validationActions"]
        for (kind, _), each in found.items()
        if kind == "ValidatingAdmissionPolicyBinding"
    }
    assert policies.keys() == bound.keys() == tied
    assert set(map(tuple, bound.values())) == {("Deny",)}
    for spec in policies.values():
        assert spec["failurePolicy"] == "Fail"
        (condition,) = spec["matchConditions"]
        marker, unrestricted = re.findall(r"resource\('([a-z-]+)'\)", condition["expression"])
        assert (marker in markers(printed), unrestricted in markers(printed)) == (True, False)
        assert {each["reason"] for each in spec["validations"]} == {"Forbidden"}


def test_no_name_is_in_a_text() -> None:
    """Kustomize changes names in fields alone: the admission policies of all accounts have the same text."""
    one, other = (
        [each["spec"] for (kind, _), each in objects(render(parsed(text), account)).items() if kind == _POLICY]
        for text, account in (
            (WHOLE, ACCOUNT),
            (WHOLE.replace("example.com/gpu-memory", "a.b/c"), ServiceAccount(namespace="gpu", name="dog")),
        )
    )
    assert one == other


def test_the_roles_have_what_the_policy_names() -> None:
    """Namespaces that it protects beside kube-system (patterns can't be listed), and the advertised resource."""
    restricted = {"restricted-capacity", "restricted-evictions"}
    named = {"spared/gpu-operator", "spared/kube-system", "capacity/example.com/gpu-memory"}
    assert markers(render(parsed(WHOLE), ACCOUNT)) == restricted | named
    assert "capacity/a.b/c" in markers(render(parsed(WHOLE.replace("example.com/gpu-memory", "a.b/c")), ACCOUNT))


def command(tmp_path: Path, text: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `gpu-watchdog rights` for a policy of this text."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    ended = CliRunner().invoke(main, ["rights", "--policy", str(path), *arguments])
    return ended.exit_code, ended.stdout, ended.stderr


def test_the_command_prints_what_can_be_applied(tmp_path: Path) -> None:
    """Its stdout is plain YAML; what an observing policy will need later is on stderr, and printed on request."""
    text = WHOLE.replace("enforce", "observe")
    code, out, reported = command(tmp_path, text)
    assert code == 0
    assert granted(out) == {key: EVERYTHING[key] for key in granted(out)} | {("", "pods"): {"list", "watch"}}
    assert "create and patch events, get pods, create pods/eviction" in reported
    assert "--enforce" in reported
    code, out, reported = command(tmp_path, text, "--enforce")
    assert (code, granted(out), reported) == (0, EVERYTHING, "")
    code, out, reported = command(tmp_path, WHOLE, "--namespace", "gpu", "--service-account", "dog")
    assert (code, reported) == (0, "")
    bindings = [each for (kind, _), each in objects(out).items() if kind == "ClusterRoleBinding"]
    assert {(each["subjects"][0]["namespace"], each["subjects"][0]["name"]) for each in bindings} == {("gpu", "dog")}


@pytest.mark.parametrize(
    ("text", "arguments", "code", "what"),
    [
        (OBSERVE, ("--namespace", "A"), 2, "is not a "),
        (OBSERVE, ("--namespace", "a\nb"), 2, "is not a "),
        (OBSERVE, ("--service-account", "a'b"), 2, "is not a "),
        ("mode = 3", (), 1, "mode"),
    ],
)
def test_nothing_is_printed_that_should_not_be_applied(
    tmp_path: Path, text: str, arguments: tuple[str, ...], code: int, what: str
) -> None:
    """An administrator applies the output: nothing but valid names gets into it, and none of an invalid policy."""
    ended = command(tmp_path, text, *arguments)
    assert ended[:2] == (code, "")
    assert what in ended[2]


LOOK: Final = {
    ("", "pods"): {"get", "list"},
    ("", "pods/proxy"): {"get"},
    ("", "pods/portforward"): {"create", "get"},
    ("apps", "daemonsets"): {"list"},
}


def test_people_get_three_roles() -> None:
    """Without a policy: to look, to run commands in the pods as well, to see nodes; none is bound to anybody."""
    ended = CliRunner().invoke(main, ["rights", "--for-people", "--service-account", "dog", "--namespace", "gpu"])
    assert ended.exit_code == 0
    look, operate, nodes = ended.stdout.split("---\n")
    assert objects(look).keys() == {("ClusterRole", "dog-view")}
    assert objects(operate).keys() == {("ClusterRole", "dog-operate")}
    assert granted(look) == LOOK
    assert granted(operate) == LOOK | {("", "pods/exec"): {"create", "get"}}
    assert granted(nodes) == {("", "nodes"): {"list"}}
    assert "kubectl create clusterrolebinding dog-view-nodes" in nodes
    assert "kubectl -n gpu create rolebinding dog-view --clusterrole=dog-view" in look


def test_the_roles_of_people_do_not_depend_on_a_mode() -> None:
    """`--enforce` with it is a mistake, not ignored."""
    ended = CliRunner().invoke(main, ["rights", "--for-people", "--enforce"])
    assert (ended.exit_code, ended.stdout) == (2, "")
