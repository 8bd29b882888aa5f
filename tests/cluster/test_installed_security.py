"""What each `security` of the chart is in the running container, and that `minimal` is the least that does the work."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.node.support import REPOSITORY
from tests.rig.cluster.api import Object
from tests.rig.cluster.doctor_rig import wrong
from tests.rig.cluster.installed import Installed
from tests.rig.cluster.installed_policy import KILL, policy_text
from tests.rig.cluster.node import NODE
from tests.rig.cluster.real_pods import MEMORY, container, killed, pod, wait_until
from tests.rig.cluster.workloads import DECLARED
from tests.stub import GIB

pytestmark = [pytest.mark.node, pytest.mark.slow]

POLICY: Final = policy_text("enforce", {"tenants": KILL})
# include/uapi/linux/capability.h
_KILL: Final = 1 << 5
_SYS_ADMIN: Final = 1 << 21
# A device of every Linux that no container gets by default, as none gets /dev/nvidia0.
_DEVICE: Final = "dev/loop-control" if Path("/dev/loop-control").exists() else "dev/kmsg"
_MIG: Final = b"NVIDIA_MIG_MONITOR_DEVICES=all"
# Signal 0 asks whether a signal would be allowed, and sends none. The files are those that the daemon reads.
_PROBE: Final = """
import errno, json, os, signal, sys
from pathlib import Path
found = {"CapEff": next(x.split()[1] for x in open("/proc/self/status") if x.startswith("CapEff"))}
def attempt(name, call):
    try:
        call()
        found[name] = "ok"
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
for user, pid in (("root", int(sys.argv[1])), ("1000", int(sys.argv[2]))):
    for file in ("stat", "status", "cgroup", "cmdline"):
        attempt(f"read {file} of {user}", lambda: Path(f"/proc/{pid}/{file}").read_bytes())
    attempt(f"signal {user}", lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 0))
attempt("write the journal's folder", lambda: Path("/var/lib/gpu-watchdog/probe").write_text(""))
print(json.dumps(found))
"""
_UID: Final = {"runAsUser": 65532, "runAsGroup": 65532}
_NOTHING: Final = {"capabilities": {"drop": ["ALL"]}}
_REFUSED: Final = {"signal root": "EPERM", "signal 1000": "EPERM", "write the journal's folder": "EACCES"}
# Another security context -> the calls that fail there. docs/security.md has the same in words.
LESS: Final[Mapping[str, tuple[Mapping[str, Any], dict[str, str]]]] = {
    "as it is": ({}, {}),
    "without KILL": (_NOTHING, {"signal 1000": "EPERM"}),
    "not root, with KILL": (_UID, _REFUSED),
    "not root, without KILL": ({**_UID, **_NOTHING}, _REFUSED),
}


def of_user(name: str, user: int, *arguments: str) -> Object:
    """A pod whose processes are of a user."""
    made = container("main", "term=ignore", *arguments, memory=DECLARED)
    return pod(name, {**made, "securityContext": {"runAsUser": user}})


def kernel_says(pid: int) -> dict[str, str]:
    """/proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def test_the_kernel_gives_it_kill_and_nothing_else(watchdog: Installed) -> None:
    """Of the running process: one capability in every set, a seccomp filter, no way to gain more."""
    reported = kernel_says(watchdog.pid)
    sets = [int(reported[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")]
    assert sets == [_KILL, _KILL, _KILL, 0]
    assert (int(reported["Seccomp"]), int(reported["NoNewPrivs"])) == (2, 1)  # SECCOMP_MODE_FILTER
    assert reported["Uid"].split() == ["0"] * 4


def test_it_can_write_where_its_journal_is_and_nowhere_else(watchdog: Installed) -> None:
    """The root is read-only, and so are the driver's mount and the policy's; it is in the host's PID namespace."""
    mounts = Path(f"/proc/{watchdog.pid}/mountinfo").read_text(encoding="utf-8").splitlines()
    options = {line.split()[4]: set(line.split()[5].split(",")) for line in mounts}
    for place in ("/", "/usr/local/nvidia", "/etc/gpu-watchdog", "/var/run/secrets/kubernetes.io/serviceaccount"):
        found = options.get(place) or options[place.removeprefix("/var")]
        assert "ro" in found, place
    writable = {place for place, found in options.items() if "rw" in found and not re.match("/(proc|dev|sys)", place)}
    # The kubelet makes /etc/hosts for each pod, and the termination log below /dev.
    assert writable == {"/var/lib/gpu-watchdog", "/tmp", "/etc/hosts"}
    assert Path(f"/proc/{watchdog.pid}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink()


def test_the_image_s_health_check_needs_no_shell(watchdog: Installed) -> None:
    """HEALTHCHECK of the Dockerfile, for people who run the image without Kubernetes, succeeds in the container."""
    text = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
    (given,) = re.findall(r"^HEALTHCHECK .*\\\n +CMD (\[.*\])$", text, re.MULTILINE)
    assert watchdog.execute(*json.loads(given))[0] == 0


@pytest.fixture(scope="module")
def probed(watchdog: Installed) -> Iterator[dict[str, dict[str, str]]]:
    """What each call returned under each of the security contexts."""
    pods, room = watchdog.cluster.pods, watchdog.cluster.new_namespace("targets")
    pids = []
    for user in (0, 1000):
        (one,) = pods.containers(pods.run(of_user(f"target-{user}", user), room))
        pids.append(str(one.pids[0]))
    found = {}
    for number, (row, (context, _)) in enumerate(LESS.items()):

        def change(spec: Object, context: Mapping[str, Any] = context) -> None:
            spec["containers"][0]["securityContext"].update(context)
            spec["containers"][0]["command"] = ["/opt/gpu-watchdog/bin/python", "-c", _PROBE]

        watchdog.start_once(f"probe-{number}", change, *pids)
        found[row] = json.loads(watchdog.end_of(f"probe-{number}")[-1])
    yield found
    watchdog.cluster.drop_namespace(room)


@pytest.mark.parametrize("row", LESS)
def test_with_less_the_work_can_not_be_done(probed: dict[str, dict[str, str]], row: str) -> None:
    """Each smaller set, and which calls fail in it; a capability that is added has no effect but for root."""
    failed = {call: reported for call, reported in probed[row].items() if reported != "ok" and call != "CapEff"}
    assert failed == LESS[row][1]
    assert int(probed[row]["CapEff"], 16) == (_KILL if row == "as it is" else 0)


_SHARES: Final = "nvidia.com/gpu.replicas"
# A profile that allows everything but pidfds; the kubelet looks for it below its own folder.
_PROFILE: Final = "no-pidfd.json"
_NO_PIDFD: Final = {
    "defaultAction": "SCMP_ACT_ALLOW",
    "syscalls": [{"names": ["pidfd_open", "pidfd_send_signal"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}],
}
_AT_ONCE: Final = 4
Change = Callable[[Object], object]


def without(kind: str, name: str) -> Change:
    """A mount or a variable of the container is missing."""

    def change(spec: Object) -> None:
        spec["containers"][0][kind] = [each for each in spec["containers"][0][kind] if each["name"] != name]

    return change


def emptied(name: str) -> Change:
    """The volume is an emptyDir instead."""

    def change(spec: Object) -> None:
        spec["volumes"] = [v if v["name"] != name else {"name": name, "emptyDir": {}} for v in spec["volumes"]]

    return change


def secured(**more: object) -> Change:
    """Another security context of the container."""
    return lambda spec: spec["containers"][0]["securityContext"].update(more)


def read_only_journal(spec: Object) -> None:
    """The journal's folder can only be read."""
    for each in spec["containers"][0]["volumeMounts"]:
        each["readOnly"] = each["name"] == "state" or each.get("readOnly", False)


# What is taken away -> how, and the findings that name it.
TAKEN: Final[Mapping[str, tuple[Change, set[str]]]] = {
    "nothing": (lambda _: None, set()),
    "`hostPID`": (lambda spec: spec.update(hostPID=False), {"pid_namespace"}),
    "the capability KILL": (secured(**_NOTHING), {"cap_kill"}),
    "UID 0 (`runAsUser: 65532`, with KILL)": (
        secured(**_UID),
        {"cap_kill", "journal_folder", "journal_file", "journal_lock"},
    ),
    "pidfd, by a seccomp profile": (
        secured(seccompProfile={"type": "Localhost", "localhostProfile": _PROFILE}),
        {"pidfd"},
    ),
    "the token": (lambda spec: spec.update(automountServiceAccountToken=False), {"api_config"}),
    "`NODE_NAME`": (without("env", "NODE_NAME"), {"node_name", "own_pod"}),
    "the driver's mount": (without("volumeMounts", "driver"), {"nvml_library"}),
    "the journal's mount": (without("volumeMounts", "state"), {"journal_folder"}),
    "the policy's mount": (without("volumeMounts", "policy"), {"policy_mount", "right_slices"}),
    "the mount of `/tmp`": (without("volumeMounts", "tmp"), {"temporary_folder"}),
    "an emptyDir for the journal": (emptied("state"), {"journal_disk"}),
    "writing to the journal's mount": (read_only_journal, {"journal_folder", "journal_file"}),
    "the policy in its mount (a ConfigMap without `policy.toml`)": (emptied("policy"), {"policy"}),
}


@pytest.fixture(scope="module")
def diagnosed(watchdog: Installed) -> Iterator[dict[str, list[Object]]]:
    """The findings of doctor in a pod like the daemon's, by what was taken away from it; a few pods run at a time."""
    cluster = watchdog.cluster
    # The image's own policy reads it, which is in force where the mount of the other one is missing.
    cluster.kubectl("label", "--overwrite", "node", NODE, f"{_SHARES}=1")
    profile = cluster.namespaces.path(f"/var/lib/kubelet/seccomp/{_PROFILE}")
    profile.parent.mkdir(exist_ok=True)
    profile.write_text(json.dumps(_NO_PIDFD), encoding="utf-8")
    found: dict[str, list[Object]] = {}
    rows = {row: f"doctor-{number}" for number, row in enumerate(TAKEN)}
    started = iter(TAKEN)
    for number, (row, name) in enumerate(rows.items()):
        for each in started:
            watchdog.start_once(rows[each], TAKEN[each][0], "doctor", "--json")
            if each == list(rows)[min(number + _AT_ONCE, len(rows)) - 1]:
                break
        # The kubelet mixes stdout and stderr, line by line.
        lines = [line for line in watchdog.end_of(name) if not line.startswith("gpu-watchdog doctor: ")]
        found[row] = json.loads("\n".join(lines))["findings"]
    yield found
    cluster.kubectl("label", "node", NODE, f"{_SHARES}-")


@pytest.mark.parametrize("row", TAKEN)
def test_doctor_names_what_is_missing(diagnosed: dict[str, list[Object]], row: str) -> None:
    """Each mount and capability by itself: the findings that name it and no others, with a remedy."""
    found = wrong(diagnosed[row])
    assert found.keys() == TAKEN[row][1], found
    assert all(not each.endswith("-> ") for each in found.values())


# Flags of helm -> the capabilities (None: all of this machine's), seccomp, devices, and the variable for MIG.
POWERS: Final[Mapping[str, tuple[int | None, int, bool, bool]]] = {
    "driver.mig=true": (_KILL | _SYS_ADMIN, 2, False, True),
    "security=privileged": (None, 0, True, False),
}


@pytest.mark.parametrize("flag", POWERS)
def test_each_set_of_powers_does_the_work(watchdog: Installed, tenants: str, flag: str) -> None:
    """It has those capabilities and devices and no others, the root is read-only, and another user's offender ends."""
    watchdog.install(POLICY, "--set", flag)
    process, reported = Path(f"/proc/{watchdog.pid}"), kernel_says(watchdog.pid)
    capabilities, seccomp, has_devices, has_variable = POWERS[flag]
    everything = int(kernel_says(watchdog.cluster.containerd.server.pid or 0)["CapBnd"], 16)
    assert int(reported["CapEff"], 16) == (everything if capabilities is None else capabilities)
    assert int(reported["Seccomp"]) == seccomp
    assert (process / "root" / _DEVICE).exists() is has_devices
    assert (_MIG in (process / "environ").read_bytes().split(b"\0")) is has_variable
    mounts = (process / "mountinfo").read_text(encoding="utf-8").splitlines()
    assert "ro" in next(line.split()[5].split(",") for line in mounts if line.split()[4] == "/")
    watchdog.wait_enforcing()
    wait_until(lambda: watchdog.capacity(MEMORY, "allocatable") > 0, "the node offers GPU memory")
    watchdog.cluster.pods.create(of_user("hog", 1000, f"gpu={2 * GIB}"), tenants)
    watchdog.cluster.pods.wait("hog", killed, tenants)
    assert watchdog.lacking() <= {"process_numbers"}  # the offender may not be on the GPU again yet
