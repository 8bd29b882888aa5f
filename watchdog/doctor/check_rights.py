"""The rights of this account: each that the policy needs, and what does not work without it."""

import shlex
from collections.abc import Iterable
from pathlib import Path

import watchdog.doctor.topics_rights as topic
from watchdog.doctor.api_facts import ApiFacts
from watchdog.doctor.finding import Finding
from watchdog.doctor.remedied import remedied
from watchdog.kube.reviews import Account
from watchdog.kube.rights import NAMESPACE, SERVICE_ACCOUNT
from watchdog.options import DEFAULT_POLICY


def check_rights(facts: ApiFacts | None, path: Path) -> Iterable[Finding]:
    """What this account may and may not; `path` is the policy's, for the remedy."""
    if facts is None:
        return
    remedy = _remedy(facts.account, path, in_pod=facts.kubeconfig is None)
    if facts.rights_problem:
        yield topic.ASKED.say("unknown", **remedied(facts.rights_problem, "look at the log of the API server"))
    for right, lacking in facts.rights.items():
        where = topic.TOPIC_OF[right]
        if lacking:
            yield where.say("lacking", verbs=" or ".join(lacking), target=right.target, **remedy)
        else:
            yield where.say("held", verbs=" and ".join(right.verbs), target=right.target)
    if facts.later:
        missing = [f"{' and '.join(verbs)} {right.target}" for right, verbs in facts.later.items() if verbs]
        case = "lacking" if missing else "held"
        yield topic.LATER.say(case, targets=", ".join(missing), **remedy)


def _remedy(account: Account, path: Path, *, in_pod: bool) -> dict[str, str]:
    """The command that prints what this account needs; it prints for service accounts alone.

    What lies in a pod, the policy above all, is read there; who applies what is printed sits elsewhere.
    """
    words = ["gpu-watchdog", "rights", *([] if in_pod and path == DEFAULT_POLICY else ["--policy", str(path)])]
    who, _, name = account.name.rpartition(":")
    kind, _, namespace = who.partition(":serviceaccount:")
    if in_pod:
        words = ["kubectl", "-n", namespace or "NAMESPACE", "exec", account.pod or "POD", "--", *words]
    if kind == "system" and namespace:
        words += ["--namespace", namespace] if namespace != NAMESPACE else []
        words += ["--service-account", name] if name != SERVICE_ACCOUNT else []
        return {"command": shlex.join(words), "instead": ""}
    instead = f", with the user {account.name} in place of the service account" if account.name else ""
    return {"command": shlex.join(words), "instead": instead}
