"""Names that an operator gives: whatever they are, the objects still belong together, and Kubernetes takes them."""

import json
import re
from typing import Final

import pytest

from tests.deploy.chart import objects, of_kind, template

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_programs")]

_CAPACITY: Final = 'mode = "observe"\n[capacity]\nresource = "example.com/vram"\n'
_EVICTS: Final = '[[rule]]\nname = "all"\nmatch = {}\n[[rule.step]]\nabove = "110%"\nfor = "1s"\ndo = "evict"\n'
_ALL: Final = "authentication.enabled=true,resourceQuota.create=true,prometheus.podMonitor.create=true"
_LONG: Final = f"{'a' * 61}-b-c"
_CUT: Final = f"{'a' * 61}-b"


@pytest.mark.parametrize(
    ("release", "values", "name", "label"),
    [
        ("r", "", "gpu-watchdog", "gpu-memory-watchdog"),
        ("r", "nameOverride=guard", "r-guard", "guard"),
        ("my-guard", "nameOverride=guard", "my-guard", "guard"),
        ("r", "fullnameOverride=guard", "guard", "gpu-memory-watchdog"),
        ("r", "nameOverride=a,fullnameOverride=guard", "guard", "a"),
        ("r", f"fullnameOverride={_LONG}", _CUT, "gpu-memory-watchdog"),
        ("r", f"fullnameOverride={'a' * 62}--b", "a" * 62, "gpu-memory-watchdog"),
        ("r", f"nameOverride={_LONG}", f"r-{'a' * 61}", _CUT),
        ("1e3", "nameOverride=e", "1e3", "e"),  # a number, if it were not quoted
    ],
)
def test_names_follow_the_overrides(release: str, values: str, name: str, label: str) -> None:
    """Helm's usual rules, and everything that refers to an object or to the pods by a label follows."""
    found = objects(f"--set={_ALL}", f"--set-string={values}", policy=_CAPACITY, release=release)
    (daemonset,) = of_kind(found, "DaemonSet")
    assert daemonset["metadata"]["name"] == name
    labels = daemonset["spec"]["template"]["metadata"]["labels"]
    assert labels == {"app.kubernetes.io/name": label}
    (network, monitor) = (of_kind(found, kind)[0]["spec"] for kind in ("NetworkPolicy", "PodMonitor"))
    selectors = (daemonset["spec"]["selector"], network["podSelector"], monitor["selector"])
    assert all(each == {"matchLabels": labels} for each in selectors)
    # The pods of the Jobs are not the daemon's.
    jobs = of_kind(found, "Job")
    assert len(jobs) == 2
    assert all(job["spec"]["template"]["metadata"]["labels"] != labels for job in jobs)
    # The name of a Job is also a label of its pods, of at most 63 characters.
    assert all(len(job["metadata"]["name"]) <= 63 for job in jobs)
    assert monitor["podMetricsEndpoints"][0]["authorization"]["credentials"]["name"] == f"{name}-scrape"
    maps = {each["metadata"]["name"] for each in of_kind(found, "ConfigMap")}
    for each in (daemonset, *jobs):
        for volume in each["spec"]["template"]["spec"].get("volumes", ()):
            assert "configMap" not in volume or volume["configMap"]["name"] in maps
    accounts = {each["metadata"]["name"] for each in of_kind(found, "ServiceAccount")}
    assert daemonset["spec"]["template"]["spec"]["serviceAccountName"] == name
    assert {
        subject["name"] for each in of_kind(found, "ClusterRoleBinding") for subject in each["subjects"]
    } == accounts
    # Another release of other names, in the same namespace, shares no object with this one.
    other = objects(
        f"--set={_ALL}", "--set=fullnameOverride=other,nameOverride=other", policy=_CAPACITY, release="other"
    )
    mine, theirs = ({(each["kind"], each["metadata"]["name"]) for each in release_} for release_ in (found, other))
    assert not mine & theirs


def test_no_name_is_in_a_text() -> None:
    """Namespace and account are in fields of their own, which Kustomize can change in helm's output: in no text."""
    every = f"{_ALL},prometheus.rules.create=true,grafana.dashboard.create=true,openshift.scc=true,mps.mounts=true"
    flags = (f"--set={every}", "--namespace=some-namespace", "--set=serviceAccount.name=some-account")
    reported = template(*flags, policy=f'mode = "enforce"\n{_EVICTS}{_CAPACITY.partition(chr(10))[2]}')
    found = re.findall(r".*some-(?:namespace|account).*", reported)
    assert len(found) > 30
    # A field, an item of a list, or a comment.
    field = r"""(?:[\w ]+: |- |resourceNames: \[)["']?some-(?:namespace|account)(?:-[a-z-]+)?["']?\]?"""
    assert [line for line in found if not re.fullmatch(rf" *(?:- )?{field}", line)] == []


def test_the_commands_of_alerts_find_the_pods() -> None:
    """They look in all namespaces, by the label that the pods have."""
    found = objects("--set=prometheus.rules.create=true,nameOverride=guard")
    (rules,) = of_kind(found, "PrometheusRule")
    commands = re.findall(r"kubectl get \S*pods -A -l (\S+)", json.dumps(rules))
    assert commands == ["app.kubernetes.io/name=guard"] * 2
    assert "kubectl -n gpu" not in json.dumps(rules)


def test_the_policy_of_an_existing_config_map() -> None:
    """It is mounted under the name that the daemon reads, checked before the installation, and no other is made."""
    flags = ("--set=existingConfigMap.name=mine,existingConfigMap.key=gpu.toml",)
    found = objects(*flags, policy=_CAPACITY)
    assert not of_kind(found, "ConfigMap")
    check = next(each for each in of_kind(found, "Job") if each["metadata"]["name"].endswith("-policy-check"))
    expected = {"name": "mine", "items": [{"key": "gpu.toml", "path": "policy.toml"}]}
    for each in (of_kind(found, "DaemonSet")[0], check):
        (volume,) = (one for one in each["spec"]["template"]["spec"]["volumes"] if one["name"] == "policy")
        assert volume["configMap"] == expected
    # Without a cluster the rights are those of `policy`.
    roles = {each["metadata"]["name"] for each in of_kind(found, "ClusterRole")}
    assert "gpu-watchdog-capacity" in roles
    assert "gpu-watchdog-capacity" not in {each["metadata"]["name"] for each in of_kind(objects(*flags), "ClusterRole")}
