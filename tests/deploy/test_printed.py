"""The commands of the pages, as an operator copies them: nothing that was installed is lost by the next command."""

import json
import re
import shlex
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.deploy.printed import PAGES, Block, all_blocks, blocks, daemonset, rendered
from tools import ROOT, kustomize
from tools.programs import programs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_programs")]

_DOCS: Final = ROOT / "docs"
_INSTALL: Final = _DOCS / "install.md"
_IS_INSTALL: Final = re.compile(r"helm install ")
_BLOCKS: Final = all_blocks()
_UPGRADES: Final = [
    pytest.param(each, command, id=str(each))
    for each in _BLOCKS
    for command in each.commands
    # The two releases of the block that writes values files differ on purpose: test_two_releases.py.
    if re.match(r"helm (?:upgrade (?!--install)|template )", command) and "values-mig.yaml" not in each.files
]
assert {each.values[0].page for each in _UPGRADES} >= {"docs/upgrade.md", "docs/rollout.md"}  # type: ignore[union-attr]
_TABLES: Final = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ALL_ON: Final = (
    "--set=authentication.enabled=true,openshift.scc=true,resourceQuota.create=true",
    "--set=prometheus.podMonitor.create=true,prometheus.rules.create=true,grafana.dashboard.create=true",
)


def _kubectl(*arguments: object, cwd: Path = ROOT) -> str:
    command = [str(programs() / "kubectl"), *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=cwd, timeout=120)
    return done.stdout


def _install(platform: str) -> Block:
    """The block that installs, with the platform filled in."""
    (found,) = (each for each in blocks(_INSTALL) if any(map(_IS_INSTALL.match, each.commands)))
    return replace(found, commands=tuple(each.replace("PLATFORM", platform) for each in found.commands))


def _written(block: Block, folder: Path) -> None:
    for name, text in block.files.items():
        (folder / Path(name).name).write_text(text, encoding="utf-8")


def _own_files(folder: Path, platform: str) -> None:
    """What an operator of the platform has after its page: values.yaml, and a policy of their own."""
    _written(_install(platform), folder)
    (text, *_) = _TABLES.findall((_DOCS / "rollout.md").read_text(encoding="utf-8"))
    (folder / "policy.toml").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("platform", kustomize.PLATFORMS)
def test_the_block_that_installs_is_the_whole_way(platform: str, tmp_path: Path) -> None:
    """One block writes values.yaml, makes the namespace such that Pod Security lets the pods in, installs and waits."""
    block = _install(platform)
    namespace = "gpu-memory-watchdog"
    assert list(block.files) == ["values.yaml"]
    assert block.commands[0] == f"kubectl create namespace {namespace}"
    assert block.commands[1] == f"kubectl label namespace {namespace} pod-security.kubernetes.io/enforce=privileged"
    assert block.commands[3:] == (f"kubectl -n {namespace} rollout status daemonset/gpu-watchdog",)
    _written(block, tmp_path)
    flags = f"--values={kustomize.PLATFORMS[platform]}", "--set=image.repository=REGISTRY/gpu-memory-watchdog"
    expected = [each.content for each in kustomize.whole("", *flags).values() if each.content["kind"] != "Namespace"]
    found = rendered(block.commands[2], tmp_path, platform).values()
    assert [each for each in found if "helm.sh/hook" not in each["metadata"].get("annotations", {})] == expected


def test_no_command_makes_a_namespace_without_its_label() -> None:
    """Where Pod Security is enforced a namespace that helm makes admits no pod of ours."""
    commands = [each for block in _BLOCKS for each in block.commands if each.startswith("helm")]
    assert len(commands) > 8
    assert not [each for each in commands if "--create-namespace" in each]


@pytest.mark.parametrize("platform", kustomize.PLATFORMS)
@pytest.mark.parametrize(("block", "command"), _UPGRADES)
def test_no_upgrade_drops_the_platform(block: Block, command: str, platform: str, tmp_path: Path) -> None:
    """After any printed upgrade the DaemonSet is the installed one: image, driver, security, and nodes."""
    _own_files(tmp_path, platform)
    installed = daemonset(rendered(_install(platform).commands[2], tmp_path, platform))
    assert daemonset(rendered(command, tmp_path, platform)) == installed, block.page


def test_a_policy_is_checked_before_helm_gets_it() -> None:
    """Helm takes any TOML, and a daemon that starts with a mistake ends: each block checks it first."""
    seen = 0
    for block in _BLOCKS:
        given = [i for i, each in enumerate(block.commands) if re.match(r"helm (?:install|upgrade).* policy=", each)]
        checks = [i for i, each in enumerate(block.commands) if re.search(r"\bcheck - < policy\.toml$", each)]
        assert not given or (checks and checks[0] < given[0]), block.commands
        seen += len(given)
    assert seen >= 5


@pytest.mark.parametrize("platform", kustomize.PLATFORMS)
def test_as_one_file_is_for_the_platform(platform: str, tmp_path: Path) -> None:
    """The printed command, in the printed folder, gives what `apply -k` gives there; none renders a bare overlay."""
    text = _INSTALL.read_text(encoding="utf-8")
    (command,) = re.findall(r"^ {4}kubectl (kustomize .*?) > gpu-watchdog\.yaml$", text, re.MULTILINE)
    assert "kustomize/overlays" not in command
    blocks_of_yaml = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (printed,) = (each for each in blocks_of_yaml if "components:" in each)
    (tmp_path / "gpu-memory-watchdog").symlink_to(ROOT)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(printed.replace("PLATFORM", platform), encoding="utf-8")
    built = [*yaml.safe_load_all(_kubectl(*shlex.split(command), cwd=folder))]
    (found,) = (each for each in built if each["kind"] == "DaemonSet")
    _own_files(tmp_path, platform)
    installed = daemonset(rendered(_install(platform).commands[2], tmp_path, platform))
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container.pop("image") == "REGISTRY/gpu-memory-watchdog:0.1.0"
    installed["spec"]["template"]["spec"]["containers"][0].pop("image")
    assert found == installed


def _uninstall_table() -> list[list[str]]:
    part = (_DOCS / "upgrade.md").read_text(encoding="utf-8").partition("## Uninstall\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line[:1] == "|"]
    return rows[2:]


def test_the_uninstall_table_has_every_object() -> None:
    """Each kind that the chart can make is in it as removed, and so is the namespace, which `delete -k` deletes."""
    table = _uninstall_table()
    release = table[0][0]
    policy = (_DOCS / "capacity.md").read_text(encoding="utf-8")
    kinds = {each.content["kind"] for each in kustomize.rendered(_TABLES.findall(policy)[0], *_ALL_ON).values()}
    assert len(kinds) >= 11
    assert not [kind for kind in kinds if kind.removesuffix("Binding") not in release]
    base = [*yaml.safe_load_all(_kubectl("kustomize", "deploy/kustomize/overlays/observe"))]
    (row,) = (row for row in table if row[0].startswith("the Namespace"))
    assert ("`kubectl delete -k`" in row[1]) is ("Namespace" in {each["kind"] for each in base})


def test_the_uninstall_table_has_what_the_pages_have_you_set() -> None:
    """Labels and annotations of nodes and namespaces that any page sets are in the table, to be taken away."""
    taken = " ".join(" ".join(row) for row in _uninstall_table())
    keys = {
        key
        for each in _BLOCKS
        for command in each.commands
        for key in re.findall(r"\s((?:example\.com|gpu-memory-watchdog)/[\w-]+)=\S*", command)
        if re.match(r"kubectl (?:label|annotate) ", command)
    }
    assert {"example.com/gpu-watchdog", "gpu-memory-watchdog/mode"} <= keys
    assert not [key for key in keys if f"{key}-" not in taken]


def test_the_query_for_a_hardened_toolkit(tmp_path: Path) -> None:
    """The real kubectl reads the setting out of the GPU Operator's object by the printed query."""
    text = _INSTALL.read_text(encoding="utf-8")
    (query,) = re.findall(r"kubectl get clusterpolicies\.nvidia\.com -o (jsonpath='.*toolkit.*')$", text, re.MULTILINE)
    setting = {"name": "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED", "value": "false"}
    spec = {"toolkit": {"env": [setting, {"name": "OTHER", "value": "1"}]}}
    made = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "c"}, "spec": spec}
    (tmp_path / "object.yaml").write_text(yaml.safe_dump(made), encoding="utf-8")
    # Without a server kubectl shows one object, not the list that `get` makes.
    (flag,) = shlex.split(query.replace(".items[*].", "."))
    reported = _kubectl("label", "--local", "-f", tmp_path / "object.yaml", "a=b", "-o", flag)
    assert reported.splitlines() == [f"{setting['name']}=false", "OTHER=1"]


def test_what_the_chart_makes_for_prometheus() -> None:
    """The values that docs/prometheus.md prints give both objects, with the labels and the place of the runbooks."""
    section = (_DOCS / "prometheus.md").read_text(encoding="utf-8").partition("## By the chart\n")[2]
    (printed,) = re.findall(r"^```yaml\n(.*?)^```$", section.partition("\n## ")[0], re.MULTILINE | re.DOTALL)
    objects = kustomize.rendered("", f"--set-json=prometheus={json.dumps(yaml.safe_load(printed)['prometheus'])}")
    for key in ("podmonitor-gpu-watchdog", "prometheusrule-gpu-watchdog"):
        assert objects[key].content["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    assert "runbook_url: https://docs.example.com/gpu-memory-watchdog/runbooks.html#gpu" in objects[key].text


@cache
def _known_flags(*verb: str) -> set[str]:
    reported = _kubectl(*verb, "--help") + _kubectl("options")
    return set(re.findall(r"(?:^|\s|, )(-{1,2}[A-Za-z][\w-]*)", reported))


_PLUGINS: Final = ("gpu-watchdog", "krew")


def test_kubectl_knows_the_flags() -> None:
    """Every printed command of kubectl has a verb, and only flags, that the real kubectl knows; or is of a plugin."""
    lines = [line for block in _BLOCKS for line in block.commands]
    lines += [
        line for page in PAGES for line in re.findall(r"`(kubectl [a-z-][^`]*)`", page.read_text(encoding="utf-8"))
    ]
    commands = [part for line in lines for part in re.findall(r"\bkubectl [^|;)&<>`]*", line)]
    assert len(commands) > 80
    for command in commands:
        words = shlex.split(command.partition(" -- ")[0].replace("'", "").replace(" -it ", " -i -t "))[1:]
        while words and words[0].startswith("-"):
            words = words[2:]
        if words[0] in _PLUGINS:
            continue
        flags = {each.partition("=")[0] for each in words[1:] if re.match(r"-{1,2}[A-Za-z]", each)}
        assert flags <= _known_flags(*words[: 2 if words[0] in ("auth", "create", "rollout") else 1]), command
