"""Puts a world on a real node, runs the command on it, and gives what it said."""

import contextlib
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.golden.capture import Names, explained, keys, metrics, needs, places
from tests.golden.parts import (
    Card,
    Dies,
    Driver,
    Job,
    Kill,
    Marks,
    Passes,
    PodRow,
    Pods,
    Ready,
    Runs,
    Signalled,
    StopFile,
    Told,
    Until,
    Uses,
    World,
    Writes,
)
from tests.rig import Container, Daemon, Node, Pod, Tenant, gpu_watchdog, node
from tests.rig.command import daemon
from tests.rig.record import events
from tests.rig.volume import mount
from tests.stub import GIB, Stub, StubProcess

_LONGEST_S = 60.0


def played(world: World, root: Path) -> dict[str, Any]:
    """What the command says of this world."""
    with node(root, world.version) as made:
        stage = _Stage(world, made)
        return stage.run() if world.actions else stage.scan()


def told(row: Told, root: Path) -> dict[str, Any]:
    """What a command says that needs no node: its exit code, and of each line of stderr its place."""
    file = root / "policy.toml"
    if row.policy is not None:
        file.write_text(row.policy, encoding="utf-8")
    words = [each.replace("POLICY", str(file)).replace("ROOT", str(root)) for each in row.arguments]
    done = gpu_watchdog(*words, stub=Stub().write(root / "nvml.txt"))
    assert "Traceback" not in done.stderr, done.stderr
    found = {"exit": done.returncode, "stderr": places(done.stderr, str(root)), "stdout": bool(done.stdout)}
    return found | ({"needs": needs(done.stdout)} if row.arguments[0] == "rights" else {})


class _Stage:
    def __init__(self, world: World, made: Node) -> None:
        self._world = world
        self._node = made
        self._cards = world.cards
        self._returns = world.returns
        self._pods: dict[str, Pod] = {}
        self._jobs: list[tuple[Job, str, Tenant]] = []
        self._unlisted: dict[str, str] = {}
        self._exits: dict[str, int] = {}
        self._missed: list[str] = []
        for row in world.pods or ():
            self._add(row)
        for each in world.jobs:
            self._start(each)
        self._show_driver()
        if world.pods is not None:
            self._list([row for row in world.pods if row.listed])
        if world.node is not None:
            self._mark(world.node)
        if world.policy is not None:
            mount(self._policy, world.policy)

    @property
    def _policy(self) -> Path:
        return self._node.root / "policy.toml"

    def _add(self, row: PodRow) -> None:
        # Who comes first among equals is decided by UID: they rise with the order in the table.
        uid = f"{len(self._pods):08d}-{os.urandom(2).hex()}-4{os.urandom(1).hex()}a-8aaa-{os.urandom(6).hex()}"
        boxes = [
            Container(
                name=box.name,
                id=os.urandom(32).hex(),
                declared=box.declared,
                resources=box.resources,
                is_new=box.is_new,
                init=box.init,
            )
            for box in row.boxes
        ]
        self._pods[row.name] = Pod(
            name=row.name,
            namespace=row.namespace,
            uid=uid,
            containers=boxes,
            metadata=row.metadata,
            priority=row.priority,
        )

    def _start(self, row: Job) -> None:
        tenant = self._node.start(None, behaviour=row.behaviour, lists=row.lists)
        if row.where:
            path = self._path(row.where)
            self._node.enter(f"{path}/{self._path(row.spoofs)}" if row.spoofs else path, tenant.pid)
        name = row.where or "host"
        count = sum(each == name or each.startswith(f"{name}#") for _, each, _ in self._jobs)
        self._jobs.append((row, f"{name}#{count + 1}" if count else name, tenant))

    def _path(self, where: str) -> str:
        name, _, container = where.partition("/")
        pod = self._pods[name]
        known = next((each for each in pod.containers if each.name == container), None)
        if known is not None:
            return pod.cgroup(known)
        unlisted = self._unlisted.setdefault(where, os.urandom(32).hex())
        return f"kubepods/burstable/pod{pod.uid}/{unlisted}"

    def _show_driver(self) -> None:
        """Only now does the driver know of a change: the file is written at once."""
        cards = [
            replace(
                card,
                processes=tuple(
                    StubProcess(
                        pid=tenant.pid,
                        used=None if (used := row.use[number]) is None else int(used * GIB),
                        lists=row.lists,
                        gi=row.gi,
                        ci=None if row.gi is None else 0,
                    )
                    for row, _, tenant in self._jobs
                    if row.use.get(number, 0) != 0
                ),
            )
            for number, card in enumerate(self._cards)
        ]
        stub = Stub(gpus=tuple(cards), returns=self._returns, free_delay_ms=self._world.free_delay_ms)
        stub.write(self._node.stub_file)

    def _list(self, rows: Sequence[PodRow] | None) -> None:
        text = "{"
        if rows is not None:
            for row in rows:
                self._pods[row.name].metadata = row.metadata
            text = json.dumps(
                {"apiVersion": "v1", "kind": "List", "items": [self._pods[row.name].to_json() for row in rows]}
            )
        scratch = self._node.root / ".pods.json"
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(self._node.pods_file)

    def _mark(self, row: Any) -> None:
        self._node.mark(labels=row.labels, annotations=row.annotations, capacity=row.capacity)

    def _arguments(self) -> list[str | Path]:
        found: list[str | Path] = ["--policy", self._policy] if self._world.policy is not None else []
        found += ["--pods", self._node.pods_file] if self._world.pods is not None else []
        return found + (["--node-object", self._node.node_file] if self._world.node is not None else [])

    @property
    def _names(self) -> Names:
        pids = {tenant.pid: name for _, name, tenant in self._jobs}
        uids = {pod.uid: f"uid-{pod.name}" for pod in self._pods.values()}
        return Names(pids, uids, str(self._node.root))

    def scan(self) -> dict[str, Any]:
        """One look."""
        words = ("scan", "--json", "--node", "n1", *self._arguments())
        done = gpu_watchdog(*words, stub=self._node.stub_file, variant=self._world.variant)
        assert "Traceback" not in done.stderr, done.stderr
        found: dict[str, Any] = {"exit": done.returncode, "stderr": bool(done.stderr), "processes": self._fates()}
        status = json.loads(done.stdout) if done.stdout else {}
        found["status"] = self._names.status(status, exact=True)
        return found | ({"keys": keys(status)} if self._world.keys else {})

    def run(self) -> dict[str, Any]:
        """The daemon, and what is done meanwhile."""
        with contextlib.ExitStack() as stack:
            running = self._begin(stack)
            for action in self._world.actions:
                if isinstance(action, Dies):
                    running.stop(signal.SIGKILL)
                    running = self._begin(stack)
                else:
                    try:
                        self._do(action, running)
                    except AssertionError:
                        self._missed.append(str(action))
                        break
            found = self._said(running)
            found["exit"] = running.stop()[0]
        rows = json.loads(self._ask("history", "--json", "--journal", self._node.journal))
        found["history"] = self._names.history(rows)
        if self._world.explain:
            words = ("explain", self._world.explain, "--json", "--journal", self._node.journal)
            found["explain afterwards"] = explained(json.loads(self._ask(*words)))
        return found

    def _begin(self, stack: contextlib.ExitStack) -> Daemon:
        arguments = (*self._arguments(), "--journal", self._node.journal)
        return stack.enter_context(daemon(self._node.root, self._node.stub_file, *arguments))

    def _ask(self, *words: str | Path) -> str:
        done = gpu_watchdog(*words, stub=self._node.stub_file)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _said(self, running: Daemon) -> dict[str, Any]:
        found: dict[str, Any] = {
            "status": self._names.status(running.status(), exact=False),
            "metrics": metrics(running.metrics()),
            "ready": running.get("/readyz")[0],
            "processes": self._fates(),
        }
        if self._world.explain:
            words = ("explain", self._world.explain, "--json", "--url", f"http://127.0.0.1:{running.port}")
            found["explain"] = explained(json.loads(self._ask(*words)))
        found |= {"commands": self._exits} if self._exits else {}
        return found | ({"waited in vain for": self._missed} if self._missed else {})

    def _fates(self) -> dict[str, str]:
        return {
            name: "alive" if tenant.is_alive else signal.Signals(tenant.ended_by or 0).name
            for _, name, tenant in self._jobs
        }

    def _do(self, action: Kill, running: Daemon) -> None:
        match action:
            case Until(metric, value, labels):
                running.wait(lambda d: _total(d, metric, labels) == value, _LONGEST_S)
            case Passes(count):
                running.wait_passes(count)
            case Ready(code):
                running.wait(lambda d: d.get("/readyz")[0] == code, _LONGEST_S)
            case Signalled(count):
                running.wait(lambda _: len(events(self._node.journal, "signalled")) >= count, _LONGEST_S)
            case Runs(command):
                where = ("--journal", self._node.journal, "--listen", f"127.0.0.1:{running.port}")
                self._exits[command] = gpu_watchdog(command, *where, stub=self._node.stub_file).returncode
            case _:
                self._change(action)

    def _change(self, action: Kill) -> None:
        match action:
            case Uses(where, use):
                amounts = use if not isinstance(use, float | int | None) else {0: use}
                at = next(at for at, (_, name, _) in enumerate(self._jobs) if name == (where or "host"))
                row, name, tenant = self._jobs[at]
                self._jobs[at] = (replace(row, use=amounts), name, tenant)
                self._show_driver()
            case Driver(returns):
                self._returns = returns
                self._show_driver()
            case Card(base):
                self._cards = (replace(self._cards[0], base=int(base * GIB)), *self._cards[1:])
                self._show_driver()
            case Pods(rows):
                self._list(rows)
            case Marks(row):
                self._mark(row)
            case Writes(text):
                mount(self._policy, text)
            case StopFile():
                (self._node.journal.parent / "stop").touch()


def _total(running: Daemon, metric: str, labels: Any) -> float:
    """All samples of this name that have these labels, together."""
    wanted = labels.items()
    return sum(
        value for (name, held), value in running.metrics().items() if name == metric and wanted <= dict(held).items()
    )
