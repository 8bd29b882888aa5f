"""What a node's informers request while nothing happens: `python -m tests.rig.cluster.quiet --minutes 10`."""

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.rig.cluster.accounts import with_rights
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.informer_rig import MATCHES_BY_NAMESPACE
from tests.rig.cluster.pods import Pods
from tools import programs
from watchdog import clock
from watchdog.clock import Bell
from watchdog.kube.client import Api
from watchdog.kube.informers import NamespaceInformer, NodeInformer, PodInformer


def run(plane: ControlPlane, minutes: float) -> None:
    """Follow for so long, and print the requests at the server, their moments, and how old the pods got."""
    pods = Pods(plane.api, "default")
    default = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    plane.api.ask("POST", "/api/v1/namespaces/default/serviceaccounts", default)  # no controller does it here
    node = pods.node()
    pods.create("trainer", node=node)
    with with_rights(plane, MATCHES_BY_NAMESPACE) as account:
        api, bell = Api(account.kubeconfig), Bell()
        informers = (PodInformer(api, node, bell), NodeInformer(api, node, bell), NamespaceInformer(api, bell))
        began_s, oldest_s, rings = time.time(), 0.0, 0
        for informer in informers:
            informer.start()
        time.sleep(2)
        bell.silence()
        while time.time() < began_s + minutes * 60:
            time.sleep(0.5)
            synced = informers[0].read(clock.now()).synced
            oldest_s = max(oldest_s, clock.now().boottime_s - (synced.boottime_s if synced is not None else 0))
            rings += bell.silence()
        seen = plane.requests(user=account.identity.user, since=began_s)
        for informer in informers:
            informer.stop()
    moments: dict[str, list[str]] = {}
    for one in seen:
        moments.setdefault(f"{one.resource} {one.verb}", []).append(f"{one.received_s - began_s:.0f}")
    for request, when in sorted(moments.items()):
        print(f"{request}: {len(when)} (at s {', '.join(when)})")
    codes = dict(Counter(one.code for one in seen))
    print(f"{minutes:g} min; the pod list was at most {oldest_s:.0f} s old; {rings} rings; codes {codes}")


def main() -> None:
    """A control plane of its own, without controllers: nothing moves there but what the API server does by itself."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=10.0)
    minutes = arguments.parse_args().minutes
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane(Path(folder) / "plane", programs=programs.programs(), controllers=False, scheduler=False) as plane,
    ):
        run(plane, minutes)


if __name__ == "__main__":
    main()
