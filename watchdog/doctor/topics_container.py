"""What can be found of what a pod's manifest gives its container, in words."""

from typing import Final

from watchdog.doctor.finding import ENFORCING, Topic, missing, ok, warning

APPARMOR: Final = Topic(
    name="apparmor",
    means="No AppArmor profile keeps signals from the processes of pods. Those that container runtimes give let them "
    "through to processes under the same profile alone. Asking whether a signal is allowed (signal 0) may pass where "
    "SIGTERM and SIGKILL are denied, so a pod may be killed by halves.",
    purposes=ENFORCING,
    cases={
        "free": ok("no AppArmor profile confines this process"),
        "default": missing(
            "this process is under the AppArmor profile {profile}: a pod that is privileged, unconfined or has its own "
            "profile can't be killed, or only in part",
            "set securityContext.appArmorProfile to type: Unconfined, as the chart does; with Docker "
            "--security-opt apparmor=unconfined",
        ),
        "own": warning(
            "this process is under the AppArmor profile {profile}, and whether that lets signals through can't be seen",
            "see that it has the rule `signal,`, or set securityContext.appArmorProfile to type: Unconfined",
        ),
    },
)
SELINUX: Final = Topic(
    name="selinux",
    means="SELinux does not hold this process as it holds the containers of pods.",
    purposes=ENFORCING,
    cases={
        "free": ok("SELinux does not hold this process as a container"),
        "container": warning(
            "this process has the SELinux type {type}, as containers have: where SELinux is enforcing it can hardly "
            "signal other pods' processes or write to a folder of the node",
            "give it the type spc_t: securityContext.seLinuxOptions, in the chart seLinuxOptions.type=spc_t",
        ),
    },
)
POLICY_MOUNT: Final = Topic(
    name="policy_mount",
    means="In a pod the policy comes from outside of the image. The image has one at the same place. As it ships, a "
    "daemon only observes by it where the ConfigMap's mount is forgotten; who puts one that enforces into an image of "
    "their own means it.",
    purposes=ENFORCING,
    cases={
        "outside": ok("this is no container of a pod"),
        "mounted": ok("the policy's folder {folder} is mounted"),
        "image": missing(
            "the policy's folder {folder} is not mounted: the policy is the image's own",
            "mount the ConfigMap with the policy there, the folder as a whole; or name the right file with --policy",
        ),
        "baked": warning(
            "the policy's folder {folder} is not mounted: the daemon enforces by the image's own policy",
            "if that is not meant, mount the ConfigMap with the policy there, the folder as a whole",
        ),
    },
)
TEMPORARY: Final = Topic(
    name="temporary_folder",
    means="There is a folder for temporary files. SQLite sorts there what memory does not hold, and a journal that "
    "can't be read where it lies is copied there.",
    purposes=ENFORCING,
    cases={
        "there": ok("temporary files can be made in {folder}"),
        "lacking": warning("temporary files can be made nowhere: {problem}", "mount an emptyDir at /tmp"),
    },
)
POD_UID: Final = Topic(
    name="pod_uid",
    means="In a pod it is known which one that is, so that the daemon never acts on it: by its cgroup, or, where a "
    "private cgroup namespace hides that, by the UID that the manifest passes in.",
    purposes=ENFORCING,
    cases={
        "outside": ok("this is no container of a pod"),
        "known": ok("this runs in the pod with the UID {uid}"),
        "unknown": warning(
            "which pod this runs in is not known: its cgroup does not show it, and the manifest does not tell its UID; "
            "the daemon does not spare the other containers of its own pod",
            "set GPU_WATCHDOG_POD_UID by the downward API (fieldRef: metadata.uid), as the chart does",
        ),
    },
)
TOPICS: Final = (APPARMOR, SELINUX, POLICY_MOUNT, TEMPORARY, POD_UID)
