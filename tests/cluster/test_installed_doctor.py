"""`gpu-watchdog doctor` in a pod of the DaemonSet, from which one thing after the other is taken away.

All pods run at once, beside the untouched installation: doctor changes nothing.
"""

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import pytest

from tests.cluster.api import Object
from tests.cluster.doctor_rig import EVERY, POLICY, Verb
from tests.cluster.installed import Installed
from tests.cluster.installed_fixtures import installed
from tests.cluster.node import NODE, Cluster
from tests.cluster.rights_guard import vouch_for

pytestmark = [pytest.mark.node, pytest.mark.slow]

_RBAC: Final = "rbac.authorization.k8s.io"
# The GPU may be idle, and the journal is the daemon's, which runs beside.
_OF_NO_CONCERN: Final = {"process_numbers", "policy_warnings"}
_SHARES: Final = "nvidia.com/gpu.replicas"
# A profile that allows everything but pidfds; the kubelet looks for it below its own folder.
_PROFILE: Final = "no-pidfd.json"
_AT_ONCE: Final = 4
_NO_PIDFD: Final = {
    "defaultAction": "SCMP_ACT_ALLOW",
    "syscalls": [{"names": ["pidfd_open", "pidfd_send_signal"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}],
}
Change = Callable[[Object], None]


def container(spec: Object) -> Object:
    """The only container of the pod."""
    one: Object = spec["containers"][0]
    return one


def without_mount(name: str) -> Change:
    """The volume is not mounted."""

    def change(spec: Object) -> None:
        container(spec)["volumeMounts"] = [each for each in container(spec)["volumeMounts"] if each["name"] != name]

    return change


def with_volume(name: str, source: Object) -> Change:
    """Something else stands in the volume's place."""

    def change(spec: Object) -> None:
        spec["volumes"] = [each if each["name"] != name else {"name": name, **source} for each in spec["volumes"]]

    return change


def secured(**more: object) -> Change:
    """Another security context of the container."""
    return lambda spec: container(spec)["securityContext"].update(more)


def read_only_journal(spec: Object) -> None:
    """The journal's folder can only be read."""
    for each in container(spec)["volumeMounts"]:
        each["readOnly"] = each["readOnly"] if "readOnly" in each else each["name"] == "state"


def as_account(name: str) -> Change:
    """Another account."""
    return lambda spec: spec.update(serviceAccountName=name)


def without_variable(name: str) -> Change:
    """The variable is not set."""

    def change(spec: Object) -> None:
        container(spec)["env"] = [each for each in container(spec)["env"] if each["name"] != name]

    return change


# What is taken away -> how, and the findings that name it.
TAKEN: Final[Mapping[str, tuple[Change, set[str]]]] = {
    "nothing": (lambda _: None, set()),
    "`hostPID`": (lambda spec: spec.update(hostPID=False), {"pid_namespace"}),
    "the capability KILL": (secured(capabilities={"drop": ["ALL"]}), {"cap_kill"}),
    "UID 0 (`runAsUser: 65532`, with KILL)": (
        secured(runAsUser=65532, runAsGroup=65532),
        {"cap_kill", "journal_folder", "journal_file", "journal_lock"},
    ),
    "pidfd, by a seccomp profile": (
        secured(seccompProfile={"type": "Localhost", "localhostProfile": _PROFILE}),
        {"pidfd"},
    ),
    "the token (`automountServiceAccountToken`)": (
        lambda spec: spec.update(automountServiceAccountToken=False),
        {"api_config"},
    ),
    "`NODE_NAME`": (without_variable("NODE_NAME"), {"node_name", "own_pod"}),
    "the driver's mount": (without_mount("driver"), {"nvml_library"}),
    "the journal's mount": (without_mount("state"), {"journal_folder"}),
    "the policy's mount": (without_mount("policy"), {"policy_mount"}),
    "the mount of `/tmp`": (without_mount("tmp"), {"temporary_folder"}),
    "an emptyDir for the journal": (with_volume("state", {"emptyDir": {}}), {"journal_disk"}),
    "writing to the journal's mount": (read_only_journal, {"journal_folder", "journal_file"}),
    "the policy in its mount (a ConfigMap without `policy.toml`)": (
        with_volume("policy", {"emptyDir": {}}),
        {"policy"},
    ),
}


def right_name(verb: Verb) -> str:
    """How a row of the table calls a right."""
    group, target, action = verb
    return f"`{action}` on `{target}{'.' + group if group else ''}`"


def findings_of(verb: Verb) -> set[str]:
    """Which finding names a right."""
    _, target, action = verb
    if (target, action) in {("pods", "get"), ("pods/eviction", "create")}:
        return {"right_evict"}
    named = {"events": "events", "nodes": "node", "namespaces": "namespaces", "nodes/status": "capacity"}
    return {f"right_{named.get(target, 'pods')}"}


ROWS: Final[Mapping[str, set[str]]] = {
    **{name: findings for name, (_, findings) in TAKEN.items()},
    **{right_name(verb): findings_of(verb) for verb in EVERY},
}


@pytest.fixture(scope="module")
def said(
    cluster: Cluster, watchdog_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Object]]:
    """What doctor said in each pod, by what was taken away: `code` and `findings`."""
    with installed(cluster, tmp_path_factory.mktemp("installed")) as made:
        made.install(POLICY)
        made.wait_enforcing()
        # The image's own policy reads it, which is in force where the mount of the other one is missing.
        cluster.kubectl("label", "--overwrite", "node", NODE, f"{_SHARES}=1")
        profile = cluster.namespaces.path(f"/var/lib/kubelet/seccomp/{_PROFILE}")
        profile.parent.mkdir(exist_ok=True)
        profile.write_text(json.dumps(_NO_PIDFD), encoding="utf-8")
        template = cluster.control_plane.get("daemonset", "gpu-watchdog", made.namespace)["spec"]["template"]["spec"]
        changes = {row: change for row, (change, _) in TAKEN.items()}
        accounts = [f"account-{number}" for number in range(len(EVERY))]
        for verb, account in zip(EVERY, accounts, strict=True):
            give_all_but(made, account, verb)
            changes[right_name(verb)] = as_account(account)
        yield examined(made, template, changes)
        cluster.kubectl("label", "node", NODE, f"{_SHARES}-")
        cluster.kubectl("delete", "clusterrole,clusterrolebinding", "--ignore-not-found", *accounts)


def examined(of: Installed, template: Object, changes: Mapping[str, Change]) -> dict[str, Object]:
    """What doctor said under each change; a few pods at a time, since forty at once would stall the machine."""
    found: dict[str, Object] = {}
    running: list[tuple[str, str]] = []
    for row, change in changes.items():
        if len(running) == _AT_ONCE:
            first, name = running.pop(0)
            found[first] = finished(of, name)
        running.append((row, start(of, f"doctor-{len(found) + len(running)}", template, change)))
    return found | {row: finished(of, name) for row, name in running}


def start(of: Installed, name: str, template: Object, change: Change) -> str:
    """Run doctor once in a pod like the daemon's, but for a change."""
    spec = copy.deepcopy(template)
    spec["restartPolicy"] = "Never"
    one = spec["containers"][0]
    one["args"] = ["doctor", "--json"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        one.pop(probe)
    change(spec)
    of.cluster.pods.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}, of.namespace)
    return name


def finished(of: Installed, name: str) -> Object:
    """What doctor said there, once it has ended."""
    pods = of.cluster.pods
    ended = pods.wait(name, lambda found: found["status"]["phase"] in ("Succeeded", "Failed"), of.namespace, 240)
    (status,) = ended["status"]["containerStatuses"]
    # The kubelet mixes stdout and stderr, line by line.
    lines = pods.log(name, of.namespace)
    text = "\n".join(line for line in lines if not line.startswith("gpu-watchdog doctor: "))
    assert text.startswith("{"), f"{name} said: {text}"
    document = json.loads(text)
    return {"code": status["state"]["terminated"]["exitCode"], "findings": document["findings"]}


def give_all_but(of: Installed, name: str, missing: Verb) -> None:
    """An account with every right that a policy can need, but for one."""
    rules = [{"apiGroups": [g], "resources": [t], "verbs": [v]} for g, t, v in EVERY if (g, t, v) != missing]
    account = {"kind": "ServiceAccount", "namespace": of.namespace, "name": name}
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [account],
    }
    made = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": of.namespace}}
    vouch_for(f"system:serviceaccount:{of.namespace}:{name}", [role])
    of.cluster.control_plane.apply([made, role, binding])


def wrong(found: Object) -> dict[str, str]:
    """What is not as it should be, by name, as `what -> remedy`."""
    return {
        each["name"]: f"{each['state']}: {each['what']} -> {each['remedy']}"
        for each in found["findings"]
        if each["state"] != "ok" and each["name"] not in _OF_NO_CONCERN
    }


@pytest.mark.parametrize("row", ROWS)
def test_doctor_names_what_is_missing(said: dict[str, Object], row: str) -> None:
    """Each right, mount and capability by itself: the findings that name it and no others, with a remedy."""
    found = wrong(said[row])
    print(f"\n{row}: {found}")
    assert found.keys() == ROWS[row]
    assert all(not each.endswith("-> ") for each in found.values())
