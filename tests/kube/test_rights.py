"""The rights that a policy needs, as manifests."""

from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner

from tests.worlds import parse_policy
from watchdog.cli.main import main
from watchdog.kube.rights import Piece, ServiceAccount, render, rights_of

ACCOUNT: Final = ServiceAccount()
parsed: Final = partial(parse_policy, source="policy.toml")
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


def objects(text: str) -> dict[tuple[str, str], Any]:
    """The objects of a YAML text by kind and name, each of them unique."""
    documents = list(yaml.safe_load_all(text))
    found = {(each["kind"], each["metadata"]["name"]): each for each in documents}
    assert len(found) == len(documents)
    return found


def granted(text: str) -> dict[tuple[str, str], set[str]]:
    """What the roles in a YAML text allow: verbs by API group and resource."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for (kind, _), each in objects(text).items():
        for rule in each["rules"] if kind == "ClusterRole" else ():
            assert rule.keys() == {"apiGroups", "resources", "verbs"}
            (group,), (resource,) = rule["apiGroups"], rule["resources"]
            verbs.setdefault((group, resource), set()).update(rule["verbs"])
    return verbs


def test_an_observing_policy_only_reads_and_one_that_uses_everything_needs_every_right() -> None:
    """It can change nothing: its own node is read because it may request the release of the driver."""
    text = render(parsed(OBSERVE), ACCOUNT)
    assert granted(text) == {("", each): {"list", "watch"} for each in ("pods", "nodes")}
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
    """A right to change a node's status or to evict always comes with the admission policy that limits it."""
    found = objects(render(parsed(text), ACCOUNT))
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


def test_the_admission_policies_have_what_the_policy_names() -> None:
    """Namespaces that it protects beside kube-system (patterns can't be listed), and the advertised resource."""
    text = render(parsed(WHOLE), ACCOUNT)
    spec = objects(text)["ValidatingAdmissionPolicy", "gpu-watchdog-evict"]["spec"]
    assert spec["validations"][1]["expression"] == "!(request.namespace in ['gpu-operator', 'kube-system'])"
    assert "k == 'example.com/gpu-memory'" in text
    assert "k == 'a.b/c'" in render(parsed(WHOLE.replace("example.com/gpu-memory", "a.b/c")), ACCOUNT)


def command(tmp_path: Path, text: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `gpu-watchdog rights` for a policy of this text."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    ended = CliRunner().invoke(main, ["rights", "--policy", str(path), *arguments])
    return ended.exit_code, ended.stdout, ended.stderr


def test_the_command_prints_what_can_be_applied(tmp_path: Path) -> None:
    """Its stdout is plain YAML; what an observing policy will need later is on stderr, and printed on request."""
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
