"""ResourceClaims and ResourceSlices as an API server writes them, for pods that tests make."""

import json
from collections.abc import Mapping
from typing import Any, Final

NVIDIA: Final = "gpu.nvidia.com"
NODE: Final = "n1"


def result(
    device: str = "gpu-0",
    memory: str | None = None,
    *,
    request: str = "gpu",
    driver: str = NVIDIA,
    shared: bool | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A device in an allocation: a share of one if some memory is consumed, else all of it."""
    made: dict[str, Any] = {"request": request, "driver": driver, "pool": NODE, "device": device, **more}
    if memory is not None:
        made["consumedCapacity"] = {"memory": memory}
    if shared or (shared is None and memory is not None):
        made["shareID"] = "34a60d33-451f-4e85-a056-c9423bca9d26"
    return made


def claim(
    name: str,
    *results: Mapping[str, Any],
    pods: tuple[str, ...] = ("a",),
    allocated: bool = True,
    namespace: str = "ns",
) -> dict[str, Any]:
    """A claim with what it was given, reserved for the pods with these UIDs."""
    status: dict[str, Any] = {"reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in pods]}
    if allocated:
        status["allocation"] = {"devices": {"results": list(results)}}
    metadata = {"name": name, "namespace": namespace, "uid": f"claim-{name}"}
    asked = {"devices": {"requests": [{"name": "gpu", "exactly": {"capacity": {"requests": {"memory": "99Gi"}}}}]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": asked,
        "status": status,
    }


def device(
    name: str = "gpu-0", uuid: str | None = "GPU-0", memory: str = "81559Mi", **attributes: str
) -> dict[str, Any]:
    """A device of a slice; each attribute is a text."""
    texts = {**({} if uuid is None else {"uuid": uuid}), **attributes}
    return {
        "name": name,
        "attributes": {key: {"string": text} for key, text in texts.items()},
        "capacity": {"memory": {"value": memory}},
    }


def resource_slice(
    *devices: Mapping[str, Any], driver: str = NVIDIA, generation: int = 1, network: str = ""
) -> dict[str, Any]:
    """A slice of this node with these devices, or of no node if they are in a pool `network` that all can reach."""
    pool = {"name": network or NODE, "generation": generation, "resourceSliceCount": 1}
    where = {"allNodes": True} if network else {"nodeName": NODE}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{pool['name']}-{driver}-{generation}"},
        "spec": {"driver": driver, **where, "pool": pool, "devices": list(devices)},
    }


def listed(*objects: Mapping[str, Any]) -> bytes:
    """Objects as `kubectl get -o json` prints them."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}).encode()


def with_claims(pod: Mapping[str, Any], entries: Mapping[str, str], uses: Mapping[str, list[str]]) -> dict[str, Any]:
    """A pod with these claims by entry, of which its containers use some: by name, entries or `ENTRY/REQUEST`."""

    def used(container: Mapping[str, Any]) -> dict[str, Any]:
        own = [
            dict(zip(("name", "request"), each.split("/"), strict=False)) for each in uses.get(container["name"], ())
        ]
        return {**container, "resources": {**container.get("resources", {}), "claims": own}}

    spec = dict(pod["spec"])
    for key in ("containers", "initContainers"):
        spec |= {key: [used(each) for each in spec[key]]} if key in spec else {}
    spec["resourceClaims"] = [{"name": entry, "resourceClaimName": name} for entry, name in entries.items()]
    return {**pod, "spec": spec}
