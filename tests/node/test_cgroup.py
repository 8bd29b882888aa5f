"""From the text of /proc/PID/cgroup to a claim about pod and container."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from watchdog.core.model import CONTRADICTORY, HOST, UNREADABLE, Place, PlaceKind
from watchdog.node.cgroup import parse_cgroup

UID = "8c2f4a1e-0d3b-4c55-9f6a-1b2c3d4e5f60"
UID_ = UID.replace("-", "_")
OTHER_UID = "11111111-2222-3333-4444-555555555555"
HASH = "0123456789abcdef0123456789abcdef"
ID = "a1" * 32
OTHER_ID = "b2" * 32
NODE_ID = "c3" * 32


def pod(container: str | None = ID, uid: str | None = UID) -> Place:
    return Place(kind=PlaceKind.POD, pod=uid, container=container)


def outside(container: str = ID) -> Place:
    return Place(kind=PlaceKind.HOST, outside=container)


BURSTABLE = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice"
KIND = "kubelet.slice/" + BURSTABLE.replace("kubepods", "kubelet-kubepods")

FORMS = {
    "systemd, containerd": (f"/{BURSTABLE}/cri-containerd-{ID}.scope", pod()),
    "systemd, guaranteed": (f"/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope", pod()),
    "systemd, CRI-O": (f"/{BURSTABLE}/crio-{ID}.scope", pod()),
    "systemd, CRI-O with crun": (f"/{BURSTABLE}/crio-{ID}.scope/container", pod()),
    "systemd, docker": (f"/{BURSTABLE}/docker-{ID}.scope", pod()),
    "systemd, pod alone": (f"/{BURSTABLE}", pod(None)),
    "cgroupfs": (f"/kubepods/burstable/pod{UID}/{ID}", pod()),
    "cgroupfs, guaranteed": (f"/kubepods/pod{UID}/{ID}", pod()),
    "cgroupfs, CRI-O": (f"/kubepods/besteffort/pod{UID}/crio-{ID}", pod()),
    "cgroupfs, pod alone": (f"/kubepods/besteffort/pod{UID}", pod(None)),
    "containerd without SystemdCgroup": (
        f"/system.slice/containerd.service/kubepods-besteffort-pod{UID_}.slice:cri-containerd:{ID}",
        pod(),
    ),
    "kind": (f"/{KIND}/cri-containerd-{ID}.scope", pod()),
    "kind from the host, cgroupfs": (f"/docker/{NODE_ID}/{KIND}/cri-containerd-{ID}.scope", pod()),
    "kind from the host, systemd": (f"/system.slice/docker-{NODE_ID}.scope/{KIND}/cri-containerd-{ID}.scope", pod()),
    "kind of old": (f"/docker/{NODE_ID}/kubelet/kubepods/besteffort/pod{UID}/{ID}", pod()),
    "a root of one's own": (f"/gpu/nodes/kubepods/burstable/pod{UID}/{ID}", pod()),
    "a slice of one's own": (
        f"/gpu.slice/gpu-nodes.slice/gpu-nodes-kubepods.slice/gpu-nodes-kubepods-pod{UID_}.slice/crio-{ID}.scope",
        pod(),
    ),
    "static pod": (f"/kubepods/burstable/pod{HASH}/{ID}", pod(uid=HASH)),
    "static pod, systemd": (f"/{BURSTABLE.replace(UID_, HASH)}/cri-containerd-{ID}.scope", pod(uid=HASH)),
    "capitals": (f"/kubepods/pod{UID.upper()}/{ID}", pod(uid=UID.upper())),
    "capitals, systemd": (f"/kubepods.slice/kubepods-pod{UID_.upper()}.slice/crio-{ID}.scope", pod(uid=UID.upper())),
    "underscores": (f"/kubepods/pod{UID_}/{ID}", pod(uid=UID_)),
    "an ID in capitals": (f"/kubepods/pod{UID}/{ID.upper()}", pod(None)),
    "removed": (f"/kubepods/pod{UID}/{ID} (deleted)", pod()),
    "removed, below the container": (f"/kubepods/pod{UID}/{ID}/job (deleted)", pod()),
    "init below": (f"/{BURSTABLE}/cri-containerd-{ID}.scope/init.scope", pod()),
    "docker in docker": (f"/kubepods/pod{UID}/{ID}/docker/{OTHER_ID}", pod()),
    "podman in a pod": (f"/kubepods/pod{UID}/{ID}/libpod_parent/libpod-{OTHER_ID}/container", pod()),
    "kind in a pod": (f"/kubepods/pod{UID}/{ID}/docker/{NODE_ID}/kubepods/pod{OTHER_UID}/{OTHER_ID}", pod()),
    "private namespace, systemd": (f"/../../../{BURSTABLE.split('/', 1)[1]}/cri-containerd-{ID}.scope", pod()),
    "private namespace, next pod": (f"/../../kubepods-burstable-pod{UID_}.slice/cri-containerd-{ID}.scope", pod()),
    "private namespace, cgroupfs": (f"/../../pod{UID}/{ID}", pod()),
    "private namespace, other class": (f"/../../../besteffort/pod{UID}/{ID}", pod()),
    "private namespace, kubepods": (f"/../../../../kubepods/besteffort/pod{UID}/{ID}", pod()),
    "private namespace, colons": (f"/../kubepods-besteffort-pod{UID_}.slice:cri-containerd:{ID}", pod()),
    "private namespace, below a root of one's own": (f"/../../../gpu/kubepods/pod{UID}/{ID}", pod()),
    "sibling, systemd": (f"/../cri-containerd-{ID}.scope", pod(uid=None)),
    "sibling, cgroupfs": (f"/../{ID}", pod(uid=None)),
    "sibling, something below": (f"/../{ID}/init.scope", pod(uid=None)),
    "monitor of CRI-O": (f"/{BURSTABLE}/crio-conmon-{ID}.scope", HOST),
    "monitor of CRI-O, cgroupfs": (f"/kubepods/pod{UID}/crio-conmon-{ID}", HOST),
    "monitor of CRI-O, elsewhere": (f"/system.slice/crio-conmon-{ID}.scope", HOST),
    "monitor of CRI-O, sibling": (f"/../crio-conmon-{ID}.scope", HOST),
    "host root": ("/", HOST),
    "host service": ("/system.slice/kubelet.service", HOST),
    "host session": ("/user.slice/user-1000.slice/session-3.scope", HOST),
    "docker without Kubernetes": (f"/docker/{ID}", outside()),
    "docker without Kubernetes, systemd": (f"/system.slice/docker-{ID}.scope", outside()),
    "containerd without cgroups of pods": (f"/k8s.io/{ID}", outside()),
    "containerd without cgroups of pods, systemd": (f"/system.slice/cri-containerd-{ID}.scope/init.scope", outside()),
    "containerd without cgroups of pods, colons": (f"/system.slice:cri-containerd:{ID}", outside()),
    "outside of pods, from inside": (f"/../../../../k8s.io/{ID}", outside()),
    "outside of pods, removed": (f"/k8s.io/{ID} (deleted)", outside()),
    "host from inside": ("/../../../../system.slice/ssh.service", HOST),
    "kubepods itself": ("/kubepods/burstable", HOST),
    "no UID": (f"/kubepods/burstable/podtrainer/{ID}", outside()),
    "a UID too long": (f"/kubepods/burstable/pod{UID}0/{ID}", outside()),
    "an ID too short": (f"/kubepods/pod{UID}/{ID[:63]}", pod(None)),
}


@pytest.mark.parametrize(("path", "place"), FORMS.values(), ids=FORMS)
def test_forms(path: str, place: Place) -> None:
    """Every form that runtimes and drivers write is read, as the one line of v2 and as one of many of v1."""
    assert parse_cgroup(f"0::{path}\n") == place
    assert parse_cgroup(f"0::{path}\n".encode()) == place
    v1 = f"12:devices:{path}\n11:cpu,cpuacct:{path}\n2:pids:/\n1:name=systemd:{path}\n"
    assert parse_cgroup(f"{v1}0::/system.slice/containerd.service\n") == place


SPOOFS = {
    "pod below a container": (f"/kubepods/pod{UID}/{ID}/kubepods/pod{OTHER_UID}/{OTHER_ID}", pod()),
    "bare pod below a container": (f"/kubepods/pod{UID}/{ID}/pod{OTHER_UID}/{OTHER_ID}", pod()),
    "slice below a container": (
        f"/{BURSTABLE}/cri-containerd-{ID}.scope/kubepods-pod{OTHER_UID.replace('-', '_')}.slice/crio-{OTHER_ID}.scope",
        pod(),
    ),
    "colons below a container": (
        f"/kubepods/pod{UID}/{ID}/kubepods-pod{OTHER_UID.replace('-', '_')}.slice:cri-containerd:{OTHER_ID}",
        pod(),
    ),
    "monitor below a container": (f"/kubepods/pod{UID}/{ID}/crio-conmon-{OTHER_ID}.scope", pod()),
    "dots below a container": (f"/kubepods/pod{UID}/{ID}/../../pod{OTHER_UID}/{OTHER_ID}", pod()),
    "deleted twice": (f"/kubepods/pod{UID}/{ID} (deleted) (deleted)", pod(None)),
    "sibling with a pod below": (f"/../{ID}/kubepods/pod{OTHER_UID}/{OTHER_ID}", pod(uid=None)),
    "bare pod on the host": (f"/system.slice/pod{OTHER_UID}/{OTHER_ID}", outside(OTHER_ID)),
    "bare pod at the root": (f"/pod{OTHER_UID}/{OTHER_ID}", outside(OTHER_ID)),
    "bare pod in docker": (f"/docker/{ID}/pod{OTHER_UID}/{OTHER_ID}", outside()),
    "bare pod in docker, from inside": (f"/../../docker/{ID}/pod{OTHER_UID}/{OTHER_ID}", outside()),
    "kubepods in docker, from inside": (f"/../../docker/{ID}/kubepods/pod{OTHER_UID}/{OTHER_ID}", outside()),
    "below a pod without a readable UID": (
        f"/kubepods/podtrainer/{ID}/kubepods/pod{OTHER_UID}/{OTHER_ID}",
        outside(),
    ),
    "the same, systemd": (
        f"/system.slice/kubepods-podtrainer.slice:cri-containerd:{ID}/kubepods/pod{OTHER_UID}/{OTHER_ID}",
        outside(),
    ),
    "in a subtree that a login user names": (
        f"/user.slice/user-1000.slice/user@1000.service/kubepods/pod{OTHER_UID}/{OTHER_ID}",
        HOST,
    ),
    "a container in a subtree that a login user names": (
        f"/user.slice/user-1000.slice/user@1000.service/cri-containerd-{OTHER_ID}.scope",
        HOST,
    ),
}


@pytest.mark.parametrize(("path", "place"), SPOOFS.values(), ids=SPOOFS)
def test_spoofs(path: str, place: Place) -> None:
    """A pod that names cgroups below its own after another pod is still charged itself."""
    assert parse_cgroup(f"0::{path}\n") == place


A, B = f"/kubepods/pod{UID}/{ID}", f"/kubepods/pod{OTHER_UID}/{OTHER_ID}"

LINES = {
    "different pods": (f"2:pids:{A}\n0::{B}\n", CONTRADICTORY),
    "different pods, the same container": (f"2:pids:{A}\n0::/kubepods/pod{OTHER_UID}/{ID}\n", CONTRADICTORY),
    "different pods alone": (f"2:pids:/kubepods/pod{UID}\n0::/kubepods/pod{OTHER_UID}\n", CONTRADICTORY),
    "different containers": (f"2:pids:{A}\n0::/kubepods/pod{UID}/{OTHER_ID}\n", CONTRADICTORY),
    "pod in one, container in the other": (f"2:pids:/kubepods/pod{UID}\n0::{A}\n", pod()),
    "container without pod in one": (f"2:pids:/../{ID}\n0::{A}\n", pod()),
    "another container without pod": (f"2:pids:/../{OTHER_ID}\n0::{A}\n", CONTRADICTORY),
    "host in one": (f"2:pids:{A}\n0::/\n", pod()),
    "both drivers": (f"2:pids:{A}\n0::/{BURSTABLE}/cri-containerd-{ID}.scope\n", pod()),
    "monitor and pod": (f"2:pids:/kubepods/pod{UID}\n0::/kubepods/pod{UID}/crio-conmon-{ID}\n", HOST),
    "monitor and container": (f"2:pids:{A}\n0::/kubepods/pod{UID}/crio-conmon-{ID}\n", CONTRADICTORY),
    "outside in one, pod in the other": (f"2:pids:/docker/{OTHER_ID}\n0::{A}\n", pod()),
    "different containers outside": (f"2:pids:/docker/{ID}\n0::/docker/{OTHER_ID}\n", HOST),
    "no newline at the end": (f"0::{A}", pod()),
    "colons in controllers' names": (f"1:name=systemd:{A}\n", pod()),
    "a carriage return is part of a name": (f"0::{A}/x\r9:pids:{B}\n", pod()),
    "so are other line breaks": (f"0::{A}/x\x0b9:pids:{B}\x85{B}\u2028{B}\n", pod()),
    "bytes that are no UTF-8": (f"0::{A}/".encode() + b"\xff\xfe\n", pod()),
    "empty": ("", UNREADABLE),
    "a newline": ("\n", UNREADABLE),
    "no cgroup text": ("python3\n", UNREADABLE),
    "no path": ("0::\n", UNREADABLE),
    "a relative path": (f"0::{A[1:]}\n", UNREADABLE),
    "a broken line among good ones": (f"0::{A}\npids\n", UNREADABLE),
    "broken bytes": (b"\xff\xfe\x00", UNREADABLE),
}


@pytest.mark.parametrize(("text", "place"), LINES.values(), ids=LINES)
def test_lines(text: str | bytes, place: Place) -> None:
    """Every line is looked at: they complete each other, contradict each other, or are not the kernel's."""
    assert parse_cgroup(text) == place


Build = Callable[[str, str, str], str]


def systemd(uid: str, container: str, qos: str, runtime: str = "cri-containerd", root: str = "") -> str:
    kubepods, above = (f"{root}-kubepods", f"/{root}.slice") if root else ("kubepods", "")
    middle, quality = (f"/{kubepods}-{qos}.slice", f"-{qos}") if qos else ("", "")
    name = uid.replace("-", "_")
    return f"{above}/{kubepods}.slice{middle}/{kubepods}{quality}-pod{name}.slice/{runtime}-{container}.scope"


def cgroupfs(uid: str, container: str, qos: str, runtime: str = "") -> str:
    return f"/kubepods{'/' if qos else ''}{qos}/pod{uid}/{runtime}{container}"


def colons(uid: str, container: str, qos: str) -> str:
    return f"/kubepods{'-' if qos else ''}{qos}-pod{uid.replace('-', '_')}.slice:cri-containerd:{container}"


BUILDERS: dict[str, Build] = {
    "containerd": systemd,
    "CRI-O": lambda uid, container, qos: systemd(uid, container, qos, "crio"),
    "docker": lambda uid, container, qos: systemd(uid, container, qos, "docker"),
    "kubelet.slice": lambda uid, container, qos: systemd(uid, container, qos, root="kubelet"),
    "cgroupfs": cgroupfs,
    "cgroupfs, CRI-O": lambda uid, container, qos: cgroupfs(uid, container, qos, "crio-"),
    "colons": colons,
}
PREFIXES = ["", "/kubelet", "/gpu.slice/gpu-a.slice", f"/docker/{NODE_ID}", f"/system.slice/docker-{NODE_ID}.scope"]
hexes = st.text("0123456789abcdef", min_size=64, max_size=64)
uids = st.uuids().map(str) | st.text("0123456789abcdef", min_size=32, max_size=32)
builders = st.sampled_from(list(BUILDERS.values()))
qualities = st.sampled_from(["", "burstable", "besteffort"])
# What someone inside the container can append: another pod's path, or any names.
names = st.text(st.characters(exclude_characters="/\n\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
tails = st.lists(names, max_size=3).map(lambda parts: "".join(f"/{part}" for part in parts))
spoofs = st.builds(lambda build, uid, container, qos: build(uid, container, qos), builders, uids, hexes, qualities)
endings = st.builds(lambda tail, removed: tail + removed, tails | spoofs, st.sampled_from(["", " (deleted)"]))


@given(builders, uids, hexes, qualities, st.sampled_from(PREFIXES), endings)
def test_every_path_parses_back(build: Build, uid: str, container: str, qos: str, prefix: str, ending: str) -> None:
    """Law 9, "Everything that is written parses back", cgroup paths of every driver too, whatever stands below it."""
    path = prefix + build(uid, container, qos) + ending
    text = f"3:pids:/\n2:memory:{path.removesuffix(' (deleted)')}\n0::{path}\n"
    assert parse_cgroup(text.encode()) == pod(container, uid)


@given(builders, uids, hexes, qualities, st.integers(1, 3), tails | spoofs)
def test_every_path_from_inside_parses_back(
    build: Build, uid: str, container: str, qos: str, depth: int, tail: str
) -> None:
    """Law 9: the same, seen from a private cgroup namespace at any depth of the way to the pod."""
    whole = build(uid, container, qos).split("/")[1:]
    shown = whole[min(depth, len(whole)) - 1 :]
    text = "0::/../" + "/".join(shown) + tail
    place = parse_cgroup(text)
    assert place.container == container
    assert place.pod == uid or (len(shown) == 1 and build is not colons and place.pod is None)


PIECES = f"/ .. kubepods .slice .scope pod {UID} {UID_} {HASH} {ID} - : burstable crio-conmon- cri-containerd- 0:: 1:x:"
pieces = st.sampled_from([*PIECES.split(" "), " (deleted)", "\n"])


@given(st.lists(pieces | st.text(max_size=5), max_size=40).map("".join))
@example("0::/" + "kubepods-" * 450)
@example("0::/" + "-kubepods" * 450 + ".slice:::")
@example("0::/" + "../" * 1300)
def test_any_text(text: str) -> None:
    """Nothing that a tenant can write makes the parser raise or claim what is not in the text."""
    place = parse_cgroup(text)
    assert place.kind is PlaceKind.POD or place == Place(kind=place.kind)
    assert place.container is None or place.container in text
    assert parse_cgroup(text.encode("utf-8", "surrogatepass")) == place


@given(st.binary(max_size=200))
def test_any_bytes(text: bytes) -> None:
    """The parser is total on any bytes."""
    assert parse_cgroup(b"0::/kubepods/" + text).kind in PlaceKind
    assert parse_cgroup(text).kind in PlaceKind
