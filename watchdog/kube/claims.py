"""What resource claims gave, as the API writes it: allocations of ResourceClaims, and the ResourceSlices of the node.

The spec of a claim is what was asked for; servers before 1.36 drop its amounts without an error, and on a card that is
not shared it is only a filter (k8s.io/api/resource/v1). So only the allocation is read, which is the scheduler's word.
"""

import json
import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Annotated, Any, Final

import msgspec

from watchdog.core.errors import Problem
from watchdog.core.model import Claim, ClaimedDevice, Gap, GapReason, MigPlacement, Pod
from watchdog.core.units import LARGEST, brief, parse_number
from watchdog.kube.wire import Item, decode_json

_MOST_DEVICES: Final = 32  # of one claim, as the API server limits it (AllocationResultsMaxSize in k8s.io/api/resource)
_MEMORY: Final = "memory"
_VERSION: Final = "resource.k8s.io/v1"  # earlier ones have the values of a device elsewhere
# gpu-0-mig-1g10gb-19-4: the card, the profile, its ID, and where the instance begins (MigSpecTuple.ToCanonicalName in
# sigs.k8s.io/dra-driver-nvidia-gpu). A device that is made when its pod starts has no other identity.
_NVIDIA: Final = "gpu.nvidia.com"
_MIG_NAME: Final = re.compile(r"gpu-\d+-mig-.+-(\d{1,9})-(\d{1,9})", re.ASCII)
_SHARES: Final = "shares"  # of NVIDIA's driver where the policy of its class has a number of them


class _RawResult(msgspec.Struct, rename="camel", gc=False):
    request: str
    driver: str
    pool: str
    device: str
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, str | int | float] | None = None
    admin_access: bool | None = None


class _RawDevices(msgspec.Struct, gc=False):
    results: list[_RawResult] | None = None
    # Of any type: it is for drivers to read, and only shown.
    config: Any = None


class _RawAllocation(msgspec.Struct, gc=False):
    devices: _RawDevices | None = None


class _RawConsumer(msgspec.Struct, gc=False):
    uid: str
    resource: str = "pods"


class _RawClaimStatus(msgspec.Struct, rename="camel", gc=False):
    allocation: _RawAllocation | None = None
    reserved_for: list[_RawConsumer] | None = None


class _RawName(msgspec.Struct, gc=False):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    namespace: str = ""


class _RawClaim(msgspec.Struct, gc=False):
    metadata: _RawName
    status: _RawClaimStatus | None = None


class _RawPool(msgspec.Struct, gc=False):
    name: str
    generation: int = 0


class _RawDevice(msgspec.Struct, gc=False):
    name: str
    attributes: dict[str, dict[str, Any]] | None = None
    capacity: dict[str, dict[str, Any]] | None = None


class _RawSliceSpec(msgspec.Struct, rename="camel", gc=False):
    driver: str
    pool: _RawPool
    devices: list[_RawDevice] | None = None
    node_name: str | None = None


class _RawSlice(msgspec.Struct, rename="camel", gc=False):
    spec: _RawSliceSpec
    api_version: str = _VERSION


_CLAIM: Final = msgspec.json.Decoder(_RawClaim)
_SLICE: Final = msgspec.json.Decoder(_RawSlice)
DeviceKey = tuple[str, str, str]  # the driver, the pool, and the name in it


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceDevice:
    """A device that a driver publishes, on this node or on none."""

    # As in `ClaimedDevice`.
    uuid: str | None = None
    parent: str | None = None
    profile: str | None = None
    placement: MigPlacement | None = None
    size: int | None = None
    shares: int | None = None
    # Whether it is of this node alone; else it is one that several nodes can reach, such as over the network.
    is_of_node: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What one ResourceClaim was given, and by whom it is used."""

    # Without what its slice says of them.
    devices: tuple[tuple[DeviceKey, ClaimedDevice], ...]
    # Whether anything was allocated; what is allocated may be nothing.
    is_allocated: bool
    # The UIDs of the pods that it is reserved for.
    reserved_for: frozenset[str]
    # Whether it holds as long as the pod is there, whatever is read later.
    is_kept: bool = True
    # Whether it is reserved for anything but pods, such as a group of them.
    is_for_groups: bool = False

    def is_for(self, uid: str) -> bool:
        """Whether it is what the pod with this UID was given."""
        return self.is_allocated and uid in self.reserved_for

    def is_of_others(self, uid: str) -> bool:
        """Whether it can't be what the pod with this UID runs with: it is given to nobody, or to other pods."""
        return not (self.is_for(uid) or (self.is_allocated and self.is_for_groups))


Allocations = Mapping[tuple[str, str], Allocation]  # by namespace and name
Devices = Mapping[DeviceKey, SliceDevice]
NOT_READ: Final[Devices] = MappingProxyType({})  # what is published has not been read yet
MissingClaim = tuple[Pod, str]  # a pod, and the name of a claim of which it is not known what it gave that pod


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadClaims:
    """The claims as far as they have been read."""

    # Those of which it does not matter for which pod they were read.
    allocations: Allocations = field(default_factory=dict)
    # What was found for a pod, or why nothing was, by the pod's UID and the claim's name.
    answers: Mapping[tuple[str, str], Allocation | Problem] = field(default_factory=dict)
    # Why any other one is not known; None: it is being read.
    lacking: Problem | None = None
    # What to do about a claim that was read, and gave the pod nothing.
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDevices:
    """The devices of one ResourceSlice."""

    # The driver and the name of the pool.
    pool: tuple[str, str]
    # That of the pool: only the slices with its highest one hold.
    generation: int
    devices: Devices
    # The node that it is of; None: it is not of one alone.
    node: str | None = None


def decode_claim(item: Item) -> tuple[tuple[str, str], Allocation]:
    """Decode the allocation of a ResourceClaim; an error of DECODE_ERRORS, or ValueError, if it can't be read."""
    try:
        raw = decode_json(_CLAIM, item)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # A configuration for drivers, or the spec, can have what is no text of Unicode, such as half of a pair of
        # surrogates: the API server keeps that as it was written.
        raw = msgspec.convert(json.loads(bytes(item).decode("utf-8", errors="replace")), _RawClaim)
    status = raw.status or _RawClaimStatus()
    devices = (status.allocation and status.allocation.devices) or _RawDevices()
    results = devices.results or ()
    if len(results) > _MOST_DEVICES:
        raise ValueError(f"it has {len(results)} devices, more than {_MOST_DEVICES}")
    # A pod with admin access looks at a device that is others' to use.
    counting = [each for each in results if not each.admin_access]
    allocation = Allocation(
        devices=tuple(
            ((each.driver, each.pool, each.device), _device(each, _pinned_limit(devices.config, each)))
            for each in counting
        ),
        is_allocated=status.allocation is not None,
        reserved_for=frozenset(each.uid for each in status.reserved_for or ()),
        is_for_groups=any(each.resource != "pods" for each in status.reserved_for or ()),
    )
    return (raw.metadata.namespace, raw.metadata.name), allocation


def _pinned_limit(config: Any, result: _RawResult) -> int | None:
    """What each MPS client may pin on a device, in bytes, as NVIDIA's driver reads it; None if nothing says.

    What a claim configures comes after what its class does, and later entries hold (GpuConfig in
    sigs.k8s.io/dra-driver-nvidia-gpu).
    """
    found: dict[str, int | None] = {}
    for each in config if isinstance(config, list) else ():
        try:
            named, opaque = each.get("requests") or (), each["opaque"]
            if opaque["driver"] == result.driver and (not named or result.request in named):
                sharing = opaque["parameters"]["sharing"]
                mps = sharing["mpsConfig"] if sharing["strategy"] == "MPS" else {}
                found[each["source"]] = _whole(mps.get("defaultPinnedDeviceMemoryLimit"))
        except (AttributeError, LookupError, TypeError, ValueError):
            continue
    return found.get("FromClaim", found.get("FromClass"))


def _device(result: _RawResult, pinned_limit: int | None) -> ClaimedDevice:
    consumed = result.consumed_capacity or {}
    return ClaimedDevice(
        request=result.request,
        name=f"{result.driver}/{result.pool}/{result.device}",
        memory=_whole(_of(consumed, result.driver, _MEMORY)),
        is_shared=result.share_id is not None,
        share=brief(result.share_id or ""),
        shares=_whole(_of(consumed, result.driver, _SHARES)),
        pinned_limit=pinned_limit,
        is_listed=False,
    )


def _of(values: Mapping[str, Any], driver: str, name: str) -> Any:
    """A value by its name, which may have the driver's in front."""
    return values.get(name, values.get(f"{driver}/{name}"))


def _whole(quantity: Any) -> int | None:
    """A quantity as a whole number, rounded up; None without one. ValueError if it is none."""
    if quantity is None:
        return None
    number = parse_number(str(quantity))
    return min(max(math.ceil(Fraction(number)), 0), LARGEST)  # the API accepts negative ones too: no amount


def decode_slice(item: Item) -> PublishedDevices:
    """Decode a ResourceSlice; one of DECODE_ERRORS, or ValueError, if it can't be read."""
    raw = decode_json(_SLICE, item)
    if raw.api_version != _VERSION:
        raise ValueError(f"it is of {brief(raw.api_version)}: write `kubectl get resourceslices.v1.resource.k8s.io`")
    spec = raw.spec
    devices = {
        (spec.driver, spec.pool.name, each.name): SliceDevice(
            uuid=_text(each, spec.driver, "uuid"),
            parent=_text(each, spec.driver, "parentUUID"),
            profile=_text(each, spec.driver, "profile"),
            placement=_placement(spec.driver, each.name),
            size=_amount(each, spec.driver, _MEMORY),
            shares=_amount(each, spec.driver, _SHARES),
            is_of_node=spec.node_name is not None,
        )
        for each in spec.devices or ()
    }
    return PublishedDevices(
        pool=(spec.driver, spec.pool.name), generation=spec.pool.generation, devices=devices, node=spec.node_name
    )


def newest_devices(slices: Iterable[PublishedDevices]) -> Devices:
    """The devices of the newest generation of each pool."""
    newest: dict[tuple[str, str], tuple[int, Devices]] = {}
    for each in slices:
        before, known = newest.get(each.pool, (each.generation, {}))
        if each.generation > before:
            newest[each.pool] = each.generation, each.devices
        elif each.generation == before:
            newest[each.pool] = before, {**known, **each.devices}
    return {key: device for _, devices in newest.values() for key, device in devices.items()}


def _placement(driver: str, name: str) -> MigPlacement | None:
    found = _MIG_NAME.fullmatch(name) if driver == _NVIDIA else None
    return (int(found[1]), int(found[2])) if found is not None else None


def _text(device: _RawDevice, driver: str, name: str) -> str | None:
    found = (_of(device.attributes or {}, driver, name) or {}).get("string")
    return brief(found) if isinstance(found, str) and found else None


def _amount(device: _RawDevice, driver: str, name: str) -> int | None:
    try:
        return _whole((_of(device.capacity or {}, driver, name) or {}).get("value"))
    except ValueError:
        return None  # as if it was not published


_MOST_NAMED: Final = 5  # pods in one gap
_MOST_SHARING: Final = 5  # pods that are named beside a claim, of which there can be hundreds
_MOST_KEPT: Final = 4096  # claims of pods, which have at most 64 each


class ClaimReader:
    """Gives each pod what its claims were given, and remembers it as long as the pod is there.

    What was allocated to a pod never changes, while a claim can be given to another pod later, on another card; a claim
    that was made for a pod is gone as soon as the pod has finished. `missing` and `gaps` are about what was read last.
    """

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], Allocation] = {}  # by the UID of the pod and the name of the claim
        self._made: dict[str, tuple[Pod, Pod]] = {}
        self._unsettled: list[MissingClaim] = []  # given by what does not hold for good
        self._last: tuple[object, ...] = ()
        self._result: tuple[Pod, ...] = ()
        # Whether any pod has had a claim so far.
        self.has_claims = False
        # What pods that have not finished were given, and may be devices of no node.
        self.strangers: set[DeviceKey] = set()
        # The claims of pods that have not finished of which it is not known, at least not for good, what they gave.
        self.missing: tuple[MissingClaim, ...] = ()
        # One for all pods that run with such a claim and need the same remedy.
        self.gaps: tuple[Gap, ...] = ()

    def with_claims(self, pods: tuple[Pod, ...], read: ReadClaims, devices: Devices) -> tuple[Pod, ...]:
        """The pods with what their claims gave them; the same objects as before where nothing has changed."""
        given = pods, read, devices
        if not (len(self._last) == len(given) and all(map(operator.is_, given, self._last))):
            self._last, self._result = given, self._read_all(pods, read, devices)
        return self._result

    def _read_all(self, pods: tuple[Pod, ...], read: ReadClaims, devices: Devices) -> tuple[Pod, ...]:
        self.missing = self.gaps = ()
        self._unsettled, self.strangers = [], set()
        if not any(pod.claims for pod in pods):
            self._made = {}
            return pods
        self.has_claims = True
        holders: dict[tuple[str, str], dict[str, str]] = {}
        for pod in pods:
            for claim in pod.claims.values() if not pod.is_finished else ():
                some = holders.setdefault((pod.namespace, claim.name), {})
                if len(some) <= _MOST_SHARING:
                    some[pod.uid] = pod.title
        present = {pod.uid for pod in pods}
        # A pod that a list lacks may still run here, and come back.
        if len(self._read) > _MOST_KEPT:
            self._read = {key: each for key, each in self._read.items() if key[0] in present}
        self._made = {uid: each for uid, each in self._made.items() if uid in present}
        offered = _Offered.of(devices)
        result = tuple(self._with_claims(pod, read, offered, holders) if pod.claims else pod for pod in pods)
        self.missing = (*missing_claims(result), *self._unsettled)
        self.gaps = _gaps(result, read, has_devices=devices is not NOT_READ)
        return result

    def _with_claims(
        self,
        pod: Pod,
        read: ReadClaims,
        offered: "_Offered",
        holders: Mapping[tuple[str, str], Mapping[str, str]],
    ) -> Pod:
        claims = {
            entry: replace(
                self._given(pod, claim, read, offered),
                shared_with=_others(pod, holders.get((pod.namespace, claim.name), {})),
            )
            for entry, claim in pod.claims.items()
        }
        source, made = self._made.get(pod.uid, (None, None))
        if made is None or source is not pod or made.claims != claims:
            made = replace(pod, claims=claims)
            self._made[pod.uid] = pod, made
        return made

    def _given(self, pod: Pod, claim: Claim, read: ReadClaims, offered: "_Offered") -> Claim:
        if not claim.name:
            return replace(claim, unknown="it has not been made yet")
        key = pod.uid, claim.name
        found = _found(pod, claim, read)
        is_given = isinstance(found, Allocation) and found.is_for(pod.uid)
        if isinstance(found, Allocation) and is_given:
            if found.is_kept:
                self._read.setdefault(key, found)
            elif key not in self._read:
                self._unsettled.append((pod, claim.name))
        allocation = self._read.get(key, found if is_given else None)
        if not isinstance(allocation, Allocation):
            problem = _why_unread(pod, claim, read)
            return replace(claim, unknown=_BEING_READ if problem is None else problem.cause)
        if not pod.is_finished:
            self.strangers.update(place for place, _ in allocation.devices if offered.lacks(place))
        every = (offered.describe(place, device) for place, device in allocation.devices)
        return replace(claim, devices=tuple(each for each in every if each is not None), unknown="")


def _others(pod: Pod, holders: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(title for uid, title in holders.items() if uid != pod.uid)[:_MOST_SHARING]


_BEING_READ: Final = "it is being read"


def _found(pod: Pod, claim: Claim, read: ReadClaims) -> Allocation | Problem | None:
    """What was read of a claim for a pod, or why nothing was; None: it was not read."""
    return read.answers.get((pod.uid, claim.name)) or read.allocations.get((pod.namespace, claim.name))


def _why_unread(pod: Pod, claim: Claim, read: ReadClaims) -> Problem | None:
    """Why it is not known what a claim gave a pod; None: it is being read."""
    found = _found(pod, claim, read)
    if not isinstance(found, Allocation):
        return found or read.lacking
    reserved = "it is not reserved for the pod"
    return Problem(reserved if found.is_allocated else "nothing has been allocated to it", read.remedy)


def _unread(pod: Pod) -> Iterable[Claim]:
    """The claims that containers of a pod use and of which it is not known what they gave, each once."""
    used = {entry.partition("/")[0] for container in pod.containers for entry in container.claims}
    known = ((entry, claim) for entry, claim in pod.claims.items() if entry in used)
    return {claim.name: claim for _, claim in known if claim.unknown}.values()


def missing_claims(pods: Iterable[Pod]) -> tuple[MissingClaim, ...]:
    """The claims of pods that have not finished of which it is not known what they gave."""
    every = ((pod, claim.name) for pod in pods if not pod.is_finished for claim in _unread(pod))
    return tuple((pod, name) for pod, name in every if name)


def _gaps(pods: Iterable[Pod], read: ReadClaims, *, has_devices: bool) -> tuple[Gap, ...]:
    """A gap for each remedy: the pods that run and need it, and what is the matter with the first of them.

    A pod that has not started uses nothing; without a node's kubelet, or a driver for its claim, it never will.
    """
    found: dict[str, dict[str, str]] = {}
    for pod in pods:
        if pod.is_finished or not pod.has_started:
            continue
        for name, problem in (*_unread_problems(pod, read), *(_unlisted_problems(pod) if has_devices else ())):
            found.setdefault(problem.remedy, {}).setdefault(pod.title, f"{name or 'one of them'}: {problem.cause}")
    return tuple(_gap(titles, remedy) for remedy, titles in found.items())


def _unread_problems(pod: Pod, read: ReadClaims) -> Iterator[tuple[str, Problem]]:
    """The claims of a pod of which it is not known what they gave, with the reason, but for those being read."""
    for claim in _unread(pod):
        problem = _why_unread(pod, claim, read) if claim.name else Problem(claim.unknown)
        if problem is not None:
            yield claim.name, problem


_SEE_SLICES: Final = (
    "see `kubectl get resourceslices -o yaml`: the driver has taken out a device that is in use, or its kubelet plugin "
    "does not run on this node; start that again"
)


def _unlisted_problems(pod: Pod) -> Iterator[tuple[str, Problem]]:
    """The claims of a pod that gave it a device which the slices do not list, so that it is not known what it is."""
    for claim in {claim.name: claim for claim in pod.claims.values()}.values():
        for device in claim.devices:
            is_share = device.is_driver_known and (device.memory or device.is_shared)
            if not (device.is_listed or is_share):
                yield claim.name, Problem(f"no ResourceSlice lists {device.name}", _SEE_SLICES)


def _gap(titles: Mapping[str, str], remedy: str) -> Gap:
    named = ", ".join(list(titles)[:_MOST_NAMED])
    more = f" and {len(titles) - _MOST_NAMED} more" if len(titles) > _MOST_NAMED else ""
    cause = f"what their ResourceClaims gave them is not known, so they are left alone: {next(iter(titles.values()))}"
    return Gap(reason=GapReason.CLAIMS, what=f"claims of {named}{more}", problem=Problem(cause, remedy))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offered:
    """The devices that drivers publish, and which of them do so on this node."""

    devices: Devices
    drivers: frozenset[str]
    # Those of them that publish GPUs.
    of_gpus: frozenset[str]

    @classmethod
    def of(cls, devices: Devices) -> "_Offered":
        own = {place: each for place, each in devices.items() if each.is_of_node}
        of_gpus = frozenset(place[0] for place, each in own.items() if each.uuid or each.parent)
        return cls(devices=devices, drivers=frozenset(place[0] for place in own), of_gpus=of_gpus)

    def lacks(self, place: DeviceKey) -> bool:
        """Whether a device is not published on this node, and not known to be no GPU by what its driver publishes."""
        published = self.devices.get(place)
        if published is not None and published.is_of_node:
            return False
        return place[0] in self.of_gpus or place[0] not in self.drivers

    def describe(self, place: DeviceKey, device: ClaimedDevice) -> ClaimedDevice | None:
        """A device with what its slice says; None if it is missing there, and the driver's others are no GPUs.

        Without any slice of its driver on this node nobody knows what it is: its memory may be that of a network card,
        or the driver of the GPUs is being restarted.
        """
        published = self.devices.get(place)
        if published is None:
            if place[0] in self.of_gpus:
                return device
            return None if place[0] in self.drivers else replace(device, is_driver_known=False)
        return replace(
            device,
            uuid=published.uuid,
            parent=published.parent,
            profile=published.profile,
            placement=published.placement,
            size=published.size,
            shares_in_all=published.shares,
            is_listed=True,
        )
