"""What can be found of the policy and of the files with Kubernetes' objects, in words."""

from typing import Final

from watchdog.doctor.finding import ENFORCING, Topic, missing, ok, warning

POLICY: Final = Topic(
    name="policy",
    means="There is a policy, and no mistake in it. Without one `run` does not start.",
    cases={
        "valid": ok("{path} is a valid policy"),
        "mistake": missing("mistake: {problem}", "mend the file; `gpu-watchdog check {path}` lists every mistake"),
        "more": missing("more mistakes in {path}: {count}", "`gpu-watchdog check {path}` lists every mistake"),
        "absent": missing(
            "there is no policy {path}", "name one with --policy; config/policy.toml of the project is a beginning"
        ),
    },
)
MODE: Final = Topic(
    name="mode",
    means="What the policy asks for. To observe is fine: it measures, decides and records, and acts on nobody.",
    cases={
        "observe": ok("the policy observes: nobody is acted on"),
        "enforce": ok("the policy enforces"),
    },
)
WARNINGS: Final = Topic(
    name="policy_warnings",
    means="The policy says nothing that is hardly meant.",
    cases={
        "none": ok("the policy gives no warning"),
        "warning": warning("odd: {warning}", "change the policy if it is not meant"),
    },
)
FOLLOWED: Final = Topic(
    name="policy_followed",
    means="This version follows every setting of the policy; as long as it does not, it only observes.",
    purposes=ENFORCING,
    cases={
        "all": ok("every setting of the policy is followed"),
        "not": missing("not followed by this version: {settings}", "take these settings out of the policy"),
    },
)
RUNNING: Final = Topic(
    name="policy_running",
    means="The daemon that answers on `--listen` goes by this very policy.",
    cases={
        "same": ok("the daemon on {listen} goes by this policy"),
        "kept": warning(
            "a daemon runs here ({listen}) and goes on with the last good policy, not with {path}",
            "mend {path}: the daemon reads it again when it changes",
        ),
        "another": warning(
            "the daemon on {listen} goes by another policy than {path}",
            "see that --policy names the file that the daemon reads; otherwise look for policy_refused in its log",
        ),
    },
)
PODS: Final = Topic(
    name="pods",
    means="There is a pod list, and it can be read. Without one every process of a pod is of an unknown pod.",
    cases={
        "read": ok("pods in {path}: {count}"),
        "none_named": missing(
            "no pod list is named: every process of a pod is of an unknown pod",
            "give --pods FILE with what `kubectl get pods -A -o json` prints",
        ),
        "unreadable": missing("pod list {path}: {problem}", "{remedy}"),
        "empty": warning("{path} holds no pod", "see that whatever writes it asks for all namespaces (-A)"),
    },
)
PODS_FRESH: Final = Topic(
    name="pods_fresh",
    means="The pod list was written recently. The daemon takes a file that stands still for true, so one whose writer "
    "has died is not noticed otherwise.",
    cases={
        "fresh": ok("the pod list was written {age} ago"),
        "old": warning(
            "the pod list was written {age} ago (stale_after is {limit}); a file that stands still counts as true, so "
            "the daemon goes on using force by it",
            "see that whatever writes it still runs; it should write again even where nothing has changed",
        ),
        "future": warning("the pod list was written in the future", "see that the clock is right"),
    },
)
PODS_NODE: Final = Topic(
    name="pods_node",
    means="The pod list has pods of this very node.",
    cases={
        "here": ok("the pod list has pods of node {node}"),
        "elsewhere": warning("{path}: {said}", "{remedy}"),
    },
)
PODS_READABLE: Final = Topic(
    name="pods_readable",
    means="Every pod of the list can be read.",
    cases={
        "all": ok("every pod of the list can be read"),
        "some": warning(
            "{what} is left out: {why}", "look at this pod: its processes count as those of an unknown pod"
        ),
    },
)
PODS_CONTAINERS: Final = Topic(
    name="pods_containers",
    means="The pod list has IDs of containers, by which processes are told apart; they stand in `status`.",
    cases={
        "known": ok("containers with an ID in the pod list: {count}"),
        "none": missing(
            "no container of the pod list has an ID: nobody can be acted on",
            "write the whole objects (kubectl get pods -A -o json), with `status`; just after a start wait a minute",
        ),
    },
)
PODS_KNOWN: Final = Topic(
    name="pods_known",
    means="Processes on the GPUs that stand in the cgroup of a pod are of pods that the list has.",
    cases={
        "all": ok("every pod with processes on the GPUs is in the pod list"),
        "some": warning(
            "processes on the GPUs that are of no pod in the list: {count}, like {pid}",
            "see that the list is of this node and fresh; a pod that has just started is missing for some seconds",
        ),
    },
)
NODE_OBJECT: Final = Topic(
    name="node_object",
    means="The node's own object can be read, where the policy asks for labels of the node.",
    cases={
        "read": ok("the labels of node {node} are known"),
        "unneeded": ok("the policy asks for no label of the node"),
        "rules": missing(
            "the labels of the node are not known, and rules match by them ({names}): pods that these may be for are "
            "left alone",
            "give --node-object FILE with what `kubectl get node {node} -o json` prints",
        ),
        "declarations": warning(
            "the labels of the node are not known, and declarations ask for them ({names}): these do not apply",
            "give --node-object FILE with what `kubectl get node {node} -o json` prints",
        ),
        "unreadable": missing("{what}: {problem}", "{remedy}"),
        "unneeded_unreadable": warning("{what}, which the policy does not need: {problem}", "{remedy}"),
        "label": warning(
            "the node has no label {label}, and the declaration {name} takes its shares from it: it does not apply",
            "label the node (GPU feature discovery does), or give the shares as a number",
        ),
    },
)
NAMESPACES: Final = Topic(
    name="namespaces",
    means="The labels of namespaces can be read, where the policy asks for them.",
    cases={
        "read": ok("namespaces whose labels are known: {count}"),
        "unneeded": ok("the policy asks for no label of a namespace"),
        "rules": missing(
            "the labels of namespaces are not known, and rules match by them ({names}): pods that these may be for are "
            "left alone",
            "give --namespaces FILE with what `kubectl get namespaces -o json` prints",
        ),
        "some": warning("{what}: {problem}", "{remedy}"),
        "unreadable": missing("{what}: {problem}", "{remedy}"),
        "unneeded_unreadable": warning("{what}, which the policy does not need: {problem}", "{remedy}"),
    },
)
TOPICS: Final = (
    *(POLICY, RUNNING, MODE, WARNINGS, FOLLOWED),
    *(PODS, PODS_FRESH, PODS_NODE, PODS_READABLE, PODS_CONTAINERS, PODS_KNOWN, NODE_OBJECT, NAMESPACES),
)
