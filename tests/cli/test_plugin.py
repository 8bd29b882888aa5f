"""`kubectl gpu-watchdog`: what a real kubectl finds, runs and completes."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.build import serving
from tests.cli.test_complete import two_pods
from tests.rig.command import COMMAND

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
PLUGIN = COMMAND.with_name("kubectl-gpu_watchdog")


def run(kubectl: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """How kubectl ends where the plugin is on the path."""
    own = {"PATH": f"{COMMAND.parent}:{os.environ['PATH']}", "HOME": os.environ["HOME"], **more}
    return subprocess.run([kubectl, *arguments], capture_output=True, text=True, check=False, timeout=60, env=own)


def completed(kubectl: Path, *words: str, **more: str) -> tuple[list[str], str]:
    """What kubectl offers a shell for these words without explanations, and what else the shell is to offer."""
    done = run(kubectl, "__complete", "gpu-watchdog", *words, **more)
    assert done.returncode == 0, done.stderr
    *lines, directive = done.stdout.splitlines()
    return [line.partition("\t")[0] for line in lines], directive


def test_it_is_a_plugin_under_its_name(kubectl: Path) -> None:
    """Kubectl lists one plugin, which is the same program and calls itself as a person has to type it."""
    listed = run(kubectl, "plugin", "list").stdout.splitlines()
    assert [line for line in listed if "watchdog" in line] == [str(PLUGIN)]
    assert run(kubectl, "gpu-watchdog", "top", "--help").stdout.startswith("Usage: kubectl gpu-watchdog top [OPTIONS]")
    refused = run(kubectl, "gpu-watchdog", "tpo")
    assert refused.returncode == 2
    assert "Try 'kubectl gpu-watchdog --help' for help." in refused.stderr
    own = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=True).stdout
    assert run(kubectl, "gpu-watchdog", "--version").stdout == own


def test_it_names_itself_by_its_path_if_kubectl_does_not_find_it(tmp_path: Path) -> None:
    """Called by its path, what it prints can be typed too."""
    other = shutil.copy(PLUGIN, tmp_path)
    done = subprocess.run([other, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"Usage: {other} ")


@pytest.mark.parametrize(
    ("words", "offered", "directive"),
    [
        (("hist",), ["history"], ":4"),
        (("top", "--so"), ["--sort"], ":4"),
        (("top", "--sort", "v"), ["verdict"], ":4"),
        (("check", "conf"), [], ":0"),
        (("replay", "--policy", ""), [], ":0"),
    ],
)
def test_kubectl_completes_it(kubectl: Path, words: tuple[str, ...], offered: list[str], directive: str) -> None:
    """Commands, options and values are completed, and files left to the shell, where they are wanted and only there."""
    assert completed(kubectl, *words) == (offered, directive)


def test_kubectl_completes_pods(kubectl: Path) -> None:
    """The pods of a daemon are completed behind an address with colons, without names that no pod can have."""
    with serving(two_pods()) as url:
        assert completed(kubectl, "explain", "--url", url, "a/tri") == (["a/trial"], ":4")
        assert completed(kubectl, "explain", "", GPU_WATCHDOG_URL=url) == (["a/trainer", "a/trial"], ":4")
