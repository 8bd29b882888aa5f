"""The rights of this account: each that the policy needs, and what does not work without it."""

import shlex
from collections.abc import Iterable
from pathlib import Path

import watchdog.doctor.topics_rights as topic
from watchdog.doctor.api_facts import ApiFacts
from watchdog.doctor.finding import Finding
from watchdog.doctor.remedied import remedied
from watchdog.kube.manifests import NAMESPACE, SERVICE_ACCOUNT


def check_rights(facts: ApiFacts | None, path: Path) -> Iterable[Finding]:
    """What this account may and may not; `path` is the policy's, for the remedy."""
    if facts is None:
        return
    remedy = _remedy(facts.account.name, path)
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


def _remedy(account: str, path: Path) -> dict[str, str]:
    """The command that prints what this account needs; it prints for service accounts alone."""
    words = ["gpu-watchdog", "rights", "--policy", str(path)]
    who, _, name = account.rpartition(":")
    kind, _, namespace = who.partition(":serviceaccount:")
    if kind == "system" and namespace:
        words += ["--namespace", namespace] if namespace != NAMESPACE else []
        words += ["--service-account", name] if name != SERVICE_ACCOUNT else []
        return {"command": shlex.join(words), "instead": ""}
    instead = f", with the user {account} in place of the service account" if account else ""
    return {"command": shlex.join(words), "instead": instead}
