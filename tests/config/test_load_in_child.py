"""The policy as a child process loads it: what the daemon gets, and what it does not keep."""

import os
import signal
from pathlib import Path
from typing import Final

import pytest

from tests.node.support import run_python, wait_until
from watchdog.config.load import PolicyError, load_in_child, load_policy

WHOLE: Final = Path(__file__).with_name("whole.toml")
SHIPPED: Final = Path(__file__).parents[2] / "config" / "policy.toml"


@pytest.mark.parametrize("path", [WHOLE, SHIPPED], ids=lambda path: path.name)
def test_it_is_the_same_policy(path: Path) -> None:
    """Every value comes through the pipe as it was validated."""
    assert load_in_child(path)() == load_policy(path)


@pytest.mark.parametrize("text", [None, "mode = \n", 'mode = "x"\n[[rule]]\nname = 1\n'])
def test_it_has_the_same_mistakes(text: str | None, tmp_path: Path) -> None:
    """A file that is missing, no TOML, or wrong in several places is reported as by `check`."""
    path = tmp_path / "policy.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(PolicyError) as here:
        load_policy(path)
    with pytest.raises(PolicyError) as there:
        load_in_child(path)()
    assert (there.value.problems, str(there.value)) == (here.value.problems, str(here.value))


@pytest.mark.parametrize("is_writing", [False, True])
def test_a_child_that_is_killed_costs_nothing_but_memory(tmp_path: Path, *, is_writing: bool) -> None:
    """If something ends it, the OOM killer say, the policy is loaded in the daemon itself.

    That may be while it writes a policy that does not fit into the pipe at once.
    """
    path = tmp_path / "policy.toml"
    rules = (f'[[rule]]\nname = "rule {number}"\nmatch = {{}}\n' for number in range(2000 if is_writing else 1))
    path.write_text("".join(rules), encoding="utf-8")
    wait = load_in_child(path)
    child = int(Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()[-1])
    stat = Path(f"/proc/{child}/stat")
    wait_until(lambda: not is_writing or stat.read_text(encoding="ascii").rpartition(")")[2].split()[0] == "S")
    os.kill(child, signal.SIGKILL)
    assert wait() == load_policy(path)


def test_it_starts_where_the_ends_of_children_are_ignored() -> None:
    """SIGCHLD may be ignored by what starts it, which is inherited; then there is no child to wait for."""
    code = f"""
        from pathlib import Path
        from watchdog.config.load import load_in_child
        print(len(load_in_child(Path({str(SHIPPED)!r}))().rules))
    """
    assert int(run_python(code, "env", "--ignore-signal=CHLD")) > 0


def test_the_validation_is_not_kept_in_memory() -> None:
    """The daemon that runs has neither the validation library nor the rules of a policy's form in its memory."""
    code = f"""
        import sys
        from pathlib import Path
        from watchdog.cli.run import _load
        assert _load(Path({str(SHIPPED)!r})).rules
        unwanted = ("attr", "attrs", "cattrs", "watchdog.config.checks", "watchdog.config.document")
        print([name for name in unwanted if name in sys.modules])
    """
    assert run_python(code) == "[]\n"
