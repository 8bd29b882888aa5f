"""What shells complete: a real bash, and what the scripts of zsh and fish are and get."""

import os
import socket
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.build import serving
from tests.cli.session import session
from tests.ports import free_port
from tests.report.build import Story, climbing, entry, hostile_pod, outcome, quiet, record, trainer
from tests.rig.command import COMMAND
from tests.worlds import Gi, process, snapshot, use
from watchdog.core.plan import CycleReport
from watchdog.core.policy import JournalLimits
from watchdog.journal.journal import Journal

pytestmark = pytest.mark.slow

_BASH = """
eval "$(_GPU_WATCHDOG_COMPLETE=bash_source gpu-watchdog)"
COMP_LINE=$1; COMP_POINT=${#1}; COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { echo "ask the shell for:" "$@"; }
_gpu_watchdog_completion gpu-watchdog
printf '%s\\n' "${COMPREPLY[@]}"
"""


def environment(**more: str) -> dict[str, str]:
    """What a shell has in its environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPU_WATCHDOG", "COMP_"))}
    return {**kept, "PATH": f"{COMMAND.parent}:{os.environ['PATH']}", **more}


def bash(line: str, **more: str) -> list[str]:
    """What a bash offers for a line with the cursor at its end."""
    command = ["bash", "--norc", "-c", _BASH, "bash", line]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment(**more))
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def printed(**more: str) -> str:
    """What the command prints for a shell that asks with these variables."""
    own = environment(**more)
    return subprocess.run([COMMAND], capture_output=True, text=True, check=True, timeout=60, env=own).stdout


def two_pods() -> CycleReport:
    """A node with a/trainer, a/trial and a pod of hostile names."""
    hostile = (hostile_pod(namespace="a"), hostile_pod("u4", "a", "x,y\nplain,z"))
    pods = (trainer(), trainer(name="trial", uid="u2"), *hostile)
    seen = snapshot([use(1, Gi), use(2, Gi)], [process(1, "u1/main"), process(2, "u2/main")])
    return Story(pods=pods).see(seen)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gpu-watchdog hist", ["history"]),
        ("gpu-watchdog top --so", ["--sort"]),
        ("gpu-watchdog top --sort n", ["name", "namespace", "node"]),
        ("gpu-watchdog top --sort v", ["verdict"]),
        ("gpu-watchdog check conf", ["ask the shell for: -o default", ""]),
        ("gpu-watchdog replay --policy ", ["ask the shell for: -o default", ""]),
    ],
)
def test_commands_options_values_and_files(line: str, expected: list[str]) -> None:
    """A bash completes commands, options, the values of an option, and the names of files."""
    assert bash(line) == expected


def test_pods_of_the_daemon() -> None:
    """`explain` completes the pods of the daemon that is named; a hostile name is no word for a shell, and left out."""
    with serving(two_pods()) as url:
        assert bash("gpu-watchdog explain ", GPU_WATCHDOG_URL=url) == ["a/trainer", "a/trial"]
        assert bash(f"gpu-watchdog explain --url {url} a/tr") == ["a/trainer", "a/trial"]
        assert bash(f"gpu-watchdog explain --listen {url.removeprefix('http://')} a/tri") == ["a/trial"]
        assert bash("gpu-watchdog explain a/trai", GPU_WATCHDOG_URL=url) == ["a/trainer"]
        assert bash("gpu-watchdog explain b/", GPU_WATCHDOG_URL=url) == [""]


@pytest.mark.parametrize(
    ("shell", "word", "expected"),
    [("zsh", "2", "plain\na/trainer\n_\nplain\na/trial\n_\n"), ("fish", "a/tr", "plain,a/trainer\nplain,a/trial\n")],
)
def test_zsh_and_fish(shell: str, word: str, expected: str) -> None:
    """The script for zsh or fish asks the command in its own way, and so asked the command completes pods."""
    assert f"_GPU_WATCHDOG_COMPLETE={shell}_complete" in printed(_GPU_WATCHDOG_COMPLETE=f"{shell}_source")
    with serving(two_pods()) as url:
        asked = {"COMP_WORDS": "gpu-watchdog explain a/tr", "COMP_CWORD": word, "GPU_WATCHDOG_URL": url}
        assert printed(_GPU_WATCHDOG_COMPLETE=f"{shell}_complete", **asked) == expected


def test_pods_of_a_journal(tmp_path: Path) -> None:
    """`history --pod` completes the pods that the journal has, which may be gone, and those of the daemon."""
    path = tmp_path / "journal.db"
    with closing(Journal.open(path, JournalLimits(), "n1")) as journal:
        record(journal, quiet(31, outcomes=(outcome(entry(climbing(5), "warn")),)))
    line = f"gpu-watchdog history --journal {path} --pod a/"
    assert bash(line, GPU_WATCHDOG_LISTEN=f"127.0.0.1:{free_port()}") == ["a/trainer"]
    with serving(two_pods()) as url:
        assert bash(line, GPU_WATCHDOG_LISTEN=url.removeprefix("http://")) == ["a/trainer", "a/trial"]


def test_silence_where_nothing_answers(tmp_path: Path) -> None:
    """Without a journal and without a daemon, or with one that hangs, nothing is offered or printed after a moment."""
    away = f"127.0.0.1:{free_port()}"
    assert bash(f"gpu-watchdog history --journal {tmp_path}/none --pod ", GPU_WATCHDOG_LISTEN=away) == [""]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began_s = time.monotonic()
        assert bash("gpu-watchdog explain ", GPU_WATCHDOG_URL=f"http://127.0.0.1:{silent.getsockname()[1]}") == [""]
        assert time.monotonic() - began_s < 15


def test_the_tab_key() -> None:
    """In an interactive bash the Tab key completes a pod's name, behind an address with colons in it too."""
    command = ("bash", "--norc", "--noprofile", "-i")
    path = f"{COMMAND.parent}:{os.environ['PATH']}"
    with serving(two_pods()) as url, session(command=command, TERM="dumb", PS1="ready> ", PATH=path) as shell:
        shell.wait(lambda screen: "ready>" in screen.usual)
        shell.type('eval "$(_GPU_WATCHDOG_COMPLETE=bash_source gpu-watchdog)"; echo do""ne\n')
        shell.wait(lambda screen: "\ndone" in screen.usual)
        shell.type(f"gpu-watchdog explain --url {url} a/tra\t")
        shell.wait(lambda screen: screen.usual.endswith("a/trainer "))
