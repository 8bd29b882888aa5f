"""An MPS control daemon for tests, and the program that talks to it (`mps_control.c`)."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
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

    `servers` has the clients of each server, `limits` what `get_device_pinned_mem_limit` answers by device. `answers`
    are answers that replace the usual ones, by the first word of the command. `is_silent`: commands are taken and never
    answered. `commands` are all that came, `most_at_once` how many came at the same time.
    """

    servers: dict[int, list[int]] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    is_silent: bool = False
    delay: threading.Event | None = None
    commands: list[str] = field(default_factory=list)
    most_at_once: int = 0
    _at_once: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
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
                answer = b"" if self.is_silent else self.answer(line.split()).encode()
                with self._lock:
                    self._at_once -= 1
                if self.is_silent:
                    self._held.append(connection)
                    break
                for start in range(0, len(answer), _PACKET):
                    connection.sendall(answer[start : start + _PACKET])
        if connection not in self._held:
            connection.close()

    def answer(self, command: list[str]) -> str:
        if command[0] in self.answers:
            return self.answers[command[0]]
        match command:
            case ["get_server_list"]:
                return "".join(f"{server}\n" for server in self.servers)
            case ["get_client_list", server]:
                return "".join(f"{client}\n" for client in self.servers.get(int(server), []))
            case ["terminate_client", server, client] if int(client) in self.servers.get(int(server), []):
                self.servers[int(server)].remove(int(client))
                return "0\n"
            case ["get_device_pinned_mem_limit", _, device] if device in self.limits:
                return f"{self.limits[device]}\n"
        return "Invalid command or argument\n"
