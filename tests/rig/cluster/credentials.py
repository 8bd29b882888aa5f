"""The accounts at the API server of the tests: users with static tokens, service accounts, kubeconfig files."""

import base64
import json
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.rig.cluster.certificates import new_key, openssl

ISSUER: Final = "https://kubernetes.default.svc"
ADMIN: Final = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user of the token file."""

    name: str
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_hex(16))


def node_user(node: str) -> User:
    """The user that a node's kubelet is."""
    return User(name=f"system:node:{node}", groups=("system:nodes",))


def default_users() -> tuple[User, ...]:
    """Those of every control plane; only the admin may do anything before a test gives rights."""
    plain = tuple(User(name=name) for name in ("daemon", "tenant", "nobody"))
    return (User(name=ADMIN, groups=("system:masters",)), *plain)


def write_token_file(path: Path, users: Iterable[User]) -> None:
    """As --token-auth-file wants it: token, user, UID, groups."""
    lines = (f'{user.token},{user.name},{user.name},"{",".join(user.groups)}"\n' for user in users)
    path.write_text("".join(lines), encoding="utf-8")
    path.chmod(0o600)


class Signer:
    """The key that service account tokens are signed with."""

    def __init__(self, folder: Path) -> None:
        """`folder` gets the key pair."""
        self.key = folder / "service-account.key"
        self.public = folder / "service-account.pub"
        new_key(self.key, rsa=True)
        openssl("pkey", "-in", str(self.key), "-pubout", "-out", str(self.public))

    def token(self, namespace: str, name: str, uid: str, *, lasts_s: float, begins_s: float = 0.0) -> str:
        """A service account's token as the API server itself would sign it.

        It is valid from `begins_s` after now (or before, if negative) for `lasts_s`; so it can be an expired one,
        which TokenRequest does not give (it wants 10 minutes at least).
        """
        begin = time.time() + begins_s
        account = {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}}
        claims: dict[str, object] = {"iss": ISSUER, "aud": [ISSUER], "sub": f"system:serviceaccount:{namespace}:{name}"}
        claims |= {"iat": int(begin), "nbf": int(begin), "exp": int(begin + lasts_s), "kubernetes.io": account}
        signed = f"{_part({'alg': 'RS256', 'typ': 'JWT', 'kid': self._key_id()})}.{_part(claims)}"
        signature = openssl("dgst", "-sha256", "-sign", str(self.key), data=signed.encode())
        return f"{signed}.{_encode(signature)}"

    def _key_id(self) -> str:
        # keyIDFromPublicKey in k8s.io/kubernetes/pkg/serviceaccount: the SHA-256 of the public key's DER form.
        der = openssl("pkey", "-pubin", "-in", str(self.public), "-outform", "DER")
        return _encode(openssl("dgst", "-sha256", "-binary", data=der))


def in_a_pod(account: Path) -> tuple[str, ...]:
    """What to put before a command that has this folder where the kubelet mounts a service account. Needs root."""
    place = "/run/secrets/kubernetes.io/serviceaccount"
    script = f'mount -t tmpfs tmpfs /run && mkdir -p {place} && mount --bind "$0" {place} && exec "$@"'
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(account))


def write_kubeconfig(path: Path, *, server: str, ca: Path | None, token: str | None = None) -> Path:
    """A kubeconfig file of one cluster and one user, JSON being YAML."""
    cluster: dict[str, object] = {"server": server}
    if ca is not None:
        cluster["certificate-authority"] = str(ca)
    user = {} if token is None else {"token": token}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "user"}}],
        "current-context": "tests",
    }
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")
    path.chmod(0o600)
    return path


def _part(value: object) -> str:
    return _encode(json.dumps(value, separators=(",", ":")).encode())


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
