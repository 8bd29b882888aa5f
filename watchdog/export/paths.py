"""The paths of the pages of pods and GPUs, from the status page: relative, so that a proxy may put a path in front."""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from watchdog.report.status import GpuStatus

# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
_NAMESPACE: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_NAME: Final = re.compile(r"(?!.*(?:\.\.|\.-|-\.))[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
# `3`, `3/1` of a MIG instance, or a UUID; older ones of instances are `MIG-GPU-.../1/0`.
_GPU: Final = re.compile(r"[0-9]{1,4}(?:/[0-9]{1,4})?|[A-Za-z0-9-]{1,80}(?:/[0-9]{1,4}){0,2}")


def pod_path(namespace: str, name: str) -> str:
    """The path of a pod's page; empty if that is no name that Kubernetes gives."""
    return f"pods/{namespace}/{name}" if _NAMESPACE.fullmatch(namespace) and _NAME.fullmatch(name) else ""


def gpu_path(name: str) -> str:
    """The path of a GPU's page by its short name or UUID; empty if that is no name that a driver gives."""
    return f"gpus/{quote(name)}" if _GPU.fullmatch(name) else ""


def path_of(gpu: GpuStatus, gpus: Iterable[GpuStatus]) -> str:
    """The path of a GPU's page, by its short name if no other of the node's GPUs has the same."""
    # Compute instances of the same GPU instance do.
    is_shared = any((each.index, each.gi) == (gpu.index, gpu.gi) and each.uuid != gpu.uuid for each in gpus)
    return gpu_path(gpu.uuid if gpu.index is None or is_shared else gpu.number)
