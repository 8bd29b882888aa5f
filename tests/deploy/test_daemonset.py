"""What ships observes: the objects of Kustomize's base, what they may do, and that they fit the program."""

from typing import Any, Final

import click
import yaml

from tools import ROOT
from tools.kustomize import KUSTOMIZE, NAMESPACE
from tools.rights import ACCOUNT, EVERYTHING, PIECES, POLICY, pieces
from watchdog import __version__
from watchdog.cli.main import main
from watchdog.config.load import load_policy
from watchdog.kube.kinds import Piece
from watchdog.kube.rights import PERSONAL_ROLES, render
from watchdog.options import DEFAULT_JOURNAL, DEFAULT_POLICY

_BASE: Final = KUSTOMIZE / "base"
_IMAGE: Final = (ROOT / "Dockerfile").read_text(encoding="utf-8")
_ALL: Final[list[dict[str, Any]]] = [
    yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(_BASE.glob("*-*.yaml"))
]
_OBJECTS: Final[dict[str, Any]] = {each["kind"]: each for each in _ALL if "rules" not in each and "roleRef" not in each}
_SPEC: Final = _OBJECTS["DaemonSet"]["spec"]["template"]["spec"]
_CONTAINER: Final = _SPEC["containers"][0]
_ENV: Final = {each["name"]: each.get("value") for each in _CONTAINER["env"]}


def test_the_policy_is_the_one_that_ships() -> None:
    """The ConfigMap holds config/policy.toml word for word, and the base as it is does not enforce."""
    assert (_BASE / "policy.toml").read_text(encoding="utf-8") == POLICY.read_text(encoding="utf-8")
    assert load_policy(POLICY).mode == "observe"


def test_objects_belong_together() -> None:
    """One namespace holds all of them; names, labels and ports that refer to each other are equal."""
    assert {kind: each["metadata"].get("namespace", each["metadata"]["name"]) for kind, each in _OBJECTS.items()} == (
        dict.fromkeys(("Namespace", "ServiceAccount", "DaemonSet", "NetworkPolicy"), NAMESPACE)
    )
    template = _OBJECTS["DaemonSet"]["spec"]["template"]
    assert _OBJECTS["DaemonSet"]["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert _SPEC["serviceAccountName"] == _OBJECTS["ServiceAccount"]["metadata"]["name"]
    ports = {each["name"]: each["containerPort"] for each in _CONTAINER["ports"]}
    assert _ENV["GPU_WATCHDOG_LISTEN"] == f"0.0.0.0:{ports['metrics']}"
    probes = {kind: _CONTAINER[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    assert {probe["port"] for probe in probes.values()} == {"metrics"}
    assert [probe["path"] for probe in probes.values()] == ["/healthz", "/healthz", "/readyz"]
    network = _OBJECTS["NetworkPolicy"]["spec"]
    assert network["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert [each["port"] for rule in network["ingress"] for each in rule["ports"]] == ["metrics"]


def test_its_token_is_its_own() -> None:
    """One command installs it, with the account that its roles are bound to; other pods must ask for its token."""
    assert _SPEC["automountServiceAccountToken"] is True
    assert _OBJECTS["ServiceAccount"]["automountServiceAccountToken"] is False
    assert ACCOUNT.name == _SPEC["serviceAccountName"]
    account = {"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "gpu-watchdog"}
    assert all(each["subjects"] == [account] for each in _ALL if each["kind"] == "ClusterRoleBinding")


def test_the_pieces_are_what_the_command_prints() -> None:
    """The files of deploy/rbac/ are written from the same source, and together they have every role there is."""
    files = {path.name: path.read_text(encoding="utf-8") for path in PIECES.iterdir()}
    assert files == pieces()
    together, whole = (
        {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each is not None}
        for text in ("\n---\n".join(files.values()), render(EVERYTHING, ACCOUNT))
    )
    assert whole.items() <= together.items()
    people = {f"{ACCOUNT.name}-{role.suffix}" for role in PERSONAL_ROLES}
    assert {name for kind, name in together if kind == "ClusterRole"} == people.union(map(ACCOUNT.object_name, Piece))


def test_all_cards_are_seen_through_nvml_alone() -> None:
    """The NVIDIA runtime gives the container every card, and of the driver what NVML needs."""
    assert (_ENV["NVIDIA_VISIBLE_DEVICES"], _ENV["NVIDIA_DRIVER_CAPABILITIES"]) == ("all", "utility")


def test_one_arena_of_malloc() -> None:
    """The image and the DaemonSet alike give all threads one arena: glibc's one per thread keeps what each freed."""
    assert _ENV["MALLOC_ARENA_MAX"] == "1"
    assert "MALLOC_ARENA_MAX=1 " in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_volumes_lie_where_the_program_looks() -> None:
    """Policy and journal are mounted at their default places, the policy as a folder: a subPath never updates."""
    mounts = {each["name"]: each for each in _CONTAINER["volumeMounts"]}
    assert mounts.keys() == {each["name"] for each in _SPEC["volumes"]}
    assert mounts["policy"]["mountPath"] == str(DEFAULT_POLICY.parent)
    assert mounts["state"]["mountPath"] == str(DEFAULT_JOURNAL.parent)
    assert all("subPath" not in each for each in mounts.values())


def test_arguments_are_options_of_the_program() -> None:
    """Every argument is an option that `run` has, and every variable with our prefix one that it reads."""
    command, *arguments = _CONTAINER["args"]
    run = main.commands[command]
    options = {name for option in run.params for name in option.opts}
    assert {each.partition("=")[0] for each in arguments} <= options
    assert "GPU_WATCHDOG_PODS" not in _ENV  # with a file of pods the API would not be asked
    read: set[str] = set()
    for option in run.params:
        assert isinstance(option, click.Option)
        read |= {option.envvar} if isinstance(option.envvar, str) else set(option.envvar or ())
    assert {name for name in _ENV if not name.startswith(("NVIDIA_", "MALLOC_"))} <= read


def test_the_image_is_built_from_the_locks() -> None:
    """The Dockerfile installs by hash alone, and says which version it is."""
    installs = [line for line in _IMAGE.replace("\\\n", " ").splitlines() if " install " in line]
    assert len(installs) == 3
    assert all("--require-hashes" in line or "--no-index --no-deps" in line for line in installs)
    assert f"ARG VERSION={__version__}\n" in _IMAGE
    assert "FROM ${BASE} AS build\n" in _IMAGE
    assert _IMAGE.rpartition("FROM ${RUN_BASE}\n")[2].count("RUN ") == 0
