"""What `security: minimal` comes to in the running container, and that it is the least with which the work is done."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.api import Object
from tests.cluster.installed import Installed
from tests.cluster.installed_fixtures import installed
from tests.cluster.installed_policy import KILL, policy_text
from tests.cluster.node import Cluster
from tests.cluster.real_pods import MEMORY, container, is_running, pod, wait_until
from tests.cluster.test_installed import killed
from tests.cluster.workloads import DECLARED
from tests.node.support import REPOSITORY
from tests.stub import GIB

pytestmark = [pytest.mark.node, pytest.mark.slow]

# include/uapi/linux/capability.h
_KILL: Final = 1 << 5
_SECCOMP_FILTER: Final = 2
# Signal 0 asks whether a signal would be allowed, and sends none. The files are those that the daemon reads.
_PROBE: Final = """
import errno, json, os, signal, sys
from pathlib import Path
said = {"CapEff": next(x.split()[1] for x in open("/proc/self/status") if x.startswith("CapEff"))}
def attempt(name, call):
    try:
        call()
        said[name] = "ok"
    except OSError as error:
        said[name] = errno.errorcode[error.errno]
for user, pid in (("root", int(sys.argv[1])), ("1000", int(sys.argv[2]))):
    for file in ("stat", "status", "cgroup", "cmdline"):
        attempt(f"read {file} of {user}", lambda: Path(f"/proc/{pid}/{file}").read_bytes())
    attempt(f"signal {user}", lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 0))
attempt("write the journal's folder", lambda: Path("/var/lib/gpu-watchdog/probe").write_text(""))
print(json.dumps(said))
"""
_UID: Final = {"runAsUser": 65532, "runAsGroup": 65532}
_NOTHING: Final = {"capabilities": {"drop": ["ALL"]}}
# Another security context -> the calls that fail there. docs/security.md says it in words.
LESS: Final[Mapping[str, tuple[Mapping[str, Any], dict[str, str]]]] = {
    "as it is": ({}, {}),
    "without KILL": (_NOTHING, {"signal 1000": "EPERM"}),
    "not root, with KILL": (
        _UID,
        {"signal root": "EPERM", "signal 1000": "EPERM", "write the journal's folder": "EACCES"},
    ),
    "not root, without KILL": (
        {**_UID, **_NOTHING},
        {"signal root": "EPERM", "signal 1000": "EPERM", "write the journal's folder": "EACCES"},
    ),
}


@pytest.fixture(scope="module")
def watchdog(cluster: Cluster, watchdog_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Installed, and enforcing."""
    with installed(cluster, tmp_path_factory.mktemp("installed")) as made:
        made.install(policy_text("enforce", {"tenants": KILL}))
        made.wait_enforcing()
        wait_until(lambda: made.capacity(MEMORY, "allocatable") > 0, "the node offers GPU memory")
        yield made


@pytest.fixture(scope="module")
def tenants(watchdog: Installed) -> Iterator[str]:
    """A namespace in which whoever is over is killed."""
    name = watchdog.cluster.new_namespace("tenants")
    yield name
    watchdog.cluster.drop_namespace(name)


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
    said = kernel_says(watchdog.pid)
    sets = {name: int(said[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    assert (sets["CapEff"], sets["CapPrm"], sets["CapBnd"], sets["CapAmb"]) == (_KILL, _KILL, _KILL, 0)
    assert (int(said["Seccomp"]), int(said["NoNewPrivs"])) == (_SECCOMP_FILTER, 1)
    assert said["Uid"].split() == ["0"] * 4


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


def test_pidfds_work_under_the_runtime_s_seccomp_profile(watchdog: Installed) -> None:
    """RuntimeDefault lets pidfd_open and pidfd_send_signal through; the daemon does not go without them."""
    code, said, _ = watchdog.ask("doctor", "--json")
    (found,) = [each for each in json.loads(said)["findings"] if each["name"] == "pidfd"]
    assert (code, found["state"], found["what"]) == (0, "ok", "pidfd_open and pidfd_send_signal work")
    assert not [line for line in watchdog.log() if "pidfd" in line.get("message", "")]


def test_the_image_s_health_check_needs_no_shell(watchdog: Installed) -> None:
    """HEALTHCHECK of the Dockerfile, for who runs the image without Kubernetes: in the container, it is content."""
    text = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
    (given,) = re.findall(r"^HEALTHCHECK .*\\\n +CMD (\[.*\])$", text, re.MULTILINE)
    name = watchdog.pod()["metadata"]["name"]
    watchdog.kubectl("exec", name, "--", *json.loads(given))


@pytest.mark.parametrize("user", [0, 1000])
def test_tenants_of_any_user_are_killed(watchdog: Installed, tenants: str, user: int) -> None:
    """What CAP_KILL is for: a process of another user ends by the daemon's signal as one of root's does."""
    name = f"hog-{user}"
    watchdog.cluster.pods.create(of_user(name, user, f"gpu={2 * GIB}"), tenants)
    found = watchdog.cluster.pods.wait(name, lambda of: killed(of, "main"), tenants)
    watchdog.cluster.pods.delete(found["metadata"]["name"], tenants)


@pytest.fixture(scope="module")
def probed(watchdog: Installed, tenants: str) -> dict[str, dict[str, str]]:
    """What each call came to under each of the security contexts."""
    pods = watchdog.cluster.pods
    pids = []
    for user in (0, 1000):
        (one,) = pods.containers(pods.run(of_user(f"target-{user}", user), tenants))
        pids.append(str(one.pids[0]))
    template = watchdog.cluster.control_plane.get("daemonset", "gpu-watchdog", watchdog.namespace)["spec"]["template"]
    found = {}
    for number, (row, (context, _)) in enumerate(LESS.items()):
        spec = json.loads(json.dumps(template["spec"]))
        spec["restartPolicy"] = "Never"
        (one,) = spec["containers"]
        one["securityContext"].update(context)
        one["command"], one["args"] = ["/opt/gpu-watchdog/bin/python", "-c", _PROBE], pids
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            one.pop(probe)
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"probe-{number}"}, "spec": spec}
        pods.create(made, watchdog.namespace)
        pods.wait(f"probe-{number}", lambda of: of["status"]["phase"] == "Succeeded", watchdog.namespace)
        found[row] = json.loads(pods.log(f"probe-{number}", watchdog.namespace)[-1])
    return found


@pytest.mark.parametrize("row", LESS)
def test_with_less_the_work_can_not_be_done(probed: dict[str, dict[str, str]], row: str) -> None:
    """Each smaller set, and which calls fail in it; a capability that is added has no effect but for root."""
    print(f"\n{row}: {probed[row]}")
    failed = {call: said for call, said in probed[row].items() if said != "ok" and call != "CapEff"}
    assert failed == LESS[row][1]
    assert int(probed[row]["CapEff"], 16) == (_KILL if row == "as it is" else 0)


def test_it_still_runs_after_all_that(watchdog: Installed) -> None:
    """The daemon itself was not touched by the probes."""
    assert is_running(watchdog.pod())
    watchdog.wait_enforcing()
