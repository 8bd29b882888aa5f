"""The chart, rendered by the real helm: the rights of its policy, its security, and where the driver comes from."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.chart import pod, template
from tools import ROOT, kustomize
from watchdog.config.load import load_policy
from watchdog.core.policy import Do
from watchdog.kube.rights import ServiceAccount, render, render_personal

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_programs")]

_HEAD: Final = '[[rule]]\nname = "all"\nmatch = {}\n[[rule.step]]\nabove = "110%"\nfor = "1s"\ngrace = "5s"\n'
_BY_LABELS: Final = '[[rule]]\nname = "a"\nmatch = { namespace_labels = { team = "ml" } }\n'
_PROTECTED: Final = '[protect]\nnamespaces = ["gpu-operator", "kube-system", "x-*"]\n'
POLICIES: Final = {
    **kustomize.policies(),
    "nothing": 'mode = "observe"\n',
    "namespaces": _BY_LABELS,
    "events": f"[events]\nobserve = true\n{_HEAD}do = 'kill'\n",
    **{f"{do}": f'mode = "enforce"\n{_HEAD}do = "{do}"\n{_PROTECTED}' for do in Do if do.enforces},
    "evict in observe": f'{_HEAD}do = "evict"\n',
    "evict in a rule that observes": f'mode = "enforce"\n{_HEAD}do = "evict"\n'.replace(
        "match", 'mode = "observe"\nmatch'
    ),
    "all": f'mode = "enforce"\n{_BY_LABELS}{_HEAD}do = "evict"\n[capacity]\nresource = "example.com/vram"\n',
}


@pytest.mark.parametrize("name", POLICIES)
def test_the_rights_follow_from_the_policy(name: str, tmp_path: Path) -> None:
    """Whatever the policy: the roles and what ties them down are those that `gpu-watchdog rights` prints for it."""
    file = tmp_path / "policy.toml"
    file.write_text(POLICIES[name], encoding="utf-8")
    printed = render(load_policy(file), ServiceAccount())
    expected = {f"{each['kind']}-{each['metadata']['name']}".lower(): each for each in yaml.safe_load_all(printed)}
    kinds = ("ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    found: dict[str, Any] = {key: each.content for key, each in kustomize.whole(POLICIES[name]).items()}
    assert {key: each for key, each in found.items() if each["kind"] in kinds} == expected


def test_the_roles_for_people_are_made_on_request() -> None:
    """With `rbac.people` those that `gpu-watchdog rights --for-people` prints, of this release, bound to nobody."""
    account = ServiceAccount(namespace="gpus", name="guard")
    expected = {each["metadata"]["name"]: each for each in yaml.safe_load_all(render_personal(account))}
    with_people, without = (
        {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(template(*flags))}
        for flags in (
            ("--set=serviceAccount.name=guard", "--set=rbac.people=true"),
            ("--set=serviceAccount.name=guard",),
        )
    )
    added = {name: each for (kind, name), each in with_people.items() if (kind, name) not in without}
    assert {name: each["rules"] for name, each in added.items()} == {n: e["rules"] for n, e in expected.items()}


def test_the_account_and_the_namespace_are_the_release_s() -> None:
    """In another namespace, under another account, everything refers to those."""
    reported = template("--set=serviceAccount.name=guard", policy=POLICIES["all"])
    assert "gpu-memory-watchdog:" not in reported.replace("gpu-memory-watchdog:0", "")
    found = list(yaml.safe_load_all(reported))
    assert {each["metadata"]["namespace"] for each in found if "namespace" in each["metadata"]} == {"gpus"}
    for each in found:
        # What uninstalling withdraws with has an account of its own.
        name = "guard-withdraw" if "helm.sh/hook" in str(each["metadata"].get("annotations")) else "guard"
        subject = {"kind": "ServiceAccount", "namespace": "gpus", "name": name}
        assert each.get("subjects", [subject]) == [subject]
    assert "system:serviceaccount:" not in reported  # a text, which Kustomize would not change


def test_a_policy_without_capacity_leaves_nothing_that_takes_it_back() -> None:
    """Neither the pod's right nor the hook is there any more (docs/capacity.md and docs/upgrade.md say so)."""
    reported = {name: template(policy=kustomize.policies()[name]) for name in ("observe", "capacity")}
    words = ("nodes/status", "helm.sh/hook: post-delete")
    assert [[word in text for word in words] for text in reported.values()] == [[False, False], [True, True]]


@pytest.mark.parametrize(
    ("flags", "added"),
    [
        ([], {"KILL"}),
        (["--set=driver.mig=true"], {"KILL", "SYS_ADMIN"}),
        (["--set=mps.clientLimits=true"], {"KILL", "SYS_PTRACE"}),
        (["--set=security=privileged"], None),
    ],
)
def test_security(flags: list[str], added: set[str] | None) -> None:
    """minimal: nothing but KILL, and for MIG the variable and its capability together; privileged: on request alone."""
    spec = pod(*flags)
    assert spec["hostPID"] is True
    assert not {"hostNetwork", "hostIPC"} & spec.keys()
    assert [each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each] == ["/var/lib/gpu-watchdog"]
    context = spec["containers"][0]["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["readOnlyRootFilesystem"]) == (0, 0, True)
    names = {each["name"] for each in spec["containers"][0]["env"]}
    if added is None:
        assert context["privileged"] is True
        return
    assert "privileged" not in context
    assert context["allowPrivilegeEscalation"] is False
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    # The runtime's default profile lets signals through to processes under that same profile alone.
    assert context["appArmorProfile"] == {"type": "Unconfined"}
    assert (context["capabilities"]["drop"], set(context["capabilities"]["add"])) == (["ALL"], added)
    # The NVIDIA runtime panics at this variable without SYS_ADMIN.
    assert ("NVIDIA_MIG_MONITOR_DEVICES" in names) is ("SYS_ADMIN" in added)


@pytest.mark.parametrize("security", ["minimal", "privileged"])
def test_a_label_of_selinux(security: str) -> None:
    """If asked for, it is the container's; otherwise there is none."""
    for flags, expected in ((["--set=seLinuxOptions.type=spc_t"], {"type": "spc_t"}), ([], None)):
        context = pod(f"--set=security={security}", *flags)["containers"][0]["securityContext"]
        assert context.get("seLinuxOptions") == expected


def test_the_driver_from_a_folder_of_the_node() -> None:
    """As on GKE: the libraries are mounted where the image's loader looks, and no runtime class is asked for."""
    flags = ["--set=driver.hostPath=/home/kubernetes/bin/nvidia", "--set=driver.runtimeClassName="]
    spec = pod(*flags)
    assert {"name": "driver", "mountPath": "/usr/local/nvidia", "readOnly": True} in spec["containers"][0][
        "volumeMounts"
    ]
    assert spec["volumes"][-1]["hostPath"] == {"path": "/home/kubernetes/bin/nvidia", "type": "Directory"}
    assert "runtimeClassName" not in spec
    assert "LD_LIBRARY_PATH=/usr/local/nvidia/lib64" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_the_driver_s_library_alone() -> None:
    """One file of the node is mounted where the image's loader looks."""
    library = "--set=driver.library=/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    spec = pod(library)
    place = "/usr/local/nvidia/lib64/libnvidia-ml.so.1"
    assert {"name": "library", "mountPath": place, "readOnly": True} in spec["containers"][0]["volumeMounts"]
    assert spec["volumes"][-1]["hostPath"] == {"path": library.rpartition("=")[2], "type": "File"}
