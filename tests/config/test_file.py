"""The policy file: as a child process loads it for the daemon, and when it has settled after a change."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.node.support import run_python, wait_until
from tests.rig.volume import mount
from watchdog.config.load import PolicyError, load_in_child, load_policy
from watchdog.config.watch import PolicyFile
from watchdog.core.model import Now

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


@pytest.mark.parametrize("path", [WHOLE, SHIPPED], ids=lambda path: path.name)
def test_the_validation_is_not_kept_in_memory(path: Path) -> None:
    """The daemon that runs has neither the validation library nor the rules of a policy's form in its memory.

    The hours of a rule, which only one of the two has, come with their time zone.
    """
    code = f"""
        import sys
        from pathlib import Path
        from watchdog.cli.run import _load
        rules = _load(Path({str(path)!r})).rules
        assert rules
        assert all(rule.active.next_change_s(0.0) > 0.0 for rule in rules if rule.active is not None)
        unwanted = ("attr", "attrs", "cattrs", "watchdog.config.checks", "watchdog.config.document")
        print([name for name in unwanted if name in sys.modules])
    """
    assert run_python(code) == "[]\n"


_OBSERVES: Final = 'mode = "observe"\n'
_ENFORCES: Final = 'mode = "enforce"\n'


def at(second: float, *, wall_s: float = 0.0) -> Now:
    """The moment this many seconds after the test began by CLOCK_BOOTTIME; the wall clock must not matter."""
    return Now(boottime_s=1000.0 + second, wall_s=wall_s, boot_id="b")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A policy that has just been written."""
    file = tmp_path / "policy.toml"
    file.write_text(_OBSERVES, encoding="utf-8")
    return file


def loaded(path: Path) -> PolicyFile:
    """The file after it has been loaded."""
    file = PolicyFile(path)
    file.load()
    return file


def seen(file: PolicyFile, second: float) -> tuple[bool, bool]:
    """Whether it can be loaded, and whether enforcement is held, at this moment."""
    file.check(at(second))
    return file.is_ready, file.holds


def test_a_file_written_in_place_settles_three_seconds_after_its_last_change(path: Path) -> None:
    """Point 20: each change, of whatever, starts the three seconds of CLOCK_BOOTTIME again, and nothing is loaded."""
    file = loaded(path)
    assert seen(file, 0) == (False, False)
    path.write_text(_ENFORCES, encoding="utf-8")
    assert seen(file, 1) == (False, True)
    assert seen(file, 3.9) == (False, True)
    os.utime(path, (1, 1))
    assert seen(file, 4) == (False, True)
    assert seen(file, 6.9) == (False, True)
    assert seen(file, 7) == (True, True)
    assert file.load().mode == "enforce"
    assert seen(file, 7.1) == (False, False)


def test_a_file_that_is_held_open_for_writing_has_not_settled(path: Path) -> None:
    """Point 20: a writer may be pausing, however long nothing has changed; one that only reads is none."""
    file = loaded(path)
    with path.open("a", encoding="utf-8") as writer, path.open(encoding="utf-8"):
        writer.write(_ENFORCES)
        writer.flush()
        assert [seen(file, second) for second in (0, 10, 59)] == [(False, True)] * 3
    with path.open(encoding="utf-8"):
        assert seen(file, 59) == (True, True)


def test_enforcement_is_held_for_a_minute_and_the_file_stays_reported(path: Path) -> None:
    """Point 20: a file that never settles can't keep enforcement off for longer than 60 s after its first change."""
    file = loaded(path)
    for second in range(0, 60, 2):
        os.utime(path, (second, second))
        assert (seen(file, second), file.problem) == ((False, True), "")
    os.utime(path, (60, 60))
    assert seen(file, 60) == (False, False)
    assert "is still being written after 1m, and the current policy stays" in file.problem
    os.utime(path, (70, 70))
    assert seen(file, 500) == (False, False)
    assert "is still being written" in file.problem
    assert seen(file, 503) == (True, False)
    file.load()
    assert (seen(file, 504), file.problem) == ((False, False), "")


def test_time_without_a_check_does_not_end_the_minute(path: Path) -> None:
    """Point 20: a node that was suspended while its policy was being written is held for as long as any other."""
    file = loaded(path)
    os.utime(path, (1, 1))
    assert seen(file, 0) == (False, True)
    os.utime(path, (2, 2))
    assert seen(file, 3600) == (False, True)
    for second in range(3600, 3657, 2):
        os.utime(path, (second, second))
        assert seen(file, second) == (False, True)
    os.utime(path, (3, 3))
    assert seen(file, 3657) == (False, False)


def test_a_swapped_configmap_is_complete(path: Path) -> None:
    """Point 20: the kubelet swaps `..data` when all is written, so nothing is waited for, not even at startup."""
    file = PolicyFile(mount(path, _OBSERVES))
    file.begin(at(0, wall_s=path.stat().st_mtime))
    assert seen(file, 0) == (False, False)
    mount(path, _ENFORCES)
    assert seen(file, 1) == (True, True)
    assert file.load().mode == "enforce"
    assert seen(file, 1) == (False, False)


@pytest.mark.parametrize("how", ["written in place", "another link"])
def test_only_the_kubelets_swap_comes_last(path: Path, tmp_path: Path, how: str) -> None:
    """Point 20: what is written behind its link, or where a link of another name leads, has to settle."""
    link = mount(path, _OBSERVES)
    if how == "another link":
        link = tmp_path / "link.toml"
        link.symlink_to(path)
    file = loaded(link)
    if how == "written in place":
        path.write_text(_ENFORCES, encoding="utf-8")
    else:
        (tmp_path / "other.toml").write_text(_ENFORCES, encoding="utf-8")
        link.unlink()
        link.symlink_to(tmp_path / "other.toml")
    assert [seen(file, second) for second in (0, 2.9, 3)] == [(False, True), (False, True), (True, True)]


@pytest.mark.parametrize(("age_s", "settled"), [(-5.0, False), (0.0, False), (2.9, False), (3.1, True)])
def test_at_startup_a_file_that_is_older_than_the_settling_time_need_not_wait(
    path: Path, age_s: float, settled: bool
) -> None:
    """Point 20: a younger one, and one from the future, waits for three seconds of our clock, and so does enforcement.

    Its age is by the kernel's own time: `cp -p` and `rsync -t` set the other one.
    """
    os.utime(path, (1, 1))
    file = PolicyFile(path)
    file.begin(at(0, wall_s=path.stat().st_ctime + age_s))
    assert (file.has_settled, file.holds) == (settled, not settled)
    assert seen(file, 0) == (False, not settled)
    assert seen(file, 3) == (not settled, not settled)


def test_nothing_is_enforced_by_a_policy_that_has_never_settled(path: Path) -> None:
    """Point 20: at startup there is no other policy to go on with after 60 s; that it waits is reported then."""
    file = PolicyFile(path)
    with path.open("a", encoding="utf-8"):
        file.begin(at(0, wall_s=path.stat().st_ctime + 100))
        assert all(seen(file, second) == (False, True) for second in range(0, 62, 2))
        assert "no action is taken" in file.problem
        file.load()  # SIGHUP
    assert (seen(file, 201), file.problem) == ((False, False), "")


@pytest.mark.parametrize("text", ["mode = \n", None])
def test_a_version_that_never_settled_is_not_what_an_invalid_one_leaves_in_effect(path: Path, text: str | None) -> None:
    """Point 20: half of a policy, read at startup, enforces nothing once the whole has turned out wrong, or is gone."""
    file = PolicyFile(path)
    file.begin(at(0, wall_s=path.stat().st_ctime))
    path.unlink()
    if text is not None:
        path.write_text(text, encoding="utf-8")
    assert [seen(file, second) for second in (0, 3)] == [(False, True), (True, True)]
    with pytest.raises(PolicyError):
        file.load()
    assert [(*seen(file, second), file.has_settled) for second in (4, 100)] == [(False, True, False)] * 2
    path.write_text(_ENFORCES, encoding="utf-8")
    assert [seen(file, second) for second in (101, 104)] == [(False, True), (True, True)]
    file.load()
    assert (*seen(file, 105), file.has_settled) == (False, False, True)


def test_a_file_that_has_gone_is_refused_once_it_has_been_gone_for_a_while(path: Path) -> None:
    """A file that is moved away before another is moved there is no mistake; one that stays away is, once."""
    file = loaded(path)
    path.unlink()
    assert [seen(file, second) for second in (0, 2, 3)] == [(False, True), (False, True), (True, True)]
    with pytest.raises(PolicyError):
        file.load()
    assert seen(file, 4) == (False, False)
    path.write_text(_OBSERVES, encoding="utf-8")
    assert [seen(file, second) for second in (5, 8)] == [(False, True), (True, True)]


_CROWD: Final = """
import os, sys
from pathlib import Path
from watchdog.config.watch import PolicyFile
from watchdog.core.model import Now
path = Path(sys.argv[1])
file = PolicyFile(path, settling_s=0)
file.load()
path.write_text('mode = "enforce"')
child = os.fork()
if not child:
    for _ in range(20000):
        os.close(os.open(path, os.O_WRONLY))
    os._exit(0)
while os.waitpid(child, os.WNOHANG) == (0, 0):
    file.check(Now(boottime_s=1.0, wall_s=0.0, boot_id="b"))
print("alive")
"""


def test_opening_the_file_at_that_moment_ends_no_process(path: Path) -> None:
    """A lease that is broken sends SIGIO, which ends a process that does not expect it."""
    done = subprocess.run([sys.executable, "-c", _CROWD, path], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
