"""Who may be broken by the end of a pod's processes, by what the driver lists of MPS (point 36)."""

from collections.abc import Mapping

from tests.soak.cluster import Tenant
from tests.soak.driver import Told
from tests.soak.kernel import Task
from tests.soak.truth import may_serve_others, true_to_claim
from watchdog.core.policy import Policy


def is_needed(told: Told, uid: str, tenants: Mapping[str, Tenant], policy: Policy) -> bool:
    """Whether a process of the pod may be a client of a server that is not its own, or a server that others have.

    A server that honestly runs in a pod that serves nobody else is its clients' own, where no other one is listed.
    """
    servers = [(line.gpu, line.task) for line in told.lines if line.task is not None and line.task.named]
    clients = {(line.gpu, line.task.pod) for line in told.lines if line.task is not None and line.mps is not False}
    serves = any(task.pod == uid for _, task in servers)
    if not serves and all(pod != uid for _, pod in clients):
        return False
    if serves and may_serve_others(tenants[uid]):
        return True
    own = {(gpu, task.pod) for gpu, task in servers if _serves_its_pod(task, tenants)}
    open_gpus = {gpu for gpu, task in servers if not _serves_its_pod(task, tenants)}
    open_gpus |= {gpu for gpu, _ in clients - own}
    mine = {gpu for gpu, pod in own if pod == uid and serves}
    if not policy.safety.signal_mps_clients:
        mine |= {gpu for gpu, pod in clients if pod == uid}
    return not mine.isdisjoint(open_gpus)


def _serves_its_pod(task: Task, tenants: Mapping[str, Tenant]) -> bool:
    tenant = tenants.get(task.pod or "")
    return tenant is not None and not may_serve_others(tenant) and true_to_claim(task) and task.lives
