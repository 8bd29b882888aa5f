"""`gpu-watchdog withdraw` without a cluster: what it refuses before its first request."""

import subprocess
from pathlib import Path

from tests.rig.command import COMMAND


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
