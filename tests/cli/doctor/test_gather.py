"""Gathering facts from real files, mounts, libraries and addresses, and from what AppArmor and SELinux write."""

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.cli.doctor.build import GOOD
from tests.cli.test_client import answering
from tests.ports import free_port
from tests.report.build import serving
from tests.worlds import at
from watchdog.cli.doctor import diagnose
from watchdog.cli.doctor.facts import Confinement
from watchdog.cli.doctor.finding import FindingState
from watchdog.cli.doctor.gather import confinement_of, probe_listen, read_confinement, read_container
from watchdog.cli.doctor.journal_files import create_problem, journal_kind, mount_of, read_journal, write_problem
from watchdog.core.utilization import CardUtilization
from watchdog.daemon.sampler import read_once
from watchdog.export.endpoints import Endpoints
from watchdog.export.metrics import Metrics
from watchdog.journal.file import JournalFile
from watchdog.node.drivers.devices import SONAME, find_library, has_capability_devices
from watchdog.node.drivers.protocol import DriverReading

MOUNTS = [
    "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw",
    "30 22 0:26 / /var rw - xfs /dev/vdb rw",
    "31 30 0:27 / /var/lib/gpu\\040watchdog rw - nfs4 server:/x rw",
    "32 30 0:28 / /var/li rw - btrfs /dev/vdc rw",
    "33 30 0:29 / /srv rw master:1 - xfs /dev/vdd rw",
    "34 30 0:30 / /srv rw - tmpfs tmpfs rw",
    "a line of another form",
]


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/opt/x", "ext4"), ("/var/lib", "xfs"), ("/var/lib/gpu watchdog", "nfs4"), ("/var/lib/gpu", "xfs"),
     ("/var/lib/gpu watchdog/journal", "nfs4"), ("/srv/x", "tmpfs")],
)  # fmt: skip
def test_the_file_system_of_a_path(path: str, kind: str) -> None:
    """The innermost mount counts, the last of several at one mount point; names are compared as a whole."""
    mount = mount_of(Path(path), MOUNTS)
    assert mount is not None
    assert mount.kind == kind
    assert mount_of(Path(path), []) is None


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ("/var/lib/kubelet/pods/9d1f/volumes/kubernetes.io~empty-dir/state", True),
        ("/pods/9d1f/volumes/kubernetes.io~empty-dir/tmp", True),
        ("/pods/9d1f/volumes/kubernetes.io~configmap/policy", False),
        ("/var/lib/gpu-watchdog", False),
        ("/", False),
    ],
)
def test_an_empty_dir_is_known_by_its_place_on_the_node(root: str, *, expected: bool) -> None:
    """In the container it looks like any disk; only the mount's root shows the kubelet's folder."""
    lines = [*MOUNTS, f"40 22 254:0 {root} /srv/state rw - ext4 /dev/vda rw"]
    mount = mount_of(Path("/srv/state/journal.db"), lines)
    assert mount is not None
    assert (mount.point, mount.is_empty_dir) == ("/srv/state", expected)


def test_the_policy_of_the_image_is_known_by_its_mount(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A policy on the container's root is the image's own; below a mount, or if no mount is known, it is not."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    policy = tmp_path / "policy.toml"
    root = "22 1 254:0 / / rw - overlay overlay rw"
    mounted = f"40 22 254:0 /pods/u/volumes/kubernetes.io~configmap/policy {tmp_path} ro - ext4 /dev/vda rw"
    for lines, expected in (([root], False), ([root, mounted], True), ([], True)):
        found = read_container(policy, lines)
        assert (found.in_pod, found.has_policy_mount) == (True, expected)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert not read_container(policy, [root]).in_pod


def test_where_a_library_is(tmp_path: Path) -> None:
    """The usual folders are searched, even if the loader does not; those without the library are left out."""
    assert list(find_library(tmp_path)) == []
    operator = tmp_path / "run/nvidia/driver/usr/lib/x86_64-linux-gnu"
    gke = tmp_path / "home/kubernetes/bin/nvidia/lib64"
    installer = tmp_path / "var/lib/nvidia/lib64"
    for folder in (operator, gke, installer, tmp_path / "usr/lib64"):
        folder.mkdir(parents=True)
    for folder in (operator, gke, installer):
        (folder / SONAME).touch()
    assert list(find_library(tmp_path)) == [str(operator), str(gke), str(installer)]


def test_where_the_devices_of_mig_are(tmp_path: Path) -> None:
    """A missing or empty folder has none; one device suffices."""
    assert not has_capability_devices(tmp_path)
    folder = tmp_path / "dev/nvidia-caps"
    folder.mkdir(parents=True)
    assert not has_capability_devices(tmp_path)
    (folder / "nvidia-cap2").touch()
    assert has_capability_devices(tmp_path)


class _Stuck:
    """A driver whose call does not return during the test."""

    interface = "NVML"
    needs_new_process = None

    def __init__(self) -> None:
        self.free = threading.Event()

    def read(self, only: frozenset[str] | None = None, like: DriverReading | None = None) -> DriverReading:
        self.free.wait(30)
        return DriverReading(driver=None, interface="NVML")

    def used(self) -> Mapping[str, int]:
        return {}

    def utilization(self) -> tuple[CardUtilization, ...]:
        return ()

    def close(self) -> None:
        pass


def test_a_reading_has_an_end() -> None:
    """A driver that hangs gives a blind reading after the patience, which the gap states."""
    driver = _Stuck()
    began = time.monotonic()
    reading = read_once(driver, 0.2)
    driver.free.set()
    assert 0.15 < time.monotonic() - began < 5
    assert (reading.blind, str(reading.gaps[0].problem).startswith("no answer within 0.2s: ")) == (True, True)


def test_a_journal_that_was_not_closed(tmp_path: Path) -> None:
    """With a write-ahead log and no shared memory SQLite would create a file, so the journal is not opened."""
    path = tmp_path / "journal.db"
    journal = JournalFile(path)
    journal.transaction(lambda connection: connection.execute("CREATE TABLE x (y)"))
    assert journal_kind(path) == ("journal", "")
    copy = tmp_path / "copy" / "journal.db"
    copy.parent.mkdir()
    for suffix in ("", "-wal"):
        copy.with_name(copy.name + suffix).write_bytes(path.with_name(path.name + suffix).read_bytes())
    journal.close()
    before = sorted(copy.parent.iterdir())
    assert journal_kind(copy)[0] == "unknown"
    assert sorted(copy.parent.iterdir()) == before
    assert journal_kind(path) == ("journal", "")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy", "journal.db"]


def test_reading_the_journal_leaves_nothing(tmp_path: Path) -> None:
    """An existing folder is tested and left as it was; a missing one is not created."""
    assert read_journal(tmp_path / "journal.db").folder_problem == ""
    missing = read_journal(tmp_path / "a" / "b" / "journal.db")
    assert (missing.folder_exists, missing.folder_problem, missing.kind, missing.lock) == (False, "", "absent", "free")
    assert list(tmp_path.iterdir()) == []
    file = tmp_path / "file"
    file.touch()
    assert write_problem(file) == "it is not a folder"
    assert "is not a folder" in create_problem(file)
    assert "read-only" in create_problem(Path("/proc/self"))


@pytest.mark.parametrize("folder", ["/proc/nowhere", "/proc"])
def test_no_journal_on_a_virtual_file_system(folder: str) -> None:
    """Permission bits let root write in /proc; doctor reports that no file can be created there."""
    facts = replace(GOOD, journal=read_journal(Path(folder) / "journal.db"))
    (finding,) = [each for each in diagnose(facts).findings if each.name == "journal_folder"]
    assert (finding.state, "(proc)" in finding.what) == (FindingState.MISSING, True)


def test_a_dangling_stop_file_counts(tmp_path: Path) -> None:
    """A dangling link counts as a stop file, as it does for the daemon."""
    assert not read_journal(tmp_path / "journal.db").is_stopped
    (tmp_path / "stop").symlink_to(tmp_path / "nowhere")
    assert read_journal(tmp_path / "journal.db").is_stopped


def test_who_has_the_address() -> None:
    """The address is free, our daemon's (healthy or hanging) or another program's; probing leaves it free."""
    listen = f"127.0.0.1:{free_port()}"
    assert probe_listen(listen).state == "free"
    assert probe_listen(listen).state == "free"
    moment = at(0)
    with serving(Endpoints(Metrics(), 1.0, now=lambda: moment), listen):
        assert probe_listen(listen).state == "ours"
        assert probe_listen(listen.replace("127.0.0.1", "0.0.0.0")).state == "ours"
        moment = at(60)
        assert probe_listen(listen).policy_sha256 == ""
        sick = probe_listen(listen)
        assert (sick.state, "no cycle has completed" in sick.problem) == ("ours_sick", True)


def test_an_address_that_is_taken_or_unusable() -> None:
    """A program that closes the connection is no gpu-watchdog; an address of another machine is the kernel's error."""
    with answering(b"") as (url, _):
        found = probe_listen(url.removeprefix("http://"))
    assert (found.state, "another process listens there" in found.problem) == ("taken", True)
    found = probe_listen("203.0.113.1:9837")
    assert (found.state, "no such address" in found.problem) == ("unusable", True)


_DEFAULT: Final = Confinement(profile="cri-containerd.apparmor.d", is_of_runtime=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unconfined\n", Confinement()),
        ("cri-containerd.apparmor.d (enforce)\n", _DEFAULT),
        ("cri-containerd.apparmor.d (kill)\n", _DEFAULT),
        ("cri-containerd.apparmor.d (complain)\n", Confinement()),
        ("cri-containerd.apparmor.d//&unconfined (mixed)\n", _DEFAULT),
        ("cri-containerd.apparmor.d//&:k3s:unconfined (enforce)\n", _DEFAULT),
        ("runc (unconfined)\n", Confinement()),
        ("docker-default (enforce)\n", Confinement(profile="docker-default", is_of_runtime=True)),
        ("containers-default-0.50.1 (enforce)", Confinement(profile="containers-default-0.50.1", is_of_runtime=True)),
        ("gpu-guard (enforce)\n", Confinement(profile="gpu-guard")),
        (":ns://gpu-guard (enforce)\n", Confinement(profile=":ns://gpu-guard")),
        ("/usr/bin/a b (enforce)\n", Confinement(profile="/usr/bin/a b")),
        ("system_u:system_r:container_t:s0:c1,c2\0", Confinement(selinux_type="container_t")),
        ("system_u:system_r:spc_t:s0\0", Confinement(selinux_type="spc_t")),
        ("", Confinement()),
    ],
)
def test_confinement(text: str, expected: Confinement) -> None:
    """Profiles that deny nothing do not count; of stacked profiles each counts; SELinux has no profile."""
    assert confinement_of(text) == expected


@pytest.mark.parametrize(
    ("own", "main", "enabled", "expected"),
    [
        (None, "kernel\0", None, Confinement()),  # SELinux with no policy loaded
        (None, "kernel\0", "N\n", Confinement()),
        ("", "_", "N\n", Confinement()),  # Smack
        (None, "gpu-guard\n", "Y\n", Confinement(profile="gpu-guard")),
        (None, "cri-containerd.apparmor.d (enforce)\n", None, _DEFAULT),  # /sys is not mounted
        ("cri-containerd.apparmor.d (enforce)\n", "_", "Y\n", _DEFAULT),
        (None, "system_u:system_r:container_t:s0\0", "N\n", Confinement(selinux_type="container_t")),
        (None, None, None, Confinement()),
    ],
)
def test_a_bare_name_is_a_profile_only_where_apparmor_is_on(
    tmp_path: Path, own: str | None, main: str | None, enabled: str | None, expected: Confinement
) -> None:
    """Other modules write their own names into the shared file; none of them is mistaken for a profile."""
    (tmp_path / "apparmor").mkdir()
    for name, text in (("apparmor/current", own), ("current", main), ("enabled", enabled)):
        if text is not None:
            (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_confinement(tmp_path, tmp_path / "enabled") == expected
