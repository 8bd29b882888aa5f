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

Fixtures are in conftest.py. Rooms: `programs` builds the programs; `control_plane` runs them (`servers` has their
flags, `credentials` the users, `certificates` the authority); `audit` has `Request`; `api` sends single requests as the
admin; `pods` makes nodes, pods and budgets; `rights` gives rights to a user, for tests of the rig itself; `throttle`;
`tcp_proxy` spoils the network (refuse, silence, half-open, cut, slow); `api_proxy` the answers (its own, late, cut,
broken watch lines), with `faults` to say which. The users of the token file, `daemon`, `tenant` and `nobody`, have no
rights of their own.

`new_account(policy, node)` (room `accounts`) gives a service account that may do exactly what `gpu-watchdog rights`
prints for this policy, and is of a pod on that node; `with_rights` is the same for longer than a test, and
`account_kubeconfig` gives the file alone. What the daemon does is tested with that, and `rights_guard` sees to it: it
looks in the audit log after each test for requests of our client by anybody else.

A node that runs real pods (root, containerd, runc, CNI): the fixtures `cluster`, a control plane of its own with a real
kubelet in namespaces of its own, and `room`, a namespace there. Rooms: `node` puts it together out of `netns`,
`node_cgroups`, `containerd`, `kubelet` and `images` (of `workload.c`); `real_pods` runs pods and knows their host PIDs;
`card` gives their processes GPU memory, `node_daemon` runs the real daemon there; `life`, `workloads`, `recorder` and
`told` let it meet real controllers.

The watchdog as an operator has it: `installed_fixtures` builds the image by buildah (tests/image), loads it into that
node's containerd (`watchdog_image`), and gives `installed`, in which `Installed` (room `installed`) installs the chart
by the real helm, upgrades, rolls back and uninstalls it, execs into the daemon's pod and asks its port.
`installed_policy` has the policies. A module of tests has one installation: it takes 5 to 8 s, the image 1 to 2 min
once a session, and 1.2 GB of disk until its end. GPU_WATCHDOG_IMAGE_ARCHIVE names an archive to load instead.
`second_node` adds a node with a kubelet and a containerd of its own, in 7 s.

README.md here says which test defends which promise of the installed watchdog.

The control plane is the session's: undo what you do to it (`start_apiserver` after `stop_apiserver`), or start one of
your own: `with ControlPlane(tmp_path / "plane", programs=programs) as plane`. What is to be known of it:

- Each test gets a namespace of its own; nodes and cluster-wide objects are shared, so choose names of your own.
- The scheduler writes to pods that it can't place: give a pod its node where events are counted.
- `expire_history` and a restart cost 2 to 3 s; the next test's namespace waits 2 s more for the controllers.
- The server remembers for 10 s what it thought of a token.
- A cut connection is an RST; Python's TLS tells it as an end of data (b"") with OpenSSL 3.
"""
