"""The rights that a policy needs, as manifests."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner

from watchdog.cli.main import main
from watchdog.config.load import parse_policy
from watchdog.core.policy import Policy
from watchdog.kube.rights import Piece, ServiceAccount, render, rights_of

ACCOUNT: Final = ServiceAccount()
OBSERVE: Final = 'mode = "observe"'
WHOLE: Final = """
mode = "enforce"
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
    ("", "pods/eviction"): {"create"},
    ("", "nodes/status"): {"patch"},
    ("events.k8s.io", "events"): {"create", "patch"},
}


def parse(text: str) -> Policy:
    """The policy of a text."""
    return parse_policy(text, "policy.toml")


def objects(text: str) -> dict[tuple[str, str], Any]:
    """The objects of a YAML text by kind and name, each once."""
    documents = list(yaml.safe_load_all(text))
    found = {(each["kind"], each["metadata"]["name"]): each for each in documents}
    assert len(found) == len(documents)
    return found


def granted(text: str) -> dict[tuple[str, str], set[str]]:
    """What the roles of a YAML text allow: verbs by API group and resource."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for (kind, _), each in objects(text).items():
        for rule in each["rules"] if kind == "ClusterRole" else ():
            assert rule.keys() == {"apiGroups", "resources", "verbs"}
            (group,), (resource,) = rule["apiGroups"], rule["resources"]
            verbs.setdefault((group, resource), set()).update(rule["verbs"])
    return verbs


def test_a_policy_that_observes_needs_to_see_its_pods_and_its_node_and_no_more() -> None:
    """The smallest of all: it can change nothing; the node says when the driver is to be let go, to whoever looks."""
    assert granted(render(parse(OBSERVE), ACCOUNT)) == {("", each): {"list", "watch"} for each in ("pods", "nodes")}
    assert not [kind for kind, _ in objects(render(parse(OBSERVE), ACCOUNT)) if "Admission" in kind]


def test_a_policy_that_uses_everything_needs_all_of_it() -> None:
    """Every right there is, and nothing with a star in it."""
    text = render(parse(WHOLE), ACCOUNT)
    assert granted(text) == EVERYTHING
    assert {right.piece for right in rights_of(parse(WHOLE))} == set(Piece)


@pytest.mark.parametrize("text", [OBSERVE, WHOLE, WHOLE.replace("enforce", "observe")])
def test_each_role_is_bound_to_the_account_and_to_nobody_else(text: str) -> None:
    """A role that nobody has is of no use, and one that somebody else has is a hole."""
    account = ServiceAccount(namespace="gpu", name="watch.dog")
    found = objects(render(parse(text), account))
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
def test_what_changes_something_is_tied_down(text: str, tied: set[str]) -> None:
    """No right to change a node's status or to evict is given without the admission policy that narrows it."""
    found = objects(render(parse(text), ACCOUNT))
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
        assert condition["expression"] == f"request.userInfo.username == '{ACCOUNT.user}'"
        assert {each["reason"] for each in spec["validations"]} == {"Forbidden"}


def test_namespaces_that_the_policy_protects_are_kept_out_of_evictions() -> None:
    """Those that are named stand in the admission policy beside kube-system; patterns can't."""
    spec = objects(render(parse(WHOLE), ACCOUNT))["ValidatingAdmissionPolicy", "gpu-watchdog-evict"]["spec"]
    assert spec["validations"][1]["expression"] == "!(request.namespace in ['gpu-operator', 'kube-system'])"


def test_the_resource_that_may_be_changed_is_that_of_the_policy() -> None:
    """The admission policy lets one entry of the capacity change, and it is the one that is advertised."""
    policy = parse(WHOLE)
    assert policy.capacity is not None
    other = replace(policy, capacity=replace(policy.capacity, resource="a.b/c"))
    for each, name in ((policy, "example.com/gpu-memory"), (other, "a.b/c")):
        assert f"k == '{name}'" in render(each, ACCOUNT)


def command(tmp_path: Path, text: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `gpu-watchdog rights` for a policy of this text."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    ended = CliRunner().invoke(main, ["rights", "--policy", str(path), *arguments])
    return ended.exit_code, ended.stdout, ended.stderr


def test_the_command_prints_what_can_be_applied(tmp_path: Path) -> None:
    """Its output is YAML as it is; what an observing policy will need later is said beside it, and printed if asked."""
    text = WHOLE.replace("enforce", "observe")
    code, out, said = command(tmp_path, text)
    assert code == 0
    assert granted(out) == {key: EVERYTHING[key] for key in granted(out)} | {("", "pods"): {"list", "watch"}}
    assert "create and patch events, get pods, create pods/eviction" in said
    assert "--enforce" in said
    code, out, said = command(tmp_path, text, "--enforce")
    assert (code, granted(out), said) == (0, EVERYTHING, "")
    code, out, said = command(tmp_path, WHOLE, "--namespace", "gpu", "--service-account", "dog")
    assert (code, said) == (0, "")
    assert "system:serviceaccount:gpu:dog" in out


@pytest.mark.parametrize("arguments", [("--namespace", "A"), ("--namespace", "a\nb"), ("--service-account", "a'b")])
def test_names_that_are_none_are_wrong_use(tmp_path: Path, arguments: tuple[str, str]) -> None:
    """What is printed is applied by an administrator: nothing but a name gets into it."""
    code, out, said = command(tmp_path, OBSERVE, *arguments)
    assert (code, out) == (2, "")
    assert "is not a " in said


def test_an_invalid_policy_is_reported(tmp_path: Path) -> None:
    """No rights are printed for a policy that is not understood."""
    code, out, said = command(tmp_path, "mode = 3")
    assert (code, out) == (1, "")
    assert "mode" in said
