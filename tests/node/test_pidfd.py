"""Processes held by a pidfd, or known by their start time."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable

import pytest

from tests.node.support import DEAD_LEADER, need_root, python, refusing, run_python, sleeper, wait_until
from watchdog.core.model import ProcessKey
from watchdog.node.process import BriefHandle, Handle, PidfdHandle, TicksHandle, open_pidfd, pidfd_supported, poll_dead
from watchdog.node.procfs import Procfs

PROCFS = Procfs()


def by_pidfd(pid: int) -> Handle:
    fd = open_pidfd(pid)
    return PidfdHandle(ProcessKey(pid=pid, start_ticks=PROCFS.stat(pid).start_ticks), fd)


def by_ticks(pid: int) -> Handle:
    key = ProcessKey(pid=pid, start_ticks=PROCFS.stat(pid).start_ticks)

    def still_same() -> bool:
        try:
            stat = PROCFS.stat(pid)
        except ProcessLookupError:
            return False
        return stat.start_ticks == key.start_ticks and stat.state != "Z"

    return TicksHandle(key, still_same)


def by_turns(pid: int) -> Handle:
    return BriefHandle(PROCFS, ProcessKey(pid=pid, start_ticks=PROCFS.stat(pid).start_ticks))


each_way = pytest.mark.parametrize("hold", [by_pidfd, by_ticks, by_turns])


@each_way
def test_signal_reaches_the_process(hold: Callable[[int], Handle]) -> None:
    """Point 11: a process is signalled through what holds it, and is seen to end, as a zombie already."""
    with sleeper() as process:
        handle = hold(process.pid)
        handle.signal(0)
        assert handle.alive()
        handle.signal(signal.SIGTERM)
        wait_until(lambda: not handle.alive())
        with pytest.raises(ProcessLookupError):
            handle.signal(0)
        assert process.wait() == -signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            handle.signal(signal.SIGKILL)
        handle.close()
        handle.close()


@each_way
def test_closed_handle_signals_nobody(hold: Callable[[int], Handle]) -> None:
    """A handle that was closed reaches no process, even if its descriptor's number is in use again."""
    with sleeper() as process, sleeper() as other:
        handle = hold(process.pid)
        handle.close()
        fd = open_pidfd(other.pid)
        assert not handle.alive()
        with pytest.raises(ProcessLookupError):
            handle.signal(signal.SIGKILL)
        os.close(fd)
        assert process.poll() is None
        assert other.poll() is None


@pytest.mark.parametrize("pid_of", [lambda: -1, lambda: 0, lambda: 1, os.getpid], ids=["all", "group", "init", "self"])
def test_never_init_nor_oneself(pid_of: Callable[[], int]) -> None:
    """Law 4, "It never goes to PID 0 or 1, to the daemon itself": they can't even be held to be signalled."""
    key = ProcessKey(pid=pid_of(), start_ticks=1)
    with pytest.raises(ValueError, match="never signalled"):
        PidfdHandle(key, -1)
    with pytest.raises(ValueError, match="never signalled"):
        TicksHandle(key, lambda: True)
    with pytest.raises(ValueError, match="never signalled"):
        BriefHandle(PROCFS, key)


@pytest.mark.node
def test_signal_without_the_right() -> None:
    """A process of another user is a PermissionError, by pidfd and without, and goes on."""
    need_root()
    with sleeper() as process:
        code = f"""
            import os
            from tests.node.test_pidfd import by_pidfd, by_ticks, by_turns
            handles = [hold({process.pid}) for hold in (by_pidfd, by_ticks, by_turns)]
            os.setgroups([]); os.setgid(65534); os.setuid(65534)
            for handle in handles:
                try:
                    handle.signal(15)
                except PermissionError:
                    print("refused", handle.alive())
        """
        assert run_python(code).split("\n") == ["refused True"] * 3 + [""]
        assert process.poll() is None


@pytest.mark.parametrize("hold", [by_pidfd, by_turns])
def test_dead_leader_is_alive(hold: Callable[[int], Handle]) -> None:
    """A process whose leader has ended lives as long as one of its threads does."""
    with python(DEAD_LEADER) as process:
        handle = hold(process.pid)
        wait_until(lambda: PROCFS.stat(process.pid).state == "Z")
        assert handle.alive()
        handle.signal(signal.SIGKILL)
        wait_until(lambda: not handle.alive())
        handle.close()


def test_held_by_turns_it_is_the_same_process_or_none() -> None:
    """Law 4: a process that has the PID of the one that was read, and another start time, is never signalled."""
    with sleeper() as process:
        start_ticks = PROCFS.stat(process.pid).start_ticks
        other = BriefHandle(PROCFS, ProcessKey(pid=process.pid, start_ticks=start_ticks - 1))
        assert not other.alive()
        with pytest.raises(ProcessLookupError):
            other.signal(signal.SIGKILL)
        assert process.poll() is None


def test_held_by_turns_without_a_descriptor_nothing_has_ended() -> None:
    """What can't be seen now is not taken for ended, and no signal is sent unseen; it is later."""
    code = """
        import os, resource
        from tests.node.support import sleeper
        from tests.node.test_pidfd import by_turns
        with sleeper() as process:
            handle = by_turns(process.pid)
            handle.alive()
            before = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
            try:
                handle.signal(9)
            except BlockingIOError:
                print("not now", handle.alive())
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            handle.signal(9)
            print(process.wait(), handle.alive())
    """
    assert run_python(code).splitlines() == ["not now True", "-9 False"]


def test_poll_finds_the_dead() -> None:
    """One poll over all pidfds finds exactly those whose process has ended, reaped or not."""
    with sleeper() as one, sleeper() as two, sleeper() as three:
        fds = {process: open_pidfd(process.pid) for process in (one, two, three)}
        assert poll_dead(fds.values()) == set()
        two.kill()
        three.kill()
        three.wait()
        wait_until(lambda: poll_dead(fds.values()) == {fds[two], fds[three]})
        for fd in fds.values():
            os.close(fd)
    assert poll_dead(()) == set()


def test_no_process_has_that_number() -> None:
    """A number without a process is gone, also one that is a thread's or beyond what the kernel counts."""
    process = subprocess.Popen(["true"])
    process.wait()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        for pid in (process.pid, thread.native_id, -1, 0, 2**22 + 1, 2**31, 2**70):
            assert pid is not None
            with pytest.raises(ProcessLookupError):
                open_pidfd(pid)
    finally:
        stop.set()
        thread.join()


def test_supported() -> None:
    """The pidfd calls work where these tests run."""
    assert pidfd_supported() is None


@pytest.mark.parametrize(
    ("number", "error", "reason"),
    [
        (434, "EPERM", "pidfd_open: not permitted; use a seccomp profile"),
        (434, "ENOSYS", "pidfd_open: the kernel does not have it; Linux 5.3"),
        (424, "EPERM", "pidfd_send_signal: not permitted; use a seccomp profile"),
        (424, "EIO", "pidfd_send_signal: Input/output error"),
    ],
)
def test_not_supported(number: int, error: str, reason: str) -> None:
    """A sandbox or kernel without one of the two calls is found out at start, with the remedy."""
    code = refusing(number, error)
    assert run_python(
        f"{code}\nfrom watchdog.node.process import pidfd_supported; print(pidfd_supported())"
    ).startswith(reason)


def test_descriptor_limit() -> None:
    """The soft limit of open files is raised to the hard one."""
    code = """
        import resource
        from watchdog.node.process import raise_descriptor_limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 300))
        print(raise_descriptor_limit(), resource.getrlimit(resource.RLIMIT_NOFILE), raise_descriptor_limit())
    """
    assert run_python(code) == "300 (300, 300) 300\n"
