"""The text of /proc/PID/cgroup -> the pod and the container that it claims."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import dropwhile
from typing import Final

from watchdog.core.model import CONTRADICTORY, HOST, UNREADABLE, Place, PlaceKind

_UID: Final = r"[0-9A-Fa-f]{8}[-_][0-9A-Fa-f]{4}[-_][0-9A-Fa-f]{4}[-_][0-9A-Fa-f]{4}[-_][0-9A-Fa-f]{12}|[0-9A-Fa-f]{32}"
_QOS: Final = r"(?:-(?:burstable|besteffort))?"
# "hierarchy:controllers:path". The kernel refuses a newline in a cgroup's name (kernel/cgroup/cgroup.c,
# cgroup_mkdir), so a tenant cannot write a line of its own; everything else but "/" may occur in a name.
_LINE: Final = re.compile(r"[0-9]+:[^:]*:(/.*)", re.DOTALL)
_POD: Final = re.compile(rf"pod({_UID})")
_POD_SLICE: Final = re.compile(rf"(?:.+-)?kubepods{_QOS}-pod({_UID})\.slice(?::[^:]*:(.*))?", re.DOTALL)
# A segment on the path from the kubelet's root to a pod, and anything that looks like one but leads to no readable pod.
_ROOT: Final = re.compile(rf"kubepods|(?:.+-)?kubepods{_QOS}\.slice", re.DOTALL)
_ROOT_OR_POD: Final = re.compile(rf"kubepods|(?:.+-)?kubepods{_QOS}(?:-pod.*)?\.slice(?::.*)?", re.DOTALL)
_CONTAINER: Final = re.compile(r"(?:([a-z][a-z0-9._-]*)-)?([0-9a-f]{64})(?:\.scope)?")
# systemd delegates this subtree to a login user, who may use any name below it.
_USER: Final = re.compile(r"user@[0-9]+\.service")
_CONMON: Final = "crio-conmon"


@dataclass(frozen=True, slots=True)
class _Claim:
    """What one line claims."""

    pod: str | None = None
    container: str | None = None
    # Whether the process is the runtime's own monitor of a container, not a workload.
    helper: bool = False


def parse_cgroup(text: str | bytes) -> Place:
    """Parse `/proc/PID/cgroup`, of v1, hybrid and v2 hosts, as a claim about pod and container. Never raises.

    Every line counts, since controllers can sit at `/`. In a line, the outermost pod and the first container below it
    count: anything further below was created inside the container and may have any name. POD: some line names a pod, or
    the container next to the reader's own. HOST: no line does, or it is the monitor `crio-conmon`; if all lines with a
    container ID have the same one, it is `outside`. CONTRADICTORY: lines name different pods or containers. UNREADABLE:
    the text is empty, or a line is not in the kernel's format; bytes in a path that are not UTF-8 are ordinary names.
    """
    lines = (text.decode("latin-1") if isinstance(text, bytes) else text).split("\n")
    matches = [_LINE.fullmatch(line) for line in lines if line]
    paths = {match[1] for match in matches if match is not None}
    if not paths or None in matches:
        return UNREADABLE
    claims = [claim for path in paths if (claim := _read_path(path)) is not None]
    return _merge(claims) if claims else _place_on_host(paths)


def _place_on_host(paths: Iterable[str]) -> Place:
    found = {container for path in paths if (container := _container_outside(path)) is not None}
    return Place(kind=PlaceKind.HOST, outside=found.pop()) if len(found) == 1 else HOST


def _container_outside(path: str) -> str | None:
    """The outermost container in a path that leads to no pod; None below a login user, who may use any name."""
    for segment in path.removesuffix(" (deleted)").split("/"):
        if _USER.fullmatch(segment):
            return None
        # runc without SystemdCgroup uses "slice:runtime:ID" as one name.
        if match := _CONTAINER.fullmatch(segment.rpartition(":")[2]):
            return None if match[1] == _CONMON else match[2]
    return None


def _merge(claims: list[_Claim]) -> Place:
    pods = {claim.pod for claim in claims if claim.pod is not None}
    containers = {claim.container for claim in claims if claim.container is not None}
    helper = any(claim.helper for claim in claims)
    if len(pods) > 1 or len(containers) > 1 or (helper and containers):
        return CONTRADICTORY
    if helper:
        return HOST
    return Place(kind=PlaceKind.POD, pod=next(iter(pods), None), container=next(iter(containers), None))


def _read_path(path: str) -> _Claim | None:
    if "pod" not in path and not path.startswith("/.."):
        return None
    segments = path.removesuffix(" (deleted)").split("/")[1:]
    if segments[0] == "..":
        return _read_relative(list(dropwhile(lambda segment: segment == "..", segments)))
    return _read_absolute(segments)


def _read_relative(segments: list[str]) -> _Claim | None:
    """Read a path seen from a private cgroup namespace, `..` removed: it can begin anywhere above or in a pod."""
    if not segments:
        return None
    if beside := _CONTAINER.fullmatch(segments[0]):
        return _claim(None, beside)
    if claim := _read_pod(segments):
        return claim
    for segment in segments:
        if _ROOT_OR_POD.fullmatch(segment):
            break
        if _CONTAINER.fullmatch(segment):
            return None
    return _read_absolute(segments)


def _read_absolute(segments: list[str]) -> _Claim | None:
    """Read a path from the cgroup root: the kubelet's first segment decides, whatever is above it."""
    for index, segment in enumerate(segments):
        if "kubepods" in segment and _ROOT_OR_POD.fullmatch(segment):
            return _read_pod(segments[index:])
        if _USER.fullmatch(segment):
            return None
    return None


def _read_pod(segments: list[str]) -> _Claim | None:
    """Read segments that must lead directly to a pod: kubepods, quality of service, pod, container."""
    for index, segment in enumerate(segments):
        if segment in ("burstable", "besteffort") or _ROOT.fullmatch(segment):
            continue
        if match := _POD.fullmatch(segment):
            return _claim(match[1], _first_container(segments[index + 1 :]))
        if match := _POD_SLICE.fullmatch(segment):
            # runc without SystemdCgroup uses "slice:runtime:ID" as one name. The kubelet writes _ for - in a slice, and
            # nothing else differs from the UID: not its case, and nothing in the other form of the name
            # (escapeSystemdCgroupName in k8s.io/kubernetes/pkg/kubelet/cm/cgroup_manager_linux.go).
            below = segments[index + 1 :] if match[2] is None else [match[2], *segments[index + 1 :]]
            return _claim(match[1].replace("_", "-"), _first_container(below))
        return None
    return None


def _first_container(segments: list[str]) -> re.Match[str] | None:
    return next(filter(None, map(_CONTAINER.fullmatch, segments)), None)


def _claim(uid: str | None, container: re.Match[str] | None) -> _Claim:
    if container is None:
        return _Claim(pod=uid)
    if container[1] == _CONMON:
        return _Claim(pod=uid, helper=True)
    return _Claim(pod=uid, container=container[2])
