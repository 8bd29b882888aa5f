"""An MPS control daemon for tests, and the program that talks to it (`mps_control.c`).

It answers as the one of driver 580.159 did on an H100: one command at a time; a drained client stays in its lists until
its process ends; draining it again, unless it has made another context, or draining a stopped one, is answered only
once that process has ended or goes on, and nothing else is answered until then.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.node.support import compiled

_PACKET: Final = 4096
_SOURCE: Final = Path(__file__).with_name("mps_control.c")
PROGRAM: Final = "nvidia-cuda-mps-control"
SOCKETS: Final = ("control_privileged", "control")  # in the order in which driver 535's daemon makes them


def build_control(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return compiled(_SOURCE, folder / PROGRAM, "-Wextra")


@dataclass
class MpsDaemon:
    """What a daemon knows and how it answers.

    `servers` has the clients of each server, `contexts` the numbers of a client's contexts, [1] unless given, and
    `destroyed` those that draining has destroyed. `limits` is what `get_device_pinned_mem_limit` answers by device.
    `answers` are answers that replace the usual ones, by the first word of the command. `is_silent`: commands are taken
    and never answered, or those of `silences`. `commands` are all that came, `most_at_once` how many came at the same
    time; `stalled` are the clients that a command had to wait for. `afterwards` is called with each
    client that was drained.
    """

    servers: dict[int, list[int]] = field(default_factory=dict)
    contexts: dict[int, list[int]] = field(default_factory=dict)
    destroyed: dict[int, set[int]] = field(default_factory=dict)
    stalled: list[int] = field(default_factory=list)
    limits: dict[str, str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    is_silent: bool = False
    silences: str = ""
    afterwards: Callable[[int], object] = lambda _: None
    delay: threading.Event | None = None
    commands: list[str] = field(default_factory=list)
    most_at_once: int = 0
    _at_once: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _is_closed: bool = False
    _held: list[socket.socket] = field(default_factory=list)

    @contextlib.contextmanager
    def listen(self, pipe: Path) -> Iterator["MpsDaemon"]:
        """Answer in this pipe directory."""
        pipe.mkdir(parents=True, exist_ok=True)
        folder = os.open(pipe, os.O_PATH)
        listeners = {name: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for name in SOCKETS}
        try:
            for name, listener in listeners.items():
                (pipe / name).unlink(missing_ok=True)
                listener.bind(f"/proc/self/fd/{folder}/{name}")
                listener.listen()
                threading.Thread(target=self._serve, args=(listener,), daemon=True).start()
            yield self
        finally:
            self._is_closed = True
            for name, listener in listeners.items():
                with contextlib.suppress(OSError):
                    listener.shutdown(socket.SHUT_RDWR)
                listener.close()
                (pipe / name).unlink(missing_ok=True)
            os.close(folder)
            for connection in self._held:
                connection.close()

    def _serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection.makefile() as stream:
            for line in stream:
                with self._lock:
                    self._at_once += 1
                    self.most_at_once = max(self.most_at_once, self._at_once)
                self.commands.append(line.strip())
                if self.delay is not None:
                    self.delay.wait()
                is_silent = self.is_silent or line.split()[0] == self.silences
                answer = b"" if is_silent else self.answer(line.split()).encode()
                with self._lock:
                    self._at_once -= 1
                if is_silent:
                    self._held.append(connection)
                    break
                for start in range(0, len(answer), _PACKET):
                    connection.sendall(answer[start : start + _PACKET])
        if connection not in self._held:
            connection.close()

    def answer(self, command: list[str]) -> str:
        if command[0] in self.answers:
            return self.answers[command[0]]
        with self._turn:
            return self._answer(command)

    def _answer(self, command: list[str]) -> str:  # noqa: PLR0911 - one for each command
        match command:
            case ["get_server_list"]:
                return "".join(f"{server}\n" for server in self.servers)
            case ["get_client_list" | "terminate_client" | "get_device_client_list", server, *_] if (
                int(server) not in self.servers
            ):
                return f"Server {server} not found\n"
            case ["get_client_list", server]:
                return "".join(f"{client}\n" for client in self._clients(server))
            case ["get_device_client_list", server]:
                listed = (f"{pid}.{number}\n" for pid in self._clients(server) for number in self._contexts(pid))
                return f"[0] 00:00.0, NVIDIA H100 80GB HBM3\n{''.join(listed)}"
            case ["terminate_client", server, client] if int(client) in self._clients(server):
                return self._terminate(int(client))
            case ["terminate_client", _, client]:
                return f"Invalid process {client}!\n1\n"
            case ["get_device_pinned_mem_limit", _, device]:
                return f"{self.limits[device]}\n" if device in self.limits else ""
        return f'Unknown command "{command[0]}"\n'

    def _clients(self, server: str) -> list[int]:
        return [pid for pid in self.servers[int(server)] if _lives(pid)]

    def _contexts(self, pid: int) -> list[int]:
        return self.contexts.get(pid, [1])

    def _terminate(self, pid: int) -> str:
        numbers = set(self._contexts(pid))
        if numbers <= self.destroyed.get(pid, set()) or _state(Path(f"/proc/{pid}/stat")) == "T":
            self.stalled.append(pid)
            is_stopped = _state(Path(f"/proc/{pid}/stat")) == "T"
            while not self._is_closed and _lives(pid) and (not is_stopped or _state(Path(f"/proc/{pid}/stat")) == "T"):
                time.sleep(0.01)
        self.destroyed[pid] = numbers
        self.afterwards(pid)
        return "0\n"


def _lives(pid: int) -> bool:
    """Whether a thread of a process has not ended."""
    return any(_state(path) not in ("", "Z") for path in Path(f"/proc/{pid}/task").glob("*/stat"))


def _state(path: Path) -> str:
    """The state letter in a `stat` file; empty if there is none."""
    try:
        return path.read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return ""
