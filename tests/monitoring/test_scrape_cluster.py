"""How Prometheus finds the watchdog's pods: by its own discovery, in a real API server, with the rights of rbac.yaml.

Debian's Prometheus is built without kubernetes_sd_configs. So the discovery runs as a program of its own, made of
Prometheus' code, and hands what it finds to that Prometheus as a file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.cluster.conftest import programs  # noqa: F401 - pytest finds fixtures by their names in here
from tests.cluster.control_plane import ControlPlane
from tests.cluster.processes import Server
from tests.monitoring import deployed
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
from tests.node.support import cannot_run
from tools import programs as built

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

_ACCOUNT: Final = "--as=system:serviceaccount:monitoring:prometheus-k8s"
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
        deployed.namespaces(made, NAMESPACE, "elsewhere")
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "gpu-watchdog"}}
        made.apply(account, namespace=NAMESPACE)
        deployed.watchdog(made, "gpu-watchdog-n1", node="n1", port=_PORT, ports=[{"name": "x", "containerPort": 10}])
        deployed.watchdog(made, "gpu-watchdog-n2", node="n2", port=_PORT)
        deployed.watchdog(made, "ended", node="n1", port=_PORT, phase="Failed")
        deployed.watchdog(made, "stranger", node="n1", port=_PORT, labels={"app.kubernetes.io/name": "stranger"})
        yield made


@pytest.fixture(scope="module", params=_WAYS)
def prometheus(
    request: pytest.FixtureRequest, plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """A Prometheus that is told what the discovery of one of the files finds."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "token").write_text(deployed.account(plane, _rights()), encoding="utf-8")
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


def test_what_the_other_tests_take_for_discovered_is_discovered(prometheus: Prometheus) -> None:
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


def _rights() -> str:
    return (DEPLOY / "rbac.yaml").read_text(encoding="utf-8")


def _may(plane: ControlPlane, verb: str, what: str, namespace: str) -> bool:
    return plane.kubectl("auth", "can-i", verb, what, "-n", namespace, _ACCOUNT, check=False).stdout.strip() == "yes"
