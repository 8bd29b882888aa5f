"""What can be found of the pods, the node's object and the namespaces, from files or from the API, in words."""

from typing import Final

from watchdog.doctor.finding import ENFORCING, Topic, missing, ok, warning

PODS: Final = Topic(
    name="pods",
    means="There is a pod list, and it can be read. Without one every process of a pod is of an unknown pod.",
    cases={
        "read": ok("pods in {path}: {count}"),
        "none_named": missing(
            "there is no way to the pods of this node: every process of a pod is of an unknown pod",
            "run in a pod with a service account, or give --kubeconfig FILE; or give --pods FILE with what "
            "`kubectl get pods -A -o json` prints",
        ),
        "unreadable": missing("pod list {path}: {problem}", "{remedy}"),
        "empty": warning("{path} holds no pod", "see that whatever writes it asks for all namespaces (-A)"),
        "api": ok("pods of node {node}, by the API: {count}"),
        "api_unread": missing("{problem}", "{remedy}"),
        "api_empty": warning(
            "by the API no pod is on node {node}",
            "see that --node (NODE_NAME) is the node's name, as `kubectl get nodes` shows it",
        ),
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
    purposes=ENFORCING,
    cases={
        "known": ok("containers with an ID in the pod list: {count}"),
        "none": missing(
            "no container of the pod list has an ID: nobody can be acted on",
            "write the whole objects (kubectl get pods -A -o json), with `status`; just after a start wait a minute",
        ),
        "none_started": warning(
            "no container of the pod list has an ID: there is nobody to act on",
            "no container has started here yet: look again in a minute",
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
    means="The node's own object can be read: its labels, where the policy asks for some, and whether its GPUs are "
    "under maintenance.",
    purposes=ENFORCING,
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
        "unlisted": missing(
            "the labels of the node are not known, as this account may not list nodes, and rules match by them "
            "({names}): pods that these may be for are left alone",
            "have the right granted that right_node names",
        ),
        "unreadable": missing("{what}: {problem}", "{remedy}"),
        "unneeded_unreadable": warning("maintenance of the GPUs is not seen: {what}: {problem}", "{remedy}"),
        "label": warning(
            "the node has no label {label}, and the declaration {name} takes its shares from it: it does not apply",
            "label the node (GPU feature discovery does), or give the shares as a number",
        ),
    },
)
NAMESPACES: Final = Topic(
    name="namespaces",
    means="The labels of namespaces can be read, where the policy asks for them.",
    purposes=ENFORCING,
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
OF_PODS: Final = (PODS, PODS_FRESH, PODS_NODE, PODS_READABLE, PODS_CONTAINERS, PODS_KNOWN)
TOPICS: Final = (*OF_PODS, NODE_OBJECT, NAMESPACES)
