"""NVIDIA's MPS control program: where it is, and one command with its answer.

Commands and answers are those of version 2 of the interface, the default
(https://docs.nvidia.com/deploy/mps/latest/mpsv2-interface.html). The program reads commands from stdin, one per line,
and passes them to the daemon of `CUDA_MPS_PIPE_DIRECTORY`. Its exit status only says whether the daemon was reached; a
rejected command has its error on stdout (nvidia-cuda-mps-control(1)). `terminate_client` answers with the CUDA error
code, 0 if the client's contexts were destroyed.

Version 3 (MPS v3, documented for driver 620; chosen by `--protocol 3` or `CUDA_MPS_PROTOCOL_VERSION` when the daemon is
started) takes modules and verbs as arguments instead: `client list --all --format=csv,noheader`, `client terminate PID`
(https://docs.nvidia.com/deploy/mps/620/mpsv3-interface.html). The program follows the version of the daemon. What it
answers to commands of version 2 is not documented, so anything that is no answer of version 2 counts as invalid.
"""

import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from watchdog.core.assessment import NO_DRAINS, Attribution, KnownDrains
from watchdog.core.errors import Problem
from watchdog.core.mps import is_client
from watchdog.core.policy import Draining, Policy
from watchdog.node.mps_limits import parse_limit
from watchdog.node.mps_pipes import (
    MpsError,
    NoPipeError,
    PipeIdentity,
    SilentError,
    check_listener,
    check_pipe,
    find_pipes,
    no_daemon,
)
from watchdog.node.procfs import Procfs, printable

# Where the driver's programs are if they are not on PATH, in the order of NVML's folders (`node/drivers/devices`).
_FOLDERS: Final = (
    "run/nvidia/driver/usr/bin",
    "usr/local/nvidia/bin",
    "home/kubernetes/bin/nvidia/bin",
    "usr/lib/wsl/lib",
    "usr/bin",
)
_BIN_FOLDERS: Final = ("usr/local/bin", "usr/bin", "usr/sbin", "bin", "sbin")
# The loader of each machine's ABI, and where it would look for libraries.
_LOADERS: Final = {"x86_64": "lib64/ld-linux-x86-64.so.2", "aarch64": "lib/ld-linux-aarch64.so.1"}
_LIBRARIES: Final = ("usr/lib/*-linux-gnu", "usr/lib64", "usr/lib", "lib/*-linux-gnu", "lib64", "lib")
_MOST_LINKS: Final = 40  # as in the kernel (MAXSYMLINKS)
_LONGEST_ANSWER: Final = 65536
_REAP_WITHIN_S: Final = 1.0
_TICK_S: Final = 0.05  # longer than any kernel's tick, of 1 to 10 ms
_NO_DAEMON: Final = "Cannot find MPS control daemon"  # what the program prints if it reaches none
_PROTOCOL: Final = "look into its control.log; a daemon that was started with protocol 3 (MPS v3) can't be used"
_CONTEXT: Final = re.compile(r"(?P<pid>[0-9]{1,7})(?:\.(?P<number>[0-9]{1,10}))?", re.ASCII)
_LARGEST_PID: Final = 2**22  # PID_MAX_LIMIT, include/linux/threads.h


class NoProgramError(MpsError):
    """There is no control program."""


class NotSentError(MpsError):
    """A command was not sent, since it was no longer wanted."""


class InvalidAnswerError(MpsError):
    """The daemon's answer can't be understood."""


def find_program(control: str, root: Path = Path("/")) -> tuple[str, ...]:
    """The command line that runs the control program; NoProgramError if there is none.

    `control` is a path, or a name that is searched on PATH and in the folders of the driver. A program of another root
    file system (the GPU Operator's driver container) is run by the loader of that root with its libraries: those of
    this image may be older.
    """
    candidates = [control] if "/" in control else _candidates(control, root)
    for path in candidates:
        if os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113 - a path object adds nothing here
            return (*_loader(Path(path)), path)
    where = control if "/" in control else f"{control} on PATH and in the driver's folders"
    raise NoProgramError(
        f"there is no MPS control program: {where}",
        "run with NVIDIA's runtime and NVIDIA_DRIVER_CAPABILITIES=compute,utility (in the chart mps.mounts), mount the "
        "driver's root (mps.driverRoot), or name the program's path as `control` under [mps]",
    )


def _candidates(name: str, root: Path) -> Iterator[str]:
    on_path = shutil.which(name)
    if on_path is not None:
        yield on_path
    for folder in _FOLDERS:
        yield str(root / folder / name)


def _loader(program: Path) -> tuple[str, ...]:
    """The loader of the program's own root with its library path; empty if it belongs to this root file system."""
    folder = str(program.parent)
    suffix = next((suffix for suffix in _BIN_FOLDERS if folder.endswith(f"/{suffix}")), None)
    name = _LOADERS.get(os.uname().machine)
    if suffix is None or name is None:
        return ()
    root = Path(folder.removesuffix(suffix))
    loader = root / name
    if root == Path("/") or not os.path.lexists(loader):
        return ()
    folders = (path for pattern in _LIBRARIES for path in sorted(root.glob(pattern)))
    libraries = dict.fromkeys(str(resolve_below(root, folder)) for folder in folders)
    return str(resolve_below(root, loader)), "--library-path", ":".join(libraries)


def resolve_below(root: Path, path: Path) -> Path:
    """The file behind a path below another root, where an absolute link starts at that root (as in chroot(2))."""
    parts = list(path.relative_to(root).parts)
    found, links = root, 0
    while parts:
        part = parts.pop(0)
        if part == "..":
            found = found.parent if found != root else root
            continue
        step = found / part
        if links < _MOST_LINKS and step.is_symlink():
            links += 1
            target = step.readlink()
            found = root if target.is_absolute() else found
            parts[:0] = target.relative_to("/").parts if target.is_absolute() else target.parts
        else:
            found = step
    return found


class ControlDaemon:
    """The control daemon of one trusted pipe. Its calls block; the caller makes one at a time."""

    def __init__(
        self,
        program: Sequence[str],
        pipe: str,
        timeout_s: float,
        trusted_uid: int = 0,
        *,
        procfs: Procfs | None = None,
    ) -> None:
        self.pipe = pipe
        self._program = tuple(program)
        self._procfs = procfs or Procfs()
        self._checked: PipeIdentity | None = None
        self._timeout_s = timeout_s
        self._trusted_uid = trusted_uid
        self._unreaped: subprocess.Popen[bytes] | None = None

    def servers(self) -> tuple[int, ...]:
        """The PIDs of its servers; MpsError if they can't be determined."""
        return self._pids("get_server_list")

    def clients(self, servers: Iterable[int] | None = None) -> dict[int, int]:
        """The PID of the server of each client, of these servers or all; MpsError if they can't be determined."""
        servers = self.servers() if servers is None else servers
        found: dict[int, int] = {}
        for server in servers:
            try:
                found.update(dict.fromkeys(self._pids(f"get_client_list {server}"), server))
            except InvalidAnswerError:
                if server in self.servers():  # a server that has just ended has no list
                    raise
        return found

    def contexts(self, server_pid: int) -> Mapping[int, frozenset[str]]:
        """The numbers of the contexts of each client of a server, "" where a daemon gives none; MpsError.

        A line for each GPU is followed by one for each context on it: `645.1`, the client's PID and a number that
        driver 580 never gives a process again.
        """
        found: dict[int, set[str]] = {}
        lines = self.ask(f"get_device_client_list {server_pid}").splitlines()
        for match in filter(None, map(_CONTEXT.fullmatch, lines)):
            found.setdefault(int(match["pid"]), set()).add(match["number"] or "")
        return {pid: frozenset(numbers) for pid, numbers in found.items()}

    def terminate(self, server_pid: int, client_pid: int, may_send: Callable[[], bool] = lambda: True) -> str:
        """Drain a client; the daemon's answer, `0` if it agreed. NotSentError if `may_send`, called last, says no."""
        return self.ask(f"terminate_client {server_pid} {client_pid}", may_send).strip()

    def limit(self, server_pid: int, device: str) -> int | None:
        """The bytes that a server lets each of its clients pin on a device; None if there is no readable limit.

        Driver 550 only knows devices by their number, and rejects a UUID with a message.
        """
        answer = self.ask(f"get_device_pinned_mem_limit {server_pid} {device}").strip()
        return parse_limit(answer)

    def _pids(self, command: str) -> tuple[int, ...]:
        answer = self.ask(command)
        tokens = answer.split()
        if all(token.isascii() and token.isdigit() and 0 < int(token[:10]) <= _LARGEST_PID for token in tokens):
            return tuple(dict.fromkeys(map(int, tokens)))
        raise InvalidAnswerError(
            f"the MPS control daemon of {self.pipe} answered {command} with {shortened(answer)}, which is no list of "
            "PIDs",
            _PROTOCOL,
        )

    def ask(self, command: str, may_send: Callable[[], bool] = lambda: True) -> str:
        """Send one command and return its answer, checking before and after that the pipe is the trusted one.

        Who listens on a socket never changes, so that is checked once for each socket. Before Linux 6.13 two changes
        within a tick have the same time; once the tick is over, another one would be seen.
        """
        before = check_pipe(self.pipe, self._trusted_uid)
        if before != self._checked:
            time.sleep(_TICK_S)
            check_listener(self.pipe, before, self._procfs, self._trusted_uid)
            self._checked = before
        answer = self._call(command, may_send)
        try:
            is_same = check_pipe(self.pipe, self._trusted_uid) == before
        except MpsError:
            is_same = False
        if not is_same:
            raise SilentError(
                f"the MPS control daemon of {self.pipe} was replaced during {command}", "it is asked again"
            )
        return answer

    def _call(self, command: str, may_send: Callable[[], bool]) -> str:
        if self._unreaped is not None and self._unreaped.poll() is None:
            raise SilentError(
                f"the last call to the MPS control daemon of {self.pipe} was killed and has not ended",
                "the driver may hang: see the kernel log",
            )
        environment = {"CUDA_MPS_PIPE_DIRECTORY": self.pipe, "LC_ALL": "C", "PATH": os.defpath}
        try:
            process = subprocess.Popen(
                self._program,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=environment,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise NoProgramError(
                f"the MPS control program {self._program[-1]} can't be run: {error.strerror}",
                "it must be executable, for this machine, and on a mount without noexec",
            ) from error
        try:
            if not may_send():  # the program runs, so nothing is left to wait for
                raise NotSentError("it was called off, or its last look was too old, before it was sent")
            return self._converse(process, command)
        finally:
            self._end(process)

    def _converse(self, process: "subprocess.Popen[bytes]", command: str) -> str:
        deadline_s = time.monotonic() + self._timeout_s
        assert process.stdin is not None
        try:
            process.stdin.write(f"{command}\n".encode())  # far less than a pipe holds
            process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended, and its exit status says more
        output = self._read(process, command, deadline_s)
        try:
            status = process.wait(max(deadline_s - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            raise self._late(command) from None
        if status != 0:
            ended = f"status {status}" if status > 0 else signal.Signals(-status).name
            if status > 0 and output.strip() and _NO_DAEMON not in output:
                raise InvalidAnswerError(
                    f"{command} to the MPS control daemon of {self.pipe} ended with {ended} and {shortened(output)}",
                    _PROTOCOL,
                )
            raise SilentError(
                f"the MPS control daemon of {self.pipe} was not reached: the control program ended with {ended}"
                + (f" and {shortened(output)}" if output.strip() else ""),
                "check that the daemon runs",
            )
        return output

    def _read(self, process: "subprocess.Popen[bytes]", command: str, deadline_s: float) -> str:
        output = bytearray()
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                if not selector.select(max(deadline_s - time.monotonic(), 0.0)):
                    raise self._late(command)
                part = os.read(process.stdout.fileno(), 8192)
                if not part:
                    return output.decode("utf-8", "replace")
                output += part
                if len(output) > _LONGEST_ANSWER:
                    raise InvalidAnswerError(
                        f"the MPS control daemon of {self.pipe} answered {command} with more than "
                        f"{_LONGEST_ANSWER} bytes",
                        "look into its control.log",
                    )

    def _late(self, command: str) -> SilentError:
        return SilentError(
            f"the MPS control daemon of {self.pipe} did not answer {command} within {self._timeout_s:g}s",
            "look into its control.log, and whether its server hangs",
        )

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill what still runs of the program, and reap it; one that the kernel does not release is kept in mind."""
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # not reaped, so the group is its own
            try:
                process.wait(_REAP_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._unreaped = process


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsInspection:
    """What was found of the control program and its daemons."""

    # Empty: there is none.
    program: str = ""
    # Why there is none.
    no_program: Problem | None = None
    # What is wrong if there is no pipe directory in which a daemon may listen.
    no_daemon: Problem = field(default_factory=lambda: Problem(""))
    # By pipe directory, the number of its clients, why it can't be used, or None if it was not asked.
    daemons: Mapping[str, int | MpsError | None] = field(default_factory=dict)
    # The PIDs of all clients.
    clients: frozenset[int] = frozenset()


def known_drains(policy: Policy, attribution: Attribution) -> KnownDrains:
    """The clients that control daemons can drain now, if any are listed and the policy drains them."""
    listed = {use.key.pid: use.key for use in attribution.attributed if is_client(use)}
    if policy.mps is None or not listed:
        return NO_DRAINS
    named = inspect_mps(policy.mps).clients
    return KnownDrains(drainable=frozenset(key for pid, key in listed.items() if pid in named))


def inspect_mps(settings: Draining, trusted_uid: int = 0) -> MpsInspection:
    """Find the program and the daemons, and ask each daemon for its clients; takes up to the timeout for each."""
    program: tuple[str, ...] = ()
    no_program = None
    try:
        program = find_program(settings.control)
    except NoProgramError as error:
        no_program = error.problem
    daemons: dict[str, int | MpsError | None] = {}
    clients: set[int] = set()
    for pipe in find_pipes(settings.pipe):
        try:
            check_pipe(pipe, trusted_uid)
            daemon = ControlDaemon(program, pipe, settings.timeout_s, trusted_uid)
            named = daemon.clients() if program else None
            daemons[pipe] = None if named is None else len(named)
            clients.update(named or ())
        except NoPipeError:
            continue
        except NoProgramError as error:
            daemons[pipe], no_program = None, error.problem
        except MpsError as error:
            daemons[pipe] = error
    return MpsInspection(
        program=program[-1] if program else "",
        no_program=no_program,
        no_daemon=no_daemon(settings.pipe),
        daemons=daemons,
        clients=frozenset(clients),
    )


def shortened(text: str) -> str:
    """A daemon's answer for a message: one line, printable and short."""
    line = " ".join(text.split())
    return repr(printable(line if len(line) <= 120 else f"{line[:117]}..."))
