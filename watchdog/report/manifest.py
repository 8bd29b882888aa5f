"""The lines of a manifest by which the owner of a pod declares enough, as YAML to copy."""

import json
import re
from dataclasses import dataclass
from typing import Final

from watchdog.core.assessment import Assessment
from watchdog.core.model import ContainerKind, Owner
from watchdog.report.advice import Written
from watchdog.report.text import inert

# A plain scalar of YAML that no parser takes for a number, a truth value or null.
_PLAIN: Final = re.compile(r"(?!(?:null|true|false|yes|no|on|off|y|n|e[0-9]+)$)[A-Za-z][A-Za-z0-9_./-]*", re.IGNORECASE)
_QUANTITY: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[KMGTPE]i)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A part of a manifest."""

    # Where it goes, as a clause: `in the pod template of Job train`.
    where: str
    yaml: str

    @property
    def lines(self) -> tuple[str, ...]:
        """Its lines."""
        return tuple(self.yaml.split("\n"))


def manifest(written: Written, assessment: Assessment) -> Manifest:
    """What its owner can write, as a part of the pod's manifest, or of that of its claim."""
    if written.kind == "claim":
        kind = "ResourceClaimTemplate" if written.is_template else "ResourceClaim"
        where = f"in a new {kind} like {inert(written.name)}, for which the pod is made again"
        return Manifest(where=where, yaml=_claim(written))
    workload = assessment.pod.workload
    where = _where(workload)
    if written.kind == "resource":
        return Manifest(where=where, yaml=_resource(written, assessment))
    return Manifest(where=where, yaml=_metadata(written))


def _where(workload: Owner) -> str:
    if workload.kind == "Pod":
        return "in the pod"
    if workload.kind == "Node":  # which "owns" its static pods
        return f"in the static pod's file on node {inert(workload.name)}"
    return f"in the pod template of {inert(workload.kind)} {inert(workload.name)}"


def _resource(written: Written, assessment: Assessment) -> str:
    kinds = {container.name: container.kind for container in assessment.pod.containers}
    is_main = kinds.get(written.name, ContainerKind.MAIN) is ContainerKind.MAIN
    lines = [
        "spec:",
        "  containers:" if is_main else "  initContainers:",
        f"  - name: {_scalar(written.name)}",
        "    resources:",
        "      limits:",
        *(f"        {_scalar(key)}: {_quantity(value)}" for key, value in written.values),
    ]
    return "\n".join(lines)


def _metadata(written: Written) -> str:
    # The values are strings, and YAML parses a bare number as a number.
    pairs = (f"    {_scalar(key)}: {json.dumps(value)}" for key, value in written.values)
    return "\n".join(["metadata:", f"  {written.kind}s:", *pairs])


def _claim(written: Written) -> str:
    ((request, amount),) = written.values
    name, slash, alternative = request.partition("/")
    lines = ["devices:", "  requests:", f"  - name: {_scalar(name)}"]
    if slash:
        lines += ["    firstAvailable:", f"    - name: {_scalar(alternative)}"]
    else:
        lines.append("    exactly:")
    lines += ["      capacity:", "        requests:", f"          memory: {_quantity(amount)}"]
    if written.is_template:
        lines = ["spec:", *(f"  {line}" for line in lines)]
    return "\n".join(["spec:", *(f"  {line}" for line in lines)])


def _scalar(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _quantity(text: str) -> str:
    return text if _QUANTITY.fullmatch(text) else json.dumps(text)
