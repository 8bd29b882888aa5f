"""Resource claims in the API: a class, the slice of a node, claims for the scheduler, and pods that have them."""

from typing import Any, Final, Self

from tests.claims import NVIDIA
from tests.node.support import wait_until
from tests.rig.cluster.api import Api, Object
from tests.rig.cluster.pods import Pods

_GROUP: Final = "/apis/resource.k8s.io/v1"
_SIZE: Final = "40Gi"


class Claims:
    """A context manager: inside, a node offers cards for claims in a test's namespace."""

    def __init__(self, api: Api, pods: Pods, node: str, *uuids: str) -> None:
        self._api = api
        self._pods = pods
        self.node = node
        self._uuids = uuids
        self._nodes: set[str] = set()
        self._attached: set[str] = set()

    def __enter__(self) -> Self:
        selector = {"cel": {"expression": f'device.driver == "{NVIDIA}"'}}
        self._make("deviceclasses", NVIDIA, {"selectors": [selector]})
        self.offer(*self._uuids)
        return self

    def __exit__(self, *_: object) -> None:
        for name in (*self._nodes, *self._attached):
            self._api.call("DELETE", f"{_GROUP}/resourceslices/{name}")
        for name in self._attached:
            self._api.call("DELETE", f"{_GROUP}/deviceclasses/{name}")
        self._api.call("DELETE", f"{_GROUP}/deviceclasses/{NVIDIA}")

    def offer(self, *uuids: str, node: str = "") -> None:
        """Have the slice of a node (the one that was given) list these cards alone, to share where the server can."""
        node = node or self.node
        self._nodes.add(node)
        self._api.call("DELETE", f"{_GROUP}/resourceslices/{node}")
        step = {"min": "1Mi", "step": "1Mi"}
        memory = {"value": _SIZE, "requestPolicy": {"default": _SIZE, "validRange": step}}
        devices = [
            {
                "name": f"gpu-{number}",
                "attributes": {"uuid": {"string": uuid}},
                "capacity": {"memory": memory},
                "allowMultipleAllocations": True,
            }
            for number, uuid in enumerate(uuids)
        ]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": NVIDIA, "nodeName": node, "pool": pool, "devices": devices}
        self._make("resourceslices", node, spec)

    def attach(self, driver: str) -> None:
        """Have a driver offer a device that all nodes can reach, and a class of its name."""
        self._attached.add(driver)
        selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
        self._make("deviceclasses", driver, {"selectors": [selector]})
        pool = {"name": "network", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "allNodes": True, "pool": pool, "devices": [{"name": "device-0"}]}
        self._make("resourceslices", driver, spec)

    def _make(self, kind: str, name: str, spec: Any) -> None:
        self._api.ask("POST", f"{_GROUP}/{kind}", {"metadata": {"name": name}, "spec": spec})

    def claim(self, name: str, memory: str = "", *, of: str = NVIDIA) -> None:
        """A claim for a card, or for so much of one; or for a device of another class."""
        request: dict[str, Any] = {"deviceClassName": of}
        request |= {"capacity": {"requests": {"memory": memory}}} if memory else {}
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}
        self._api.ask("POST", self._path(), {"metadata": {"name": name}, "spec": spec})

    def read(self, name: str) -> Object | None:
        """A claim as it is now; None if it is not there."""
        answer = self._api.call("GET", self._path(name))
        return answer.object if answer.status == 200 else None

    def delete(self, name: str) -> None:
        """Delete a claim; while a pod has it, it stays until that is gone."""
        self._api.ask("DELETE", self._path(name))

    def pod(self, name: str, claim: str, *, node: str = "", bound: bool = False) -> Object:
        """A pod with this claim, once it runs on a node: by the scheduler, or by its spec alone if `bound`."""
        node = node or self.node
        spec: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
        container = {"resources": {"claims": [{"name": "gpu"}]}}
        made = self._pods.create(name, node=node if bound else "", running=False, spec=spec, container=container)
        wait_until(lambda: self._pods.read(made)["spec"].get("nodeName") == node)
        return self._pods.run(made)

    def _path(self, name: str = "") -> str:
        return f"{_GROUP}/namespaces/{self._pods.namespace}/resourceclaims" + (f"/{name}" if name else "")
