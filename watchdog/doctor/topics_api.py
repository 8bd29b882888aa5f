"""What can be found of the API server and of this account there, in words."""

from typing import Final

from watchdog.doctor.finding import Topic, missing, ok, warning

_SET_CLOCK: Final = "set this node's clock right (chronyd, systemd-timesyncd)"

API_CONFIG: Final = Topic(
    name="api_config",
    means="There is a way to the Kubernetes API: a kubeconfig, or the service account of the pod that this runs in. It "
    "is looked at only where no `--pods FILE` is given.",
    cases={
        "file": ok("the kubeconfig {path} leads to {host}"),
        "pod": ok("the service account of this pod leads to {host}"),
        "lacking": missing("{problem}", "{remedy}"),
    },
)
API: Final = Topic(
    name="api",
    means="The API server answers.",
    cases={
        "answers": ok("{host} answers: Kubernetes {version}"),
        "nameless": ok("{host} answers"),
        "unreachable": missing("{problem}", "{remedy}"),
        "odd": missing("{problem}", "{remedy}"),
        "late": missing(
            "{host} has not answered all questions within {waited}; what was waited for last: {asking}",
            "look at the network, the DNS of this node and the load of the API server, then look again",
        ),
    },
)
API_CERTIFICATE: Final = Topic(
    name="api_certificate",
    means="The API server's certificate is accepted. Where it is not, its dates and the server's clock are looked at "
    "unchecked, to tell whether the certificate is at fault or a clock; no credentials are sent then.",
    cases={
        "expired": missing(
            "the certificate of {host} expired {span} ago, at {moment}",
            "renew it (kubeadm: `kubeadm certs renew apiserver` on the control plane, then restart the API server)",
        ),
        "early": missing(
            "the certificate of {host} is valid only from {moment} on, in {span}",
            "wait, or make it anew: the clock by which it was made was ahead",
        ),
        "ahead": missing(
            "this node's clock is {span} ahead of that of {host}, so the certificate there, which is valid until "
            "{moment}, counts as expired",
            _SET_CLOCK,
        ),
        "behind": missing(
            "this node's clock is {span} behind that of {host}, so the certificate there, which is valid from "
            "{moment} on, does not count yet",
            _SET_CLOCK,
        ),
        "refused": missing("{problem}", "{remedy}"),
    },
)
API_CLOCK: Final = Topic(
    name="api_clock",
    means="This node's clock and the API server's agree within a minute.",
    cases={
        "agree": ok("this node's clock and the API server's differ by {apart}"),
        "ahead": warning(
            "this node's clock is {span} ahead of the API server's: certificates count as expired too early, pods that "
            "end as past their deadline; `active` hours come too early; times in the journal and in Events are wrong",
            "see which of the two is right (`date -u` on both), and set the other one (chronyd, systemd-timesyncd)",
        ),
        "behind": warning(
            "this node's clock is {span} behind the API server's: new certificates do not count yet, the kubelet "
            "renews this pod's token too late, `active` hours and deadlines of pods that end come too late; times in "
            "the journal and in Events are wrong",
            "see which of the two is right (`date -u` on both), and set the other one (chronyd, systemd-timesyncd)",
        ),
    },
)
API_CREDENTIALS: Final = Topic(
    name="api_credentials",
    means="The API server accepts this account's token or client certificate.",
    cases={
        "account": ok("the API server takes us for {account}"),
        "accepted": ok("the API server accepts the credentials"),
        "token_expired": missing(
            "the token{of} expired {span} ago by the API server's clock",
            "in a pod the kubelet writes a new one: see that it runs and that this node's clock is right, then delete "
            "the pod; otherwise put a new token into the kubeconfig",
        ),
        "token_early": missing(
            "the token{of} is valid only in {span} by the API server's clock",
            "set the clock right of the server that issued it, or of the API server",
        ),
        "certificate_expired": missing(
            "the client certificate expired {span} ago by the API server's clock",
            "put a new one into the kubeconfig",
        ),
        "certificate_early": missing(
            "the client certificate is valid only in {span} by the API server's clock",
            "set the API server's clock right, or make the certificate anew",
        ),
        "refused": missing(
            "the API server does not accept the {kind}{of} (401){though}",
            "see that it is of this cluster, and that its account still exists: one that was deleted and made again "
            "needs a new token (delete the pod, or write the kubeconfig anew)",
        ),
        "none": missing(
            "the API server takes us for nobody in particular: no credentials were sent",
            "give the user in the kubeconfig a token or a client certificate; if it has an `exec` plugin, run that by "
            "hand",
        ),
    },
)
NODE_NAME: Final = Topic(
    name="node_name",
    means="The cluster has a node with the name that `--node` gives. Its pods are found by that name alone.",
    cases={
        "exists": ok("the cluster has a node {node}"),
        "own": ok("this pod runs on node {node}"),
        "pods": ok("there are pods on a node {node}"),
        "other": missing(
            "this pod runs on node {own}, and was told to look at {node}: none of the pods here is known",
            "set NODE_NAME by the downward API (fieldRef: spec.nodeName), or give --node {own}",
        ),
        "absent": missing(
            "the cluster has no node {node}, so no pod here is known",
            "give --node NAME (or NODE_NAME), as `kubectl get nodes` shows it; a host's own name can differ",
        ),
        "similar": missing(
            "the cluster has no node {node}, but one {similar}, so no pod here is known",
            "give --node {similar} (or NODE_NAME), if that is this one",
        ),
        "doubtful": warning(
            "no pod is on a node {node}; whether there is such a node this account can't see",
            "see whether `kubectl get nodes` has that name, and give the right one with --node (or NODE_NAME)",
        ),
    },
)
OWN_POD: Final = Topic(
    name="own_pod",
    means="The pod that this runs in is in the list of the node's pods. The daemon spares it by that.",
    cases={
        "known": ok("this pod, {pod}, is in the list"),
        "unknown": warning(
            "this pod{pod} is not in the list of the pods of node {node}",
            "see that --node (NODE_NAME) names the node that this pod runs on; just after a start look again",
        ),
    },
)
CAPACITY: Final = Topic(
    name="capacity",
    means="The node advertises the resource of [capacity], where the policy has that table.",
    cases={
        "kept": ok("the node advertises {amount} of {resource}"),
        "absent": warning(
            "the node does not advertise {resource} (yet): pods that request it are not placed here",
            "the daemon advertises it while it runs: see that it does, and its log",
        ),
    },
)
CONNECTION: Final = (API_CONFIG, API, API_CERTIFICATE, API_CLOCK, API_CREDENTIALS)
PLACE: Final = (NODE_NAME, OWN_POD, CAPACITY)
