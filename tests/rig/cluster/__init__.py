"""A real Kubernetes for the tests: etcd, kube-apiserver, controllers and scheduler as processes, and proxies of faults.

    def test_a_pod_is_seen(control_plane: ControlPlane, pods: Pods, new_account: NewAccount, tcp_proxy: TcpProxy):
        node = pods.node()                                         # a Node object; there is no kubelet
        pod = pods.create("tenant", node=node)                     # bound, running, ready, with container IDs
        account = new_account(policy, node)                        # what `gpu-watchdog rights` prints for this policy
        ...                                                        # run what is tested with account.through(tcp_proxy)
        tcp_proxy.stall()                                          # half-open from here on
        control_plane.expire_history()                             # a watch from an old resourceVersion gets 410
        with control_plane.throttle(account.identity.user): ...    # that user gets 429 with Retry-After
        seen = control_plane.requests(user_agent="gpu-watchdog")   # counted at the server, from its audit log
        assert [request.verb for request in seen if request.resource == "pods"] == ["list", "watch"]

Fixtures are in conftest.py. `tcp_proxy` breaks the network (refused, silent, half-open, cut), `api_proxy` the answers
(its own, late, cut, invalid watch lines), with `faults` to say which. The users of the token file, `daemon`, `tenant`
and `nobody`, have no rights of their own. The daemon's code is tested as a service account that may do exactly what
`gpu-watchdog rights` prints (`accounts`), and `rights_guard` checks the audit log after each test for anything else.

A node that runs real pods (root, containerd, runc, CNI): the fixtures `cluster`, a control plane of its own with a real
kubelet in namespaces of its own, and `room`, a namespace there. `real_pods` runs pods and knows their host PIDs; `card`
gives their processes GPU memory, `node_daemon` runs the real daemon there; `life` brings it together with real
controllers.

The watchdog as an operator has it: `installed_fixtures` builds the image by buildah (tests/image), loads it into that
node's containerd, and gives `release`, which installs the chart by the real helm, and `watchdog`, installed with the
POLICY of the test's module. A module has one installation: it takes 5 to 8 s, the image 1 to 2 min once a session, and
1.2 GB of disk until its end. GPU_WATCHDOG_IMAGE_ARCHIVE names an archive to load instead. README.md says which test
defends which promise.

The control plane is shared by the tests of tests/cluster: undo what you do to it (`start_apiserver` after
`kill_apiserver`), or start one of your own: `with ControlPlane(tmp_path / "plane", programs=programs) as plane`. Note:

- Each test gets a namespace of its own; nodes and cluster-wide objects are shared, so choose names of your own.
- The scheduler writes to pods that it can't place: give a pod its node where events are counted.
- `expire_history` and a restart cost 2 to 3 s; the next test's namespace waits 2 s more for the controllers.
- The server remembers for 10 s what it decided about a token.
- A cut connection is an RST; Python's TLS reports it as an end of data (b"") with OpenSSL 3.
"""
