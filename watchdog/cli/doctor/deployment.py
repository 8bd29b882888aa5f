"""Checks of how the daemon is deployed: its container, and its policy."""

from collections.abc import Iterator
from typing import Final

from watchdog.cli.doctor.facts import Facts
from watchdog.cli.doctor.finding import CheckResult, missing, ok, to_enforce, to_observe, warning
from watchdog.config.load import unit_mistakes

_MOST_MISTAKES: Final = 5


@to_enforce()
def apparmor(facts: Facts) -> Iterator[CheckResult]:
    """No AppArmor profile blocks signals to the processes of pods.

    Those of container runtimes only allow signals to processes under the same profile. Testing with signal 0 may
    succeed where SIGTERM and SIGKILL are denied, so a pod could be killed only in part.
    """
    profile = facts.container.confinement.profile
    if not profile:
        yield ok("no AppArmor profile confines this process")
    elif facts.container.confinement.is_of_runtime:
        yield missing(
            f"this process runs under the AppArmor profile {profile}: a pod that is privileged, unconfined or has its "
            "own profile can't be killed, or only in part",
            "set securityContext.appArmorProfile to type: Unconfined, as the chart does; with Docker "
            "--security-opt apparmor=unconfined",
        )
    else:
        yield warning(
            f"this process runs under the AppArmor profile {profile}; whether that allows signals can't be determined",
            "check that it has the rule `signal,`, or set securityContext.appArmorProfile to type: Unconfined",
        )


@to_enforce()
def selinux(facts: Facts) -> Iterator[CheckResult]:
    """SELinux does not confine this process the way it confines the containers of pods."""
    label_type = facts.container.confinement.selinux_type
    # container_t, container_init_t, container_engine_t and the like (container-selinux); spc_t is unconfined.
    if label_type.startswith(("container_", "svirt_lxc_")):
        yield warning(
            f"this process has the SELinux type {label_type}, like a container: if SELinux is enforcing, it probably "
            "can't signal other pods' processes or write to a folder of the node",
            "give it the type spc_t: securityContext.seLinuxOptions, in the chart seLinuxOptions.type=spc_t",
        )
    else:
        yield ok("SELinux does not confine this process as a container")


@to_enforce()
def policy_mount(facts: Facts) -> Iterator[CheckResult]:
    """In a pod the policy comes from outside the image.

    The image has one at the same path, which only observes: a daemon uses it if the mount of the ConfigMap is missing.
    A policy that enforces, in an image of your own, counts as intended.
    """
    folder, policy = facts.options.policy.parent, facts.policy.policy
    if not facts.container.in_pod:
        yield ok("this does not run in a pod")
    elif facts.container.has_policy_mount:
        yield ok(f"the policy's folder {folder} is mounted")
    elif policy is None or policy.mode != "enforce":
        yield missing(
            f"the policy's folder {folder} is not mounted: the policy is the image's own",
            "mount the ConfigMap with the policy there, as a whole folder; or give the right file with --policy",
        )
    else:
        yield warning(
            f"the policy's folder {folder} is not mounted: the daemon enforces by the image's own policy",
            "unless this is intended, mount the ConfigMap with the policy there, as a whole folder",
        )


@to_enforce()
def temporary_folder(facts: Facts) -> Iterator[CheckResult]:
    """There is a folder for temporary files.

    SQLite uses it for large sorts, and a journal that can't be read in place is copied there.
    """
    folder, problem = facts.container.temporary_folder, facts.container.temporary_problem
    if problem:
        yield warning(f"no folder for temporary files: {problem}", "mount an emptyDir at /tmp")
    else:
        yield ok(f"temporary files can be created in {folder}")


@to_enforce()
def pod_uid(facts: Facts) -> Iterator[CheckResult]:
    """The daemon knows which pod it runs in, so that it never acts on that.

    It knows from its cgroup or, if a private cgroup namespace hides that, from the UID that the manifest passes in.
    """
    own = facts.processes.environment.own
    uid = None if own is None else own.pod
    if uid:
        yield ok(f"this runs in the pod with the UID {uid}")
    elif not facts.container.in_pod:
        yield ok("this does not run in a pod")
    else:
        yield warning(
            "which pod this runs in is unknown: its cgroup does not show it, and the manifest does not pass its UID; "
            "the daemon may act on the other containers of its own pod",
            "set GPU_WATCHDOG_POD_UID by the downward API (fieldRef: metadata.uid), as the chart does",
        )


@to_observe()
def policy(facts: Facts) -> Iterator[CheckResult]:
    """There is a policy without mistakes. Without one `run` does not start."""
    path, mistakes = facts.options.policy, facts.policy.problems
    if facts.policy.policy is not None:
        yield ok(f"{path} is a valid policy")
    elif not facts.policy.is_there:
        yield missing(
            f"there is no policy at {path}",
            "give one with --policy; config/policy.toml of the project is a starting point",
        )
    else:
        for mistake in mistakes[:_MOST_MISTAKES]:
            yield missing(f"mistake: {mistake}", f"fix the file; `gpu-watchdog check {path}` lists every mistake")
        count = len(mistakes) - _MOST_MISTAKES
        if count > 0:
            yield missing(f"more mistakes in {path}: {count}", f"`gpu-watchdog check {path}` lists every mistake")


@to_observe(given=lambda facts: facts.policy.policy is not None)
def mode(facts: Facts) -> Iterator[CheckResult]:
    """What the policy asks for. Observing is fine: it measures, decides and records, but takes no action."""
    if facts.known_policy.mode == "observe":
        yield ok("the policy only observes: no action is taken")
    else:
        yield ok("the policy enforces")


@to_observe(given=lambda facts: facts.policy.policy is not None)
def policy_warnings(facts: Facts) -> Iterator[CheckResult]:
    """Nothing in the policy looks unintended."""
    mistakes = {f"{each.path}: {each.what}" for each in unit_mistakes(facts.known_policy)}
    texts = [text for text in facts.known_policy.warnings if text not in mistakes]
    for text in texts:
        yield warning(f"warning: {text}", "change the policy unless this is intended")
    if not texts:
        yield ok("the policy has no warnings")


@to_enforce(given=lambda facts: facts.policy.policy is not None)
def policy_units(facts: Facts) -> Iterator[CheckResult]:
    """No table has a smaller unit than the scheme that knows its key. Such a table applies to no pod."""
    mistakes = unit_mistakes(facts.known_policy)
    for mistake in mistakes:
        place, (what, _, remedy) = mistake.path, mistake.what.partition("; ")
        yield missing(f"{place}: {what}", remedy)
    if not mistakes:
        yield ok("every unit agrees with the scheme that knows its key, or the policy says that it differs")


@to_observe(given=lambda facts: bool(facts.listen.policy_sha256))
def policy_running(facts: Facts) -> Iterator[CheckResult]:
    """The daemon that answers on `--listen` uses this policy."""
    listen, path, policy = facts.options.listen, facts.options.policy, facts.policy.policy
    if policy is None:
        yield warning(
            f"the daemon on {listen} keeps using the last valid policy instead of {path}",
            f"fix {path}: the daemon reloads it when it changes",
        )
    elif policy.sha256 == facts.listen.policy_sha256:
        yield ok(f"the daemon on {listen} uses this policy")
    else:
        yield warning(
            f"the daemon on {listen} uses another policy than {path}",
            "check that --policy names the file that the daemon reads; otherwise look for policy_refused in its log",
        )
