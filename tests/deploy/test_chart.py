"""The chart and the Kustomize folder, rendered by the real programs: the same objects, and the rights of the policy."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.test_refused import refused
from tools import ROOT, chart, kustomize
from tools.programs import helm, programs
from tools.rights import POLICY
from watchdog import __version__
from watchdog.config.load import load_policy
from watchdog.kube.rights import ServiceAccount, render

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_programs")]

_HEAD: Final = '[[rule]]\nname = "all"\nmatch = {}\n[[rule.step]]\nabove = "110%"\nfor = "1s"\ngrace = "5s"\n'
_BY_LABELS: Final = '[[rule]]\nname = "a"\nmatch = { namespace_labels = { team = "ml" } }\n'
POLICIES: Final = {
    **kustomize.policies(),
    "nothing": 'mode = "observe"\n',
    "namespaces": _BY_LABELS,
    "events": f"[events]\nobserve = true\n{_HEAD}do = 'kill'\n",
    "evict": f'mode = "enforce"\n{_HEAD}do = "evict"\n[protect]\nnamespaces = ["gpu-operator", "kube-system", "x-*"]\n',
    "evict in observe": f'{_HEAD}do = "evict"\n',
    "evict in a rule that observes": f'mode = "enforce"\n{_HEAD}do = "evict"\n'.replace(
        "match", 'mode = "observe"\nmatch'
    ),
    "all": f'mode = "enforce"\n{_BY_LABELS}{_HEAD}do = "evict"\n[capacity]\nresource = "example.com/vram"\n',
}


def rights(objects: Mapping[str, kustomize.Object]) -> dict[str, Any]:
    kinds = ("ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    return {key: each.content for key, each in objects.items() if each.content["kind"] in kinds}


@pytest.mark.parametrize("name", POLICIES)
def test_the_rights_follow_from_the_policy(name: str, tmp_path: Path) -> None:
    """Whatever the policy: the roles and what ties them down are those that `gpu-watchdog rights` prints for it."""
    file = tmp_path / "policy.toml"
    file.write_text(POLICIES[name], encoding="utf-8")
    printed = render(load_policy(file), ServiceAccount())
    expected = {f"{each['kind']}-{each['metadata']['name']}".lower(): each for each in yaml.safe_load_all(printed)}
    assert rights(kustomize.whole(POLICIES[name])) == expected


def test_the_account_and_the_namespace_are_the_release_s() -> None:
    """In another namespace, under another account, everything refers to those."""
    command = [str(helm()), "template", "r", str(chart.CHART), "--namespace=other", "--set=serviceAccount.name=guard"]
    flags = ["--set-file=policy=/dev/stdin"]
    said = subprocess.run([*command, *flags], input=POLICIES["all"], check=True, capture_output=True, text=True).stdout
    assert "gpu-memory-watchdog:" not in said.replace("gpu-memory-watchdog:0", "")
    found = list(yaml.safe_load_all(said))
    assert {each["metadata"]["namespace"] for each in found if "namespace" in each["metadata"]} == {"other"}
    subjects = [(each["metadata"], each["subjects"]) for each in found if "subjects" in each]
    for metadata, who in subjects:
        # What uninstalling withdraws with has an account of its own.
        name = "guard-withdraw" if "helm.sh/hook" in str(metadata.get("annotations")) else "guard"
        assert who == [{"kind": "ServiceAccount", "namespace": "other", "name": name}]
    assert said.count("'system:serviceaccount:other:guard'") == 2


@pytest.mark.parametrize("overlay", kustomize.policies())
def test_kustomize_and_helm_come_to_the_same(overlay: str) -> None:
    """Each overlay, built by the real kubectl, has the very objects that the chart renders with its policy."""
    folder = kustomize.KUSTOMIZE / "overlays" / overlay
    built = subprocess.run(
        [str(programs() / "kubectl"), "kustomize", str(folder)], check=True, capture_output=True, text=True
    )
    found = {f"{each['kind']}-{each['metadata']['name']}".lower(): each for each in yaml.safe_load_all(built.stdout)}
    expected = {key: each.content for key, each in kustomize.whole(kustomize.policies()[overlay]).items()}
    assert found == expected


def test_what_is_generated_is_up_to_date() -> None:
    """Nobody edits by hand what the tools write, and what they write has been written."""
    written = {
        str(path.relative_to(kustomize.KUSTOMIZE)): path for path in kustomize.KUSTOMIZE.rglob("*") if path.is_file()
    }
    assert {name: path.read_text(encoding="utf-8") for name, path in written.items()} == kustomize.files()
    files = chart.CHART / "files"
    there = {str(path.relative_to(files)): path for path in files.rglob("*") if path.is_file()}
    assert {name: path.read_text(encoding="utf-8") for name, path in there.items()} == chart.files()


def test_the_chart_is_of_this_version_and_ships_the_policy_that_observes() -> None:
    """The image is the one of this checkout, and nobody enforces by installing the chart as it is."""
    about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (about["version"], about["appVersion"]) == (__version__, __version__)
    found = kustomize.rendered("")
    assert found["configmap-gpu-watchdog-policy"].content["data"] == {"policy.toml": POLICY.read_text(encoding="utf-8")}
    container = found["daemonset-gpu-watchdog"].content["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"gpu-memory-watchdog:{__version__}"


def test_a_policy_without_capacity_leaves_nothing_that_takes_it_back() -> None:
    """Hence what docs/capacity.md and docs/upgrade.md say: neither the pod's right nor the hook is there any more."""
    command = [str(helm()), "template", "r", str(chart.CHART), "--set-file=policy=/dev/stdin"]
    counts = {}
    for name in ("observe", "capacity"):
        given = kustomize.policies()[name]
        said = subprocess.run(command, input=given, check=True, capture_output=True, text=True).stdout
        counts[name] = (said.count("nodes/status"), said.count("helm.sh/hook: post-delete"))
    assert counts["observe"] == (0, 0)
    assert min(counts["capacity"]) > 0
    for page, words in (("capacity", "The third command does not work with Helm"), ("upgrade", "drops `[capacity]`")):
        assert words in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


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
    spec = kustomize.rendered("", *flags)["daemonset-gpu-watchdog"].content["spec"]["template"]["spec"]
    assert spec["hostPID"] is True
    assert not {"hostNetwork", "hostIPC"} & spec.keys()
    context = spec["containers"][0]["securityContext"]
    assert (context["runAsUser"], context["readOnlyRootFilesystem"]) == (0, True)
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
    """Asked for, it is the container's; nothing else can be set under its name, and without it there is none."""
    for flags, expected in ((["--set=seLinuxOptions.type=spc_t"], {"type": "spc_t"}), ([], None)):
        found = kustomize.rendered("", f"--set=security={security}", *flags)["daemonset-gpu-watchdog"].content
        context = found["spec"]["template"]["spec"]["containers"][0]["securityContext"]
        assert context.get("seLinuxOptions") == expected
    assert "'typ' not allowed" in refused("--set=seLinuxOptions.typ=spc_t")


def test_the_driver_from_a_folder_of_the_node() -> None:
    """As on GKE: the libraries are mounted where the image's loader looks, and no runtime class is asked for."""
    flags = ["--set=driver.hostPath=/home/kubernetes/bin/nvidia", "--set=driver.runtimeClassName="]
    spec = kustomize.rendered("", *flags)["daemonset-gpu-watchdog"].content["spec"]["template"]["spec"]
    assert {"name": "driver", "mountPath": "/usr/local/nvidia", "readOnly": True} in spec["containers"][0][
        "volumeMounts"
    ]
    assert spec["volumes"][-1]["hostPath"] == {"path": "/home/kubernetes/bin/nvidia", "type": "Directory"}
    assert "runtimeClassName" not in spec
    assert "LD_LIBRARY_PATH=/usr/local/nvidia/lib64" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_the_driver_s_library_alone() -> None:
    """One file of the node, where the image's loader looks; together with the folder it is refused by name."""
    library = "--set=driver.library=/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    spec = kustomize.rendered("", library)["daemonset-gpu-watchdog"].content["spec"]["template"]["spec"]
    place = "/usr/local/nvidia/lib64/libnvidia-ml.so.1"
    assert {"name": "library", "mountPath": place, "readOnly": True} in spec["containers"][0]["volumeMounts"]
    assert spec["volumes"][-1]["hostPath"] == {"path": library.rpartition("=")[2], "type": "File"}
    assert "driver.hostPath and driver.library exclude each other" in refused(library, "--set=driver.hostPath=/d")
