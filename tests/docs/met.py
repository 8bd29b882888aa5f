"""Texts of policies, files, processes, drivers and addresses that people really meet, each made by what causes it."""

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pynvml
from click.testing import CliRunner

from tests.config.broken import read_broken
from tests.config.test_policy_warnings import test_what_is_hardly_meant_is_warned_of as warned_of
from tests.export.build import NOTEBOOKS, Story, policy, trainer
from tests.kube.objects import Object, list_of
from tests.worlds import NODE, at, container_id, process, snapshot, use
from watchdog.cli.group import main
from watchdog.config.load import load_policy, parse_policy
from watchdog.config.problems import PolicyError
from watchdog.core.model import Gap, GapReason
from watchdog.core.policy import Match
from watchdog.core.rules import rule_of
from watchdog.core.unlisted import overdue_gaps
from watchdog.cycle.late import outdated
from watchdog.export.journal_errors import explain_os
from watchdog.export.listen import explain
from watchdog.export.lock import NodeLock
from watchdog.kube.files.namespacefile import NamespaceFile
from watchdog.kube.files.nodefile import NodeFile
from watchdog.kube.files.podfile import PodFile
from watchdog.kube.objects.pods import parse_pods
from watchdog.node.driver import DriverReading, let_go
from watchdog.node.nvml_errors import NvmlCallError
from watchdog.node.troubles import HIDDEN, NO_DESCRIPTOR, Troubles, describe_error

# These come from NVML alone: tests/node has them from a driver.
BY_THE_DRIVER: Final = frozenset(
    {
        *(GapReason.NVML_UNAVAILABLE, GapReason.GPU_LOST, GapReason.GPU_ERROR, GapReason.PROCESSES),
        *(GapReason.CONTRADICTION, GapReason.MIG, GapReason.MEMORY, GapReason.PROCESS_MEMORY),
    }
)
_SPOILT: Final = (b"", b"{", b"[]", b'{"kind": "Service"}', b'{"kind": "List", "items": [{"metadata": 5}]}')
_PLACE: Final = re.compile(r"\A(?:(?:[\w\[\].]+|/dev/null/x): |Invalid value for [^:]*(?:: '\w+'\))?: )")
_ERRNOS: Final = (errno.EACCES, errno.EMFILE, errno.EIO, errno.ENAMETOOLONG, errno.ENOENT)
_WRONG_USE: Final = (
    ("scan", "--policy", "/dev/null/x"),
    ("run", "--listen", "nowhere"),
    ("run", "--listen", "::1:9"),
    ("history", "--pod", "x"),
    ("history", "--since", "x"),
    ("history", "--journal", "/nowhere/journal.db"),
    ("explain", "x"),
    ("explain", "a/b", "--url", "ftp://x"),
    ("explain", "a/b", "--url", "http://[x"),
    ("explain", "a/b", "--url", "http://127.0.0.1:9", "--journal", "/nowhere/journal.db"),
    ("explain", "a/b", "--url", "http://127.0.0.1:9"),
    ("stop", "--journal", "/nowhere/journal.db"),
    ("stop", "--stop-file", "/dev/null/stop"),
    ("resume", "--stop-file", "/dev"),
)


def mistakes(folder: Path) -> Iterator[str]:
    """What is wrong with each of the broken policies, and with files that are none."""
    for case in read_broken():
        yield from _refused(case.text)
    for name, content in (("bom", b"\xef\xbb\xbf"), ("nul", b"a = 1\0"), ("latin", b"\xff"), ("huge", b"#" * 2**21)):
        (folder / name).write_bytes(content)
    os.mkfifo(folder / "pipe")
    for name in ("bom", "nul", "latin", "huge", "pipe", "absent", "."):
        try:
            load_policy(folder / name)
        except PolicyError as error:
            yield from (problem.what for problem in error.problems)


def _refused(text: str) -> Iterator[str]:
    try:
        parse_policy(text, "policy.toml")
    except PolicyError as error:
        yield from (problem.what for problem in error.problems)


def warnings() -> Iterator[str]:
    """What policies that are hardly meant are warned of, without the place."""
    (mark,) = warned_of.pytestmark  # type: ignore[attr-defined]
    for text, _ in mark.args[1]:
        yield from (_PLACE.sub("", warning) for warning in parse_policy(text, "policy.toml").warnings)


def gaps(folder: Path) -> Iterator[Gap]:
    """What can't be learned of files, processes, the driver and rules."""
    at_first = at(0)
    for number, content in enumerate(_SPOILT):
        path = folder / f"spoilt-{number}.json"
        path.write_bytes(content)
        yield from PodFile(path).read(at_first).gaps
        yield from NodeFile(path, "n1").read(at_first)[1]
        yield from NamespaceFile(path).read(at_first)[1]
    yield from PodFile(folder / "absent").read(at_first).gaps
    first, second = (_pod_object(name) for name in "pq")
    yield from parse_pods(list_of(first, second))[1]
    (folder / "other.json").write_bytes(list_of(_pod_object("p", nodeName="n2")))
    yield from PodFile(folder / "other.json", "n1").read(at_first).gaps
    yield from _process_gaps()
    yield from outdated(DriverReading(driver=None), 40.0).gaps
    yield from let_go("the node's label nvidia.com/mig.config.state is pending").gaps
    for match in (Match(node_labels={"a": "b"}), Match(namespace_labels={"a": "b"})):
        under = policy(replace(NOTEBOOKS, match=match))
        found = rule_of(trainer(), under, replace(NODE, known=False), {})
        assert isinstance(found, Gap)
        yield found
    new = snapshot([use(1, 1)], [process(1, "u1/new")])
    late = frozenset({("u1", container_id("u1/new"))})
    yield from overdue_gaps(Story().see(new).assessments, late)


def _pod_object(name: str, **spec: str) -> Object:
    return {"metadata": {"name": name, "namespace": "a", "uid": "u"}, "spec": {"containers": [], **spec}}


def _process_gaps() -> Iterator[Gap]:
    troubles = Troubles()
    for number, code in enumerate(_ERRNOS):
        troubles.add(number, describe_error(OSError(code, os.strerror(code)), GapReason.CGROUP))
    troubles.add(7, HIDDEN)
    troubles.add(8, NO_DESCRIPTOR)
    yield from troubles.gaps()


def driver_errors() -> Iterator[str]:
    """What every return code of NVML is told as."""
    codes = [value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")]
    yield from (NvmlCallError("nvmlDeviceGetMemoryInfo_v2", code).why for code in codes)


def wrong_use() -> Iterator[str]:
    """What commands say of what they can't do, without the lines that say how they are used."""
    for command in _WRONG_USE:
        output = CliRunner().invoke(main, [*command]).stderr
        error = output.partition("Error: ")[2]
        assert error, (command, output)
        # What helps stands below on lines of its own.
        yield from (_PLACE.sub("", line.strip()) for line in error.strip().splitlines())


def places(folder: Path) -> Iterator[str]:
    """What is said of a lock, a journal and an address that can't be had."""
    held, second = NodeLock(folder / "journal.db"), NodeLock(folder / "journal.db")
    assert held.acquire()
    assert not second.acquire()
    held.release()
    (folder / "file").touch()
    nowhere = NodeLock(folder / "file" / "journal.db")
    assert not nowhere.acquire()
    yield from (second.problem, nowhere.problem)
    for code in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES, errno.EIO):
        yield str(explain(OSError(code, os.strerror(code)), "127.0.0.1:9"))
    for code in (errno.EROFS, errno.EACCES, errno.ENOSPC, errno.ENOTDIR, errno.EISDIR, errno.EIO):
        yield str(explain_os(OSError(code, os.strerror(code)), folder))
