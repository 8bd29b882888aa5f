"""A control plane of Kubernetes as processes of this machine: etcd, API server, controller manager, scheduler."""

import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.node.support import wait_until
from tests.ports import free_port
from tests.rig.cluster.api import Api, Object
from tests.rig.cluster.audit import POLICY, AuditLog
from tests.rig.cluster.certificates import Authority
from tests.rig.cluster.credentials import ADMIN, Signer, User, default_users, write_kubeconfig, write_token_file
from tests.rig.cluster.network import LOOPBACK, Network
from tests.rig.cluster.servers import Layout
from tests.rig.cluster.throttle import throttle


class ControlPlane:
    """A context manager: all is up and ready inside, every process is gone after it."""

    def __init__(
        self,
        folder: Path,
        *,
        programs: Path,
        network: Network = LOOPBACK,
        controllers: bool = True,
        scheduler: bool = True,
        users: Sequence[User] = (),
    ) -> None:
        """`folder` must not be in use; it gets certificates, data and logs. `users` come beside the default ones."""
        self.folder = folder
        self.network = network
        self.port = network.port or free_port(network.address)
        self._programs = programs
        self._numbers = itertools.count(1)
        self._outdated = False  # the controllers, by a restart of the API server
        self._users = {user.name: user for user in (*default_users(), *users)}
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(folder / "pki")
        self.signer = Signer(folder / "pki")
        write_token_file(folder / "tokens.csv", self._users.values())
        (folder / "audit-policy.json").write_text(json.dumps(POLICY), encoding="utf-8")
        layout = Layout(
            network=network,
            port=self.port,
            folder=folder,
            programs=programs,
            authority=self.authority,
            signer=self.signer,
        )
        self.etcd, self._etcd_api = layout.etcd()
        self.apiserver = layout.apiserver()
        # What the API server was asked, counted by itself.
        self.requests = AuditLog(folder / "audit.log").requests
        self.admin_kubeconfig = self.kubeconfig(token=self.token(ADMIN))
        self.api = Api(network, self.port, ca=self.ca, token=self.token(ADMIN))
        self.controller_manager = layout.controller_manager(self.admin_kubeconfig) if controllers else None
        self.scheduler = layout.scheduler(self.admin_kubeconfig) if scheduler else None

    def __enter__(self) -> Self:
        try:
            self.etcd.start()
            self.etcd.wait_for(self._etcd_api.healthy)
            self.apiserver.start()
            self.apiserver.wait_for(self._ready)
            self._start_controllers()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # SIGKILL: nothing of it is needed any more, and the API server would wait for its watchers.
        for server in filter(None, (self.scheduler, self.controller_manager, self.apiserver, self.etcd)):
            server.stop(hard=True)

    @property
    def url(self) -> str:
        """Where the API server is, for a client in the same network."""
        return f"https://{self.network.address}:{self.port}"

    @property
    def kubectl_program(self) -> Path:
        """Its kubectl."""
        return self._programs / "kubectl"

    @property
    def ca(self) -> Path:
        """The certificate to trust."""
        return self.authority.certificate

    def token(self, user: str) -> str:
        """The static token of a user."""
        return self._users[user].token

    def kubeconfig(self, *, token: str | None = None, server: str | None = None, ca: Path | None = None) -> Path:
        """A new kubeconfig file; without `server` and `ca` for the API server itself."""
        path = self.folder / f"kubeconfig-{next(self._numbers)}"
        return write_kubeconfig(path, server=server or self.url, ca=ca or self.ca, token=token)

    def kubectl(
        self,
        *arguments: str,
        input: str | None = None,  # noqa: A002 - as subprocess.run calls it
        check: bool = True,
        kubeconfig: Path | None = None,
        limit_s: float = 180.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl, as the admin unless a kubeconfig is given. Raises CalledProcessError, with stderr as a note."""
        command = [*self.network.enter, str(self.kubectl_program), *arguments]
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder)}
        environment["KUBECONFIG"] = str(kubeconfig or self.admin_kubeconfig)
        ended = subprocess.run(
            command, input=input, capture_output=True, text=True, timeout=limit_s, env=environment, check=False
        )
        if check and ended.returncode:
            error = subprocess.CalledProcessError(ended.returncode, command, ended.stdout, ended.stderr)
            error.add_note(ended.stderr)
            raise error
        return ended

    def apply(self, objects: Object | Sequence[Object], *, namespace: str | None = None) -> None:
        """Create objects or bring them to what is given (server-side apply)."""
        items = [objects] if isinstance(objects, dict) else list(objects)
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        where = ("-n", namespace) if namespace else ()
        self.kubectl("apply", "--server-side", "--force-conflicts", *where, "-f", "-", input=text)

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object:
        """One object. Raises CalledProcessError."""
        where = ("-n", namespace) if namespace else ()
        found: Object = json.loads(self.kubectl("get", kind, name, *where, "-o", "json").stdout)
        return found

    def make_namespace(self, name: str) -> None:
        """Create a namespace if need be; one that is being deleted is waited out."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}

        def is_there() -> bool:
            self.api.call("POST", "/api/v1/namespaces", body)
            found = self.api.call("GET", f"/api/v1/namespaces/{name}")
            return found.status == 200 and found.object["status"]["phase"] == "Active"

        wait_until(is_there)

    def service_account_token(self, namespace: str, name: str, *, bound: Object | None = None) -> str:
        """A token by TokenRequest, of an hour; `bound` is a Pod, Node or Secret that it ends with.

        For an expired one, or one of tomorrow: `signer.token`. The server keeps what it thinks of a token for 10 s.
        """
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if bound is not None:
            meta = bound["metadata"]
            spec["boundObjectRef"] = {
                "apiVersion": "v1",
                "kind": bound["kind"],
                "name": meta["name"],
                "uid": meta["uid"],
            }
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return str(self.api.ask("POST", path, body)["status"]["token"])

    def kill_apiserver(self) -> None:
        """End the API server by SIGKILL, which closes no connection properly."""
        self.apiserver.stop(hard=True)

    def start_apiserver(self, *flags: str) -> None:
        """Start it again on the same port with the same certificates and data, and wait until it is ready.

        `flags` are for this life of it alone.
        """
        self.apiserver.start(*flags)
        self.apiserver.wait_for(self._ready)
        self._outdated = True

    def settle(self) -> None:
        """Begin the controllers and the scheduler again if the API server was restarted beneath them.

        They would come back by themselves, but each of their watches waits for up to 30 s (client-go's reflectors).
        """
        if self._outdated:
            for server in filter(None, (self.scheduler, self.controller_manager)):
                server.stop(hard=True)
            self._start_controllers()

    def expire_history(self) -> int:
        """Make every resourceVersion known so far one of the past: a watch from there gets 410. Restarts the server.

        Gives the first revision that is still there. Compaction alone would not do: the API server's watch cache keeps
        its own history. The cache of a new server begins at the revision of its first list, so what is older is
        "too old resource version" there, and gone in etcd below.
        """
        self.kill_apiserver()
        revision = max(self._etcd_api.put("/tests/history", str(number)) for number in range(5))
        self._etcd_api.compact(revision)
        self.start_apiserver()
        return revision

    def throttle(self, user: str) -> contextlib.AbstractContextManager[None]:
        """Inside, every request of that user gets 429 with Retry-After and a body of plain text."""
        return throttle(self.api, user)

    def _start_controllers(self) -> None:
        for server in filter(None, (self.controller_manager, self.scheduler)):
            server.start()
        if self.controller_manager is not None:
            self.controller_manager.wait_for(self._has_default_account)
        self._outdated = False

    def _ready(self) -> bool:
        return self._answers("/readyz")

    def _has_default_account(self) -> bool:
        return self._answers("/api/v1/namespaces/default/serviceaccounts/default")

    def _answers(self, path: str) -> bool:
        try:
            return self.api.call("GET", path, headers={"User-Agent": "tests-readiness"}, timeout_s=5).status == 200
        except OSError:
            return False
