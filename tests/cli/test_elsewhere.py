"""Commands about another node: when they are, what is passed on to its pod, and what is refused."""

import os
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.rig.command import COMMAND
from watchdog.cli.elsewhere import NodeCommand
from watchdog.cli.main import main


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a kubeconfig, on which no watchdog runs or has run."""
    for name in [name for name in os.environ if name.startswith("GPU_WATCHDOG_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("watchdog.cli.elsewhere.DEFAULT_JOURNAL", tmp_path / "journal.db")
    monkeypatch.setattr("watchdog.cli.elsewhere.DEFAULT_LISTEN", "127.0.0.1:9")
    config = tmp_path / "kubeconfig"
    config.write_text("{}", encoding="utf-8")
    monkeypatch.setenv("KUBECONFIG", str(config))
    return config


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ("history n7 --action kill --action warn --since 2d -n gpus", "--action kill --action warn --since 2d"),
        ("history -f --json --context c n7", "--follow --json"),
        ("history --pod a/b", "--pod a/b"),
        ("explain --json a/b n7 --kubeconfig /k", "--json -- a/b"),
        ("stop --why --until-noon n7", "--why --until-noon"),
        ("scan n7 --kubeconfig /k --json --policy /etc/p.toml", "--json --policy /etc/p.toml"),
        ("doctor n7 --all", "--all"),
        ("resume n7", ""),
    ],
)
def test_what_is_passed_on(given: str, passed: str) -> None:
    """The command in the pod gets every option of the person but those that led there."""
    name, *arguments = given.split()
    command = main.commands[name]
    assert isinstance(command, NodeCommand)
    context = command.make_context(name, arguments, parent=click.Context(main))
    assert command.passed_on(context) == passed.split()


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ("stop", "no watchdog is here: name a NODE"),
        ("resume", "no watchdog is here: name a NODE"),
        ("history", "no watchdog is here: name a NODE or a pod"),
        ("stop n1 --journal /x", "--journal is for this node; n1 has its own"),
        ("explain a/b n1 --url http://127.0.0.1:9", "--url is for this node; n1 has its own"),
        ("scan --context x", "--context is for another node: name a NODE"),
        ("explain alice", "'alice': give NAMESPACE/NAME, like jupyter/alice-0"),
        ("history n1 --pod alice", "'alice': give NAMESPACE/NAME, like jupyter/alice-0"),
        ("top --cluster --url http://127.0.0.1:9", "--url is for one node, and --cluster for all"),
        ("top --context x --listen 127.0.0.1:9", "--listen is for one node, and --context for all"),
        ("top --cluster --gpu 0", "--gpu is for one node; with all of them Enter opens one"),
        ("top --cluster --prometheus-header A=b", "--prometheus-header is for a --prometheus at a URL"),
        ("top --prometheus http://127.0.0.1:9 -n x", "--namespace has no effect on a --prometheus at a URL"),
        ("top --prometheus http://[::1", "write http://HOST:PORT, or NAMESPACE/SERVICE:PORT"),
        ("top --prometheus http://u:p@127.0.0.1:9", "write http://HOST:PORT, or NAMESPACE/SERVICE:PORT"),
        ("top --prometheus http://127.0.0.1:9 --prometheus-header =x", "write NAME=VALUE, in plain characters"),
    ],
)
def test_what_is_refused(outside: Path, given: str, refusal: str) -> None:
    """Nobody stops a node that they did not mean, or their own machine."""
    ended = CliRunner().invoke(main, given.split())
    assert ended.exit_code == 2
    assert refusal in ended.stderr


def test_a_caller_s_terminal_is_fitted(tmp_path: Path) -> None:
    """In a pod, where output is a pipe, lines are as wide as the caller's terminal; without a width they are whole."""
    pods = tmp_path / "pods.json"
    pods.write_text('{"kind": "PodList", "apiVersion": "v1", "items": []}', encoding="utf-8")

    def widest(*width: str) -> int:
        words = [str(COMMAND), "scan", *width, "--pods", str(pods)]
        return max(map(len, subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines()))

    assert widest() > 80
    assert (widest("--width", "80") <= 80, widest("--width", "60") <= 60) == (True, True)


@pytest.mark.parametrize("command", ["stop", "resume", "history", "scan", "doctor", "explain a/b"])
def test_an_empty_node_is_not_this_one(outside: Path, command: str) -> None:
    """A script's variable that is not set stops no other node than was meant."""
    ended = CliRunner().invoke(main, [*command.split(), " "])
    assert (ended.exit_code, "NODE is empty: name the node" in ended.stderr) == (2, True)


def test_a_secret_is_in_no_message(outside: Path) -> None:
    """A header that can't be sent is refused without its value; in a variable several are lines, with blanks."""
    arguments = ["top", "--once", "--prometheus", "http://127.0.0.1:9"]
    refused = CliRunner().invoke(
        main, [*arguments, "--prometheus-header", "Authorization=Bearer SECRET\n"[:-1] + "\x07"]
    )
    assert refused.exit_code == 2
    assert "SECRET" not in refused.output
    headers = {"GPU_WATCHDOG_PROMETHEUS_HEADER": "Authorization=Bearer abc\nX-Scope-OrgID=a b"}
    assert "Connection refused" in CliRunner().invoke(main, arguments, env=headers).stderr


@pytest.mark.parametrize("given", ["explain a/b", "history --pod a/b", "stop n1", "top --once", "top --cluster --once"])
def test_the_cluster_is_asked_from_outside(outside: Path, given: str) -> None:
    """Where a kubeconfig is and no watchdog, it is the kubeconfig that counts."""
    ended = CliRunner().invoke(main, given.split())
    assert ended.exit_code == 1
    assert f"the kubeconfig {outside} is not usable" in ended.stderr


@pytest.mark.parametrize("given", ["explain a/b", "history --pod a/b", "history", "top --once"])
def test_a_node_is_asked_on_the_node(outside: Path, given: str) -> None:
    """With an address or a journal that is named, and without a kubeconfig, the cluster is not asked."""
    outside.unlink()
    here = CliRunner().invoke(main, given.split(), env={"KUBECONFIG": ""})
    assert here.exit_code == 1
    assert "kubeconfig" not in here.stderr
    outside.write_text("{}", encoding="utf-8")
    local = "--listen=127.0.0.1:9" if "history" not in given else f"--journal={outside}-none"
    named = CliRunner().invoke(main, [*given.split(), local])
    assert named.exit_code == 1
    assert "the kubeconfig" not in named.stderr
