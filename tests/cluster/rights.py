"""Rights that a test gives to one of the users."""

from tests.cluster.control_plane import ControlPlane


def allow(plane: ControlPlane, user: str, namespace: str) -> None:
    """Let a user read and evict pods."""
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    ]
    name = f"tests-{user}"
    rbac = "rbac.authorization.k8s.io"
    subject = {"apiGroup": rbac, "kind": "User", "name": user}
    role = {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules}
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "subjects": [subject],
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
    }
    plane.apply([role, binding], namespace=namespace)
