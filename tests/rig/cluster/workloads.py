"""Workloads whose processes always use more GPU memory than they declare, each under a real controller."""

from collections.abc import Iterator
from typing import Any, Final

from tests.rig.cluster.api import Object
from tests.rig.cluster.real_pods import container, pod_spec
from tests.stub import GIB, MIB

DECLARED: Final = "1Gi"
_OVER: Final = f"gpu={2 * GIB}"
# What PID 1 of a container does at SIGTERM unless the program handles it: the kernel drops the signal
# (SIGNAL_UNKILLABLE in kernel/signal.c). Plain Python is such a program.
STUBBORN: Final = container("main", "term=ignore", _OVER, memory=DECLARED)
POLITE: Final = container("main", "term=exit", _OVER, memory=DECLARED)
# A notebook server that uses nothing, and its kernel: when that ends, it starts another, as Jupyter does.
_NOTEBOOK: Final = container("main", "children=1", "respawn", f"child-gpu={2 * GIB}", memory=DECLARED)
# Two models under one server, too much together: either one alone is within what is declared.
_MODELS: Final = container("main", "children=2", f"child-gpu={600 * MIB}", memory=DECLARED)
_SIDECAR: Final = container("side", "term=ignore")

_IGNORE_DISRUPTIONS: Final = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}


def deployment(made_of: Object = STUBBORN) -> Object:
    """One replica, which goes over unless it is made of something else."""
    return _replicated("Deployment", "deployment", made_of)


def statefulset() -> Object:
    """One replica that goes over."""
    return _replicated("StatefulSet", "statefulset", STUBBORN, serviceName="none")


def notebook() -> Object:
    """A StatefulSet of one, as Kubeflow makes it: a server, and a kernel under it that goes over."""
    return _replicated("StatefulSet", "notebook", _NOTEBOOK, serviceName="none")


def models() -> Object:
    """A bare pod: two processes beside each other, too much only together."""
    return _bare("models", _MODELS)


def pair() -> Object:
    """A bare pod of two containers, of which one goes over."""
    return _bare("pair", STUBBORN, _SIDECAR)


def bare(name: str = "bare", *, restart: str = "Always") -> Object:
    """A pod without a controller."""
    return _bare(name, STUBBORN, restartPolicy=restart)


def job(name: str, *, made_of: Object = STUBBORN, ignore_disruptions: bool = False, restart: str = "Never") -> Object:
    """A Job that allows one failure; on request, it does not count what carries the condition DisruptionTarget."""
    spec: Object = {"backoffLimit": 1, "template": _template(name, made_of, restartPolicy=restart)}
    if ignore_disruptions:
        spec["podFailurePolicy"] = _IGNORE_DISRUPTIONS
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def every_kind() -> Iterator[Object]:
    """One of each that the documentation has a row for."""
    yield from (deployment(), statefulset(), notebook(), bare(), bare("bare-once", restart="Never"))
    yield job("job")
    yield job("job-in-place", restart="OnFailure")
    yield job("job-ignore", ignore_disruptions=True)
    yield job("job-polite", made_of=POLITE)


def _replicated(kind: str, name: str, made_of: Object, **more: Any) -> Object:
    selector = {"matchLabels": {"app": name}}
    spec = {"replicas": 1, "selector": selector, "template": _template(name, made_of), **more}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _bare(name: str, *containers: Object, **more: Any) -> Object:
    template = _template(name, *containers, **more)
    metadata = {**template["metadata"], "name": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _template(name: str, *containers: Object, **more: Any) -> Object:
    # The grace of the pod's own is longer than that of the policy, so that it shows which one counts.
    return {"metadata": {"labels": {"app": name}}, "spec": pod_spec(*containers, grace_s=6, **more)}
