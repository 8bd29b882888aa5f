"""How Prometheus finds the watchdog's pods: by its own discovery, in a real API server, with the rights of rbac.yaml.

Debian's Prometheus is built without kubernetes_sd_configs. So the discovery runs as a program of its own, made of
Prometheus' code, and hands what it finds to that Prometheus as a file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.cluster.conftest import programs  # noqa: F401 - pytest finds fixtures by their names in here
from tests.monitoring.asking import wait_for
from tests.monitoring.prometheus import Prometheus, configuration
from tests.monitoring.scraping import (
    DEPLOY,
    NAMESPACE,
    Config,
    discovered,
    operator_job,
    plain_job,
    pod_monitor,
    through_api,
    through_file,
)
from tests.node.support import REPOSITORY, cannot_run, wait_until
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.processes import Server
from tools import programs as built

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

_AS: Final = "--as=system:serviceaccount:monitoring:prometheus-k8s"
_MANIFEST: Final = REPOSITORY / "deploy" / "kustomize" / "base" / "daemonset-gpu-watchdog.yaml"
_PORT: Final = 9  # discard: nothing is scraped in here
_WAYS: Final = {"plain": plain_job(), "operator": operator_job(pod_monitor())}


@pytest.fixture(scope="module")
def plane(
    programs: Path,  # noqa: F811 - the fixture
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ControlPlane]:
    """An API server that knows two watchdogs' pods, and others that must not be scraped."""
    folder = tmp_path_factory.mktemp("cluster") / "plane"
    with ControlPlane(folder, programs=programs, controllers=False, scheduler=False) as made:
        _namespaces(made, NAMESPACE, "elsewhere")
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "gpu-watchdog"}}
        made.apply(account, namespace=NAMESPACE)
        _watchdog(made, "gpu-watchdog-n1", node="n1", ports=[{"name": "x", "containerPort": 10}])
        _watchdog(made, "gpu-watchdog-n2", node="n2")
        _watchdog(made, "ended", node="n1", phase="Failed")
        _watchdog(made, "stranger", node="n1", labels={"app.kubernetes.io/name": "stranger"})
        yield made


@pytest.fixture(scope="module", params=_WAYS)
def prometheus(
    request: pytest.FixtureRequest, plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """A Prometheus with the targets that the discovery of one of the files finds."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "token").write_text(_account(plane, (DEPLOY / "rbac.yaml").read_text(encoding="utf-8")), encoding="utf-8")
    job = through_api(_WAYS[request.param], server=plane.url, ca=plane.ca, token=folder / "token")
    found = folder / "found.json"
    discovery = _discovery(folder, job, found)
    discovery.start()
    try:
        wait_for(found.exists, discovery.tail, 60)
        with Prometheus(folder / "prometheus", configuration(through_file(job, found))) as running:
            wait_for(lambda: len(running.targets()) >= 2, lambda: f"{running.targets()} {discovery.tail()}", 60)
            yield running
    finally:
        discovery.stop(hard=True)


def test_the_watchdogs_pods_are_found(prometheus: Prometheus) -> None:
    """Both files find the two that run, at the port of the metrics, by the rights of rbac.yaml.

    A pod that has ended, another program's pod and another port are no targets.
    """
    assert {each["labels"]["watchdog_pod"] for each in prometheus.targets()} == {"gpu-watchdog-n1", "gpu-watchdog-n2"}
    assert {each["scrapeUrl"] for each in prometheus.targets()} == {f"http://127.0.0.1:{_PORT}/metrics"}


def test_the_other_tests_take_the_right_labels_for_discovered(prometheus: Prometheus) -> None:
    """Those without a cluster give Prometheus these labels by hand; the real discovery gives the same."""
    found = {each["labels"]["node"]: each["discoveredLabels"] for each in prometheus.targets()}
    assert found.keys() == {"n1", "n2"}
    for node, labels in found.items():
        assert discovered(node).items() <= labels.items()


def test_the_rights_are_no_more_than_that(plane: ControlPlane, prometheus: Prometheus) -> None:
    """rbac.yaml lets Prometheus list and watch the pods of the watchdog's namespace, and nothing else."""
    assert prometheus.targets()
    assert _may(plane, "watch", "pods", NAMESPACE)
    assert not _may(plane, "list", "pods", "elsewhere")
    assert not _may(plane, "list", "secrets", NAMESPACE)
    assert not _may(plane, "delete", "pods", NAMESPACE)


def _discovery(folder: Path, job: Config, found: Path) -> Server:
    try:
        program = built.discovery()
    except built.NoProgramsError as error:
        cannot_run(str(error))
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(job), encoding="utf-8")
    return Server("discovery", [str(program), str(file), str(found)], log=folder / "discovery.log")


def _may(plane: ControlPlane, verb: str, what: str, namespace: str) -> bool:
    return plane.kubectl("auth", "can-i", verb, what, "-n", namespace, _AS, check=False).stdout.strip() == "yes"


def _namespaces(plane: ControlPlane, *names: str) -> None:
    """Make namespaces with their default accounts, for no controller does it here."""
    for name in names:
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        plane.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}, namespace=name)


def _watchdog(plane: ControlPlane, name: str, *, node: str, **more: Any) -> None:
    """The watchdog's pod on a node, made of the DaemonSet's template; it listens on loopback.

    `labels` replace the template's, `phase` is its phase, `ports` come beside its own.
    """
    made = yaml.safe_load(_MANIFEST.read_text(encoding="utf-8"))["spec"]["template"]
    spec, meta = made["spec"], {**made["metadata"], "name": name}
    meta["labels"] = more.get("labels", meta["labels"])
    (container,) = spec["containers"]
    (metrics,) = container["ports"]
    container["ports"] = [{**metrics, "containerPort": _PORT}, *more.get("ports", ())]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**spec, "nodeName": node}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    plane.api.ask("POST", path, body)
    status = {"phase": more.get("phase", "Running"), "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    plane.api.ask("PATCH", f"{path}/{name}/status", {"status": status})


def _account(plane: ControlPlane, manifests: str) -> str:
    """The token of the account that these manifests give rights to, which is made; they hold once this is given."""
    documents = list(yaml.safe_load_all(manifests))
    (subject,) = next(each for each in documents if each and each["kind"] == "RoleBinding")["subjects"]
    namespace, name = subject["namespace"], subject["name"]
    _namespaces(plane, namespace)
    plane.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}, namespace=namespace)
    plane.kubectl("apply", "-f", "-", input=manifests)
    token = plane.service_account_token(namespace, name)
    wait_until(lambda: plane.api.call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods", token=token).status == 200, 20)
    return token
