"""The command line as a whole: its help, how it names itself, policies from standard input, missing ones, refusals."""

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from tests.kube import faulty
from tests.kube.test_kubeconfigs import document
from tests.node.support import ENDS_WITH_US, cannot_run, run_python
from tests.ports import free_port
from tests.rig.command import COMMAND, gpu_watchdog
from tests.stub import Stub, StubGpu, StubReturn, environment
from watchdog.cli.main import main
from watchdog.cli.program import program_name

SHIPPED: Final = Path(__file__).parents[2] / "config" / "policy.toml"
BEGINNING: Final = "there is no such file; config/policy.toml of the project is a starting point"


@pytest.mark.parametrize("name", ["", *main.commands])
def test_the_help_fits_a_terminal(name: str) -> None:
    """At 80 columns no line is longer, and no command's line is cut off."""
    printed = CliRunner().invoke(main, [*([name] if name else []), "--help"], terminal_width=80).output
    assert max(map(len, printed.splitlines())) <= 80
    assert name or "..." not in printed.partition("Commands:")[2]


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


def started(
    command: str, to: str = "", *, unbuffered: bool, stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """The end of a command with these redirections of a shell; the interpreter writes at once or keeps a buffer."""
    environ = {**os.environ, "PYTHONUNBUFFERED": "1" if unbuffered else ""}
    script = ["sh", "-c", f"exec {COMMAND} {command} {to}"]
    return subprocess.run(
        script, env=environ, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )


def without_warnings(errors: str) -> list[str]:
    """The lines of stderr besides the warnings that `scan` begins with on a machine without a cluster."""
    return [line for line in errors.splitlines() if not line.startswith("Warning: ")]


# Each way to write: click's help, its echo, JSON, an exit that waits for no thread, a screen. With a buffer, and where
# that makes a difference without one.
WRITING: Final = (
    *(("--help", False), (f"check {SHIPPED}", False), (f"check {SHIPPED} --json", False), ("doctor", False)),
    *((f"scan --policy {SHIPPED}", False), ("demo", False), ("--help", True), ("demo", True)),
)


@pytest.mark.parametrize(("command", "unbuffered"), WRITING)
def test_output_that_cannot_be_written(command: str, unbuffered: bool) -> None:
    """A full disk is an error message of ours and exit code 1, whether the interpreter keeps a buffer or not."""
    full = started(command, "> /dev/full", unbuffered=unbuffered)
    assert (full.returncode, without_warnings(full.stderr)) == (
        1,
        ["Error: the output can't be written: No space left on device"],
    )


@pytest.mark.parametrize(("command", "unbuffered"), WRITING)
def test_output_that_nobody_reads(command: str, unbuffered: bool) -> None:
    """A pipe whose reader has gone, as with `| head`, is exit code 1 without a word about it."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = started(command, unbuffered=unbuffered, stdout=writer)
    finally:
        os.close(writer)
    assert (done.returncode, without_warnings(done.stderr)) == (1, [])


@pytest.mark.parametrize("command", ["--help", f"check {SHIPPED}", "doctor"])
def test_a_stdout_that_is_closed(command: str) -> None:
    """As some agents start a command: nothing is written, and that is no error."""
    closed, discarded = (started(command, to, unbuffered=False) for to in (">&-", "> /dev/null"))
    assert (closed.returncode, closed.stderr) == (discarded.returncode, discarded.stderr)


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("to", ["2> /dev/full", "2>&-"])
@pytest.mark.parametrize(
    "command", ["check /nowhere.toml", "run --policy /nowhere.toml", "top --url http://127.0.0.1:1"]
)
def test_errors_that_cannot_be_written(command: str, to: str, unbuffered: bool) -> None:
    """The exit code alone says that a command failed, where its message can't be written."""
    done = started(command, to, unbuffered=unbuffered)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


def test_no_private_key_stays_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The official client writes a kubeconfig's key to a file, which goes also where the end can't be written."""
    pair = faulty.authority().client("nobody", "nobody")
    data = {
        f"{name}-data": base64.b64encode(file.read_bytes()).decode()
        for name, file in (("client-certificate", pair.certificate), ("client-key", pair.key))
    }
    (tmp_path / "config").write_text(json.dumps(document(data)), encoding="utf-8")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    for to in ("", "2> /dev/full"):
        done = started(f"top --cluster --once --kubeconfig {tmp_path / 'config'}", to, unbuffered=False)
        assert (done.returncode, bool(done.stderr)) == (1, not to)
        assert [*(tmp_path / "temporary").iterdir()] == []


@pytest.mark.slow
@pytest.mark.parametrize("to", ["2> /dev/full", "2>&-"])
def test_a_daemon_whose_log_cannot_be_written(to: str, tmp_path: Path) -> None:
    """It works without a log, and SIGTERM still ends it with exit code 0."""
    Stub(gpus=(StubGpu(uuid="GPU-0"),)).write(stub := tmp_path / "nvml.txt")
    journal, listen = tmp_path / "journal.db", f"127.0.0.1:{free_port()}"
    options = f"--policy {SHIPPED} --journal {journal} --listen {listen}"
    environ = {**environment(stub), "PYTHONUNBUFFERED": ""}
    command = [*ENDS_WITH_US, "sh", "-c", f"exec {COMMAND} run {options} {to}"]
    with subprocess.Popen(command, env=environ) as process:
        while started(f"top --once --url http://{listen}", unbuffered=False).returncode != 0:
            assert process.poll() is None
        process.terminate()
        assert process.wait(timeout=60) == 0


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
    allowed = ("cli", "cli.elsewhere", "cli.main", "cli.options", "cli.program", "core", "core.errors", "options")
    assert set(run_python(code).split()) <= {f"watchdog.{name}" for name in allowed}


def withdraw(*given: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run([COMMAND, "withdraw", *given], capture_output=True, text=True, timeout=60, check=False)


def test_a_selector_goes_with_all_nodes_alone() -> None:
    """A selector beside a single node is refused, so that nobody believes that more nodes were changed."""
    reported = withdraw("--node", "n1", "--selector", "pool=a", "--resource", "example.com/vram")
    assert reported.returncode == 2
    assert "--selector needs --all-nodes; give a single node with --node" in reported.stderr


def test_a_policy_without_the_table_has_no_resource(tmp_path: Path) -> None:
    """Nothing is guessed: without [capacity] the resource has to be named."""
    policy = tmp_path / "policy.toml"
    policy.write_text('mode = "observe"\n', encoding="utf-8")
    reported = withdraw("--policy", str(policy), "--all-nodes")
    assert (reported.returncode, reported.stdout) == (1, "")
    assert reported.stderr == f"{policy} has no [capacity] table: give the resource with --resource\n"
