"""Objects as the API server writes them."""

import json
from typing import Any

UID = "8c2f4a1e-0d3b-4c55-9f6a-1b2c3d4e5f60"
ID, LAST_ID, INIT_ID = "a1" * 32, "b2" * 32, "c3" * 32
HASH = "0123456789abcdef0123456789abcdef"

Object = dict[str, Any]


def pod_object(name: str = "trainer", uid: str = UID, **changes: Any) -> Object:
    """A running pod; `metadata`, `spec` and `status` in the changes are merged into its own."""
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "a",
            "uid": uid,
            "resourceVersion": "7",
            "creationTimestamp": "2025-01-01T00:00:00Z",
            "labels": {"app": "trainer"},
            "annotations": {"note": "x"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1"},
                {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "2", "controller": True},
            ],
        },
        "spec": {
            "nodeName": "n1",
            "priority": 100,
            "priorityClassName": "x",
            "tolerations": [{"operator": "Exists"}],
            "initContainers": [
                {"name": "fetch", "image": "i", "resources": {}},
                {"name": "proxy", "image": "i", "restartPolicy": "Always"},
            ],
            "containers": [
                {
                    "name": "main",
                    "image": "i",
                    "resources": {
                        "limits": {"veriff.com/gpu-memory": "104Mi", "cpu": 2},
                        "requests": {"veriff.com/gpu-memory": "100Mi", "memory": "1Gi"},
                    },
                }
            ],
            "ephemeralContainers": [{"name": "debug", "image": "i", "targetContainerName": "main"}],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": "main",
                    "containerID": f"containerd://{ID}",
                    "ready": True,
                    "state": {"running": {"startedAt": "2025-01-01T00:00:00Z"}},
                    "lastState": {"terminated": {"exitCode": 137, "containerID": f"containerd://{LAST_ID}"}},
                }
            ],
            "initContainerStatuses": [
                {"name": "fetch", "state": {"terminated": {"exitCode": 0, "containerID": f"cri-o://{INIT_ID}"}}},
                {"name": "proxy", "containerID": "docker://" + "d4" * 32, "state": {"running": {}}},
            ],
            "ephemeralContainerStatuses": [
                {"name": "debug", "containerID": "containerd://", "state": {"waiting": {"reason": "ContainerCreating"}}}
            ],
        },
    }
    for part, values in changes.items():
        pod[part] = {**pod[part], **values} if isinstance(values, dict) else values
    return pod


def list_of(*items: Object, kind: str = "List", version: str = "") -> bytes:
    """What `kubectl get -o json` prints for several objects; at a version, what the API server answers."""
    metadata = {"resourceVersion": version}
    return json.dumps({"apiVersion": "v1", "kind": kind, "items": items, "metadata": metadata}).encode()


def nested_pod(name: str = "trainer", uid: str = UID, **changes: Any) -> Object:
    """A pod for `nested`, with brackets in texts before and after what is nested."""
    note = {"note": '\\"]}[{\\'}
    fields = [{"manager": "[", "fieldsV1": {"f:a": note, "f:b": "NESTED", "f:c": note}}]
    return pod_object(name, uid, **changes, metadata={"managedFields": fields, "annotations": note})


def nested(text: bytes, levels: int) -> bytes:
    """JSON in which the pods of `nested_pod` are nested so deeply."""
    inner = b'{"f:]":[{},{"f:\\"":[["}"]]},' * (levels // 2) + b"1" + b"]}" * (levels // 2)
    return text.replace(b'"NESTED"', inner)
