"""Odd kubeconfigs through the real command: a clear reason, only the program's own output, and no thread that ends."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.kube import faulty
from tests.kube.test_kubeconfigs import SECRET, V1, document
from tests.node.support import need_root
from tests.rig import Node, gpu_watchdog
from tests.rig.cluster.credentials import in_a_pod
from tests.rig.command import Daemon, daemon
from tests.stub import GIB
from tests.world.policies import WARN_AT_ONCE, write_policy

pytestmark = pytest.mark.node

_FAILING: Final = f"echo 'session expired for {SECRET}' >&2; exit 7"
# The user of a kubeconfig, or the whole file, and part of the reason why it can't be used.
ROWS: Final[dict[str, tuple[object, str]]] = {
    "a plugin that is missing": ({"command": "/no/such"}, "the exec plugin '/no/such' of users[name=u].user can't be"),
    "a plugin that fails": (
        {"command": "sh", "args": ["-c", _FAILING]},
        "the exec plugin 'sh' of users[name=u].user exited with 7: session expired for ***",
    ),
    "a plugin that prints no JSON": (
        {"command": "echo", "args": [SECRET]},
        "the exec plugin 'echo' of users[name=u].user prints no JSON",
    ),
    "a list": (b"[1]", "it is a list, not a mapping"),
    "a token in the wrong place": (f"users: [{{name: u, token: {SECRET}}}]".encode(), "current-context is missing"),
    "NUL bytes": (b"\0\1", "it has NUL bytes"),
}


def _kubeconfig(root: Path, content: object) -> Path:
    path = root / "kubeconfig"
    if isinstance(content, dict):
        content = json.dumps(document({"exec": {"apiVersion": V1, **content}})).encode()
    assert isinstance(content, bytes)
    path.write_bytes(content)
    return path


def _lines(root: Path) -> list[dict[str, Any]]:
    """Every line that the daemon has printed, each of which must be JSON."""
    (log,) = root.glob("log-*.jsonl")
    return [json.loads(line) for line in log.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()]


def _causes(running: Daemon) -> str:
    return "\n".join(gap["why"] for gap in running.status()["gaps"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_the_daemon_with_an_odd_kubeconfig(any_world: Node, name: str) -> None:
    """It observes with a gap that has the reason, its threads live, and each line that it prints is one of its log."""
    content, reason = ROWS[name]
    any_world.single("hog", used=GIB)
    options = ("--policy", write_policy(any_world.root, WARN_AT_ONCE), "--journal", any_world.journal)
    with daemon(
        any_world.root, any_world.stub_file, *options, "--kubeconfig", _kubeconfig(any_world.root, content)
    ) as running:
        running.wait(lambda each: reason in _causes(each))
        running.wait_passes(2)
        assert "its thread has ended" not in _causes(running)
        assert "token or certificate has expired" not in _causes(running)
        assert [each["reason"] for each in running.status()["unattributed"]] == ["unknown_pod"]
        asked = gpu_watchdog("explain", "jupyter/hog", "--url", running.url, stub=any_world.stub_file)
        assert "Traceback" not in asked.stdout + asked.stderr
    printed = json.dumps(_lines(any_world.root))
    assert reason in printed.replace('\\"', '"')
    assert "secret" not in printed


@pytest.mark.slow
@pytest.mark.parametrize("command", ["scan", "doctor", "withdraw"])
@pytest.mark.parametrize("name", ROWS)
def test_commands_with_an_odd_kubeconfig(any_world: Node, command: str, name: str) -> None:
    """Each command that asks the API server says why it can't, and prints nothing of a library, and no traceback."""
    content, reason = ROWS[name]
    options: list[str | Path] = [command, "--policy", write_policy(any_world.root, WARN_AT_ONCE), "--node", "n1"]
    options += ["--resource", "a/b"] if command == "withdraw" else []
    options += ["--json"] if command != "withdraw" else []
    done = gpu_watchdog(*options, "--kubeconfig", _kubeconfig(any_world.root, content), stub=any_world.stub_file)
    assert reason in done.stdout + done.stderr
    for foreign in ("Traceback", "ERROR:root", "Exception in thread", "secret"):
        assert foreign not in done.stdout + done.stderr


_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
# The files of a pod's service account, without an authority that would do; and part of the reason.
MOUNTED: Final[dict[str, tuple[dict[str, bytes], str]]] = {
    "no token": ({}, f"this pod has no token of a service account ({_ACCOUNT}/token)"),
    "an empty token": ({"token": b""}, f"the token {_ACCOUNT}/token is empty"),
    "no authority": ({"token": b"t"}, f"the certificate of the cluster's authority ({_ACCOUNT}/ca.crt) is missing"),
    "an authority that is not PEM": (
        {"token": b"t", "ca.crt": b"PEM"},
        f"{_ACCOUNT}/ca.crt contains no certificate in PEM form",
    ),
    "a token that is not text": ({"token": b"\xffsecret"}, "a file in it is not text"),
    "a token of two lines": (
        {"token": b"secret\nsecret", "ca.crt": b"CA"},
        "its token contains characters that no token has",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MOUNTED)
def test_an_odd_service_account(any_world: Node, name: str) -> None:
    """In a pod the reason names the mounted file, and `scan` shows the node without the pods."""
    need_root()
    files, reason = MOUNTED[name]
    folder = any_world.root / "account"
    folder.mkdir()
    for file, content in files.items():
        (folder / file).write_bytes(faulty.authority().certificate.read_bytes() if content == b"CA" else content)
    around = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    done = gpu_watchdog("scan", "--json", stub=any_world.stub_file, prefix=in_a_pod(folder), around=around)
    assert reason in "".join(gap["why"] for gap in json.loads(done.stdout)["gaps"])
    assert "secret" not in (done.stdout + done.stderr).replace(_ACCOUNT, "")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_doctor_with_a_plugin_that_hangs(any_world: Node) -> None:
    """It is ended before doctor gives up, so the reason is the plugin and not the network."""
    path = _kubeconfig(any_world.root, {"command": "sleep", "args": ["600"]})
    policy = write_policy(any_world.root, WARN_AT_ONCE)
    done = gpu_watchdog(
        "doctor", "--json", "--policy", policy, "--node", "n1", "--kubeconfig", path, stub=any_world.stub_file
    )
    reported = {each["name"]: each["what"] for each in json.loads(done.stdout)["findings"]}
    assert "the exec plugin 'sleep' of users[name=u].user did not finish within 15 s" in reported["api_config"]


@pytest.fixture
def insecure(any_world: Node) -> Iterator[Path]:
    """A kubeconfig whose server's certificate is not checked; the server refuses everything."""
    refusal = "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\n{}"
    with faulty.server(faulty.answers(refusal), faulty.certificate("foreign")) as port:
        found = document(insecure_skip_tls_verify=True, server=f"https://127.0.0.1:{port}")
        path = any_world.root / "kubeconfig"
        path.write_text(json.dumps(found))
        yield path


def test_warnings_of_a_library_are_in_the_log(any_world: Node, insecure: Path) -> None:
    """What urllib3 warns of with each request is one line of the log, with its name."""
    options = ("--policy", write_policy(any_world.root, WARN_AT_ONCE), "--journal", any_world.journal)
    with daemon(any_world.root, any_world.stub_file, *options, "--kubeconfig", insecure) as running:
        running.wait(lambda each: "answered 403" in _causes(each))
        running.wait_passes(2)
    (line,) = [each for each in _lines(any_world.root) if each.get("logger") == "urllib3"]
    assert (line["event"], line["level"]) == ("warning", "warning")
    assert line["message"].startswith("InsecureRequestWarning: Unverified HTTPS request is being made to host")


def test_warnings_of_a_library_in_a_command(any_world: Node, insecure: Path) -> None:
    """People get them as a warning of the program, once, without lines of source code."""
    policy = write_policy(any_world.root, WARN_AT_ONCE)
    options = ("--policy", policy, "--node", "n1", "--kubeconfig", insecure)
    for command in ("scan", "doctor", "withdraw"):
        more = ("--resource", "a/b") if command == "withdraw" else ()
        done = gpu_watchdog(command, *options, *more, stub=any_world.stub_file)
        assert "warnings.warn" not in done.stderr
        assert done.stderr.count("Warning: urllib3: InsecureRequestWarning: Unverified") == 1
