"""The command line as a whole: its help, how it names itself, policies from standard input, missing ones, refusals."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from tests.node.support import cannot_run, run_python
from tests.rig.command import COMMAND, gpu_watchdog
from tests.stub import Stub, StubGpu, StubReturn
from watchdog.cli.client import program_name
from watchdog.cli.main import main

SHIPPED: Final = Path(__file__).parents[1] / "config" / "policy.toml"
BEGINNING: Final = "there is no such file; config/policy.toml of the project is a starting point"


@pytest.mark.parametrize("name", ["", *main.commands])
def test_the_help_fits_a_terminal(name: str) -> None:
    """At 80 columns no line is longer, and no command's line is cut off."""
    told = CliRunner().invoke(main, [*([name] if name else []), "--help"], terminal_width=80).output
    assert max(map(len, told.splitlines())) <= 80
    assert name or "..." not in told.partition("Commands:")[2]


def test_a_policy_comes_on_standard_input() -> None:
    """`check -` and `rights --policy -` take a candidate where there is no shell to write a file with."""
    text = SHIPPED.read_text(encoding="utf-8")
    done = CliRunner().invoke(main, ["check", "-", "--json"], input=text)
    assert (done.exit_code, json.loads(done.stdout)["valid"]) == (0, True)
    done = CliRunner().invoke(main, ["rights", "--policy", "-"], input=text)
    assert (done.exit_code, "needs for standard input: docs/rights.md" in done.stdout) == (0, True)
    done = CliRunner().invoke(main, ["check", "-"], input='modes = "observe"\n')
    assert (done.exit_code, done.stderr.startswith("standard input: modes: is not a key")) == (1, True)
    done = CliRunner().invoke(main, ["check", "-"], input="mode = \n")
    assert (done.exit_code, done.stderr.startswith("standard input:1: not TOML: ")) == (1, True)
    done = CliRunner().invoke(main, ["check", "-"], input="#" * 2**21)
    assert (done.exit_code, "is larger than 1 MiB" in done.stderr) == (1, True)


@pytest.mark.parametrize("command", ["--help", f"check {SHIPPED}", "doctor"])
def test_output_that_cannot_be_written(command: str) -> None:
    """A full disk is an error message, and a closed stdout is silence; neither is a traceback."""
    full, closed = (
        subprocess.run(
            ["sh", "-c", f"exec {COMMAND} {command} {to}"], capture_output=True, text=True, timeout=60, check=False
        )
        for to in ("> /dev/full", ">&-")
    )
    assert full.returncode == 1
    assert full.stderr.splitlines()[-1] == "Error: the output can't be written: No space left on device"
    assert "Traceback" not in closed.stderr


@pytest.mark.parametrize("command", [("check", "-"), ("rights", "--policy", "-")])
def test_a_standard_input_that_is_closed(command: tuple[str, ...]) -> None:
    """As cron and some agents start it: a sentence and no traceback."""
    script = f'exec "$0" {" ".join(command)} <&-'
    done = subprocess.run(["sh", "-c", script, COMMAND], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "standard input: it is closed; name a file" in done.stderr) == (1, True)
    assert "Traceback" not in done.stderr


def test_the_daemon_reads_no_policy_from_standard_input(tmp_path: Path) -> None:
    """It reads its policy again when that changes, so it takes a file; with stdout closed it fails in the same way."""
    command = ("run", "--policy", "-", "--journal", str(tmp_path / "journal.db"))
    done = gpu_watchdog(*command, stub=tmp_path / "none")
    assert (done.returncode, done.stderr) == (1, f"-: {BEGINNING}\n")
    closed = ["sh", "-c", 'exec "$0" "$@" >&-', str(COMMAND), *command]
    done = subprocess.run(closed, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, f"-: {BEGINNING}\n")


@pytest.mark.parametrize("arguments", [("run",), ("rights",), ("replay",), ("check", "nowhere.toml")])
def test_a_policy_that_is_missing(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Each command says where a policy comes from; and how to name one, where none was named."""
    if Path("/etc/gpu-watchdog/policy.toml").exists():
        cannot_run("this machine has a policy in the default place")
    done = gpu_watchdog(*arguments, stub=tmp_path / "none")
    first, *more = done.stderr.splitlines()
    assert (done.returncode, first.endswith(BEGINNING)) == (1, True)
    assert more == ([] if arguments[0] == "check" else ["give another path with --policy FILE"])


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_scan_that_saw_nothing_is_no_success(form: tuple[str, ...], tmp_path: Path) -> None:
    """If NVML does not answer, what is known is printed, and the exit code is 1 with the reason."""
    stub = tmp_path / "nvml.txt"
    Stub(gpus=(StubGpu(uuid="GPU-0"),), returns=(StubReturn(call="*", code=9),)).write(stub)
    done = gpu_watchdog("scan", *form, stub=stub)
    assert done.returncode == 1
    assert "Error: nothing is known about the GPUs: nvmlInit: Driver Not Loaded (code 9); " in done.stderr
    assert "Driver Not Loaded" in done.stdout
    Stub(gpus=()).write(stub)
    done = gpu_watchdog("scan", *form, stub=stub)
    assert (done.returncode, "Error" in done.stderr) == (0, False), "a node without GPUs was seen whole"


def test_it_names_itself_as_it_was_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By its name alone where the shell finds it so, else by its path: what it prints can be typed."""
    monkeypatch.setattr(sys, "argv", [str(COMMAND), "demo"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program_name() == str(COMMAND)
    monkeypatch.setenv("PATH", str(COMMAND.parent))
    assert program_name() == "gpu-watchdog"
    other = tmp_path / "a b" / "gpu-watchdog"
    other.parent.mkdir()
    shutil.copy(COMMAND, other)
    monkeypatch.setattr(sys, "argv", [str(other)])
    assert program_name() == f"'{other}'"
    monkeypatch.setattr(sys, "argv", ["/x/watchdog/__main__.py"])
    assert program_name() == f"{sys.executable} -m watchdog"
    monkeypatch.setattr(sys, "argv", ["/x/pytest/__main__.py"])
    assert program_name() == "gpu-watchdog"


def test_the_command_line_alone_loads_little() -> None:
    """`--version` and completion answer at once: neither the policy nor any library but click is loaded for them."""
    code = "import sys, watchdog.cli.main; print(*(name for name in sys.modules if name.startswith('watchdog.')))"
    allowed = ("cli", "cli.main", "cli.options", "core", "core.errors", "options")
    assert set(run_python(code).split()) <= {f"watchdog.{name}" for name in allowed}


def withdraw(*given: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run([COMMAND, "withdraw", *given], capture_output=True, text=True, timeout=60, check=False)


def test_a_selector_goes_with_all_nodes_alone() -> None:
    """A selector beside a single node is refused, so that nobody believes that more nodes were changed."""
    said = withdraw("--node", "n1", "--selector", "pool=a", "--resource", "example.com/vram")
    assert said.returncode == 2
    assert "--selector needs --all-nodes; give a single node with --node" in said.stderr


def test_a_policy_without_the_table_has_no_resource(tmp_path: Path) -> None:
    """Nothing is guessed: without [capacity] the resource has to be named."""
    policy = tmp_path / "policy.toml"
    policy.write_text('mode = "observe"\n', encoding="utf-8")
    said = withdraw("--policy", str(policy), "--all-nodes")
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == f"{policy} has no [capacity] table: give the resource with --resource\n"
