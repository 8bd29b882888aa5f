"""Why nothing is done where a step is due: its rule only observes, the policy does, or enforcement is suspended."""

from typing import Final

from watchdog.core.assessment import Assessment
from watchdog.core.policy import Policy
from watchdog.export.phrases import LONGEST_NAME, inert

# In short; the remedies stand beside the reasons themselves (watchdog.daemon.enforcement).
_SUSPENDED: Final = {
    "pid_namespace": "it does not run in the host's PID namespace",
    "procfs": "its /proc is of another PID namespace",
    "pidfd": "the pidfd calls are missing",
    "policy_section": "the policy has a section that has no effect in this version",
    "lock": "another watchdog holds the lock",
    "journal": "the journal can't be opened",
    "stop_file": "the stop file",
    "node_annotation": "the annotation of the node",
    "node_unknown": "the node's own object is not known",
    "policy_file": "the policy file is new or has changed, and has not settled",
}


def observing_because(
    assessment: Assessment, limit: int = LONGEST_NAME, policy: Policy | None = None, suspended: tuple[str, ...] = ()
) -> str:
    """Why nothing is done; `suspended` are the reasons why a daemon that was told to enforce does not."""
    rule = assessment.rule
    if assessment.observes and rule is not None:
        if rule.mode == "observe" or rule.active is None:
            return "this rule only observes"
        return f"this rule only observes outside its hours ({inert(rule.active.text, limit)})"
    if suspended:
        return f"enforcement is suspended ({suspended_because(suspended)})"
    if policy is not None and policy.mode == "enforce":
        return "enforcement was suspended"
    return "observe mode"


def suspended_because(suspended: tuple[str, ...]) -> str:
    """Why enforcement is suspended, in short."""
    return "; ".join(_SUSPENDED.get(each, inert(each)) for each in suspended)


def is_idle(assessment: Assessment, policy: Policy | None, suspended: tuple[str, ...]) -> bool:
    """Whether nothing is done, as far as that is known; without the policy it is not known of the mode."""
    return assessment.observes or bool(suspended) or (policy is not None and policy.mode == "observe")
