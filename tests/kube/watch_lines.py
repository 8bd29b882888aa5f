"""Lines of a watch as the API server writes them."""

import json
from typing import Any

from tests.kube.objects import Object, pod_object


def line(kind: str, item: Object) -> bytes:
    """One event, with its newline."""
    return json.dumps({"type": kind, "object": item}, separators=(",", ":")).encode() + b"\n"


def pod(name: str, uid: str, version: str = "9", **changes: Any) -> Object:
    """A pod of namespace `a` at a version."""
    metadata = {"resourceVersion": version, **changes.pop("metadata", {})}
    return pod_object(name, uid, metadata=metadata, **changes)


def unreadable(name: str, uid: str, version: str = "9") -> Object:
    """A pod with a readable identity and an invalid spec."""
    return pod(name, uid, version, spec={"containers": "none"})


def bookmark(version: str) -> bytes:
    """A bookmark of pods."""
    item = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "spec": {"containers": None}}
    return line("BOOKMARK", item)


def error(code: int, reason: str = "", **more: Any) -> bytes:
    """An ERROR event."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason}
    return line("ERROR", {**status, "message": f"{reason or code} it is", **more})


def status(code: int, reason: str = "", message: str = "no", **details: Any) -> bytes:
    """The body of a response that refuses."""
    found = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return json.dumps({**found, "message": message, "details": details}).encode()
