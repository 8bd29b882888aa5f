"""The types of the API's JSON, with only the fields that are read; unknown fields are ignored, known ones must fit."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final

import msgspec


class RawResources(msgspec.Struct, gc=False):
    """`resources` of a container; quantities are strings, or numbers where something other than the API wrote them."""

    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None


class RawContainer(msgspec.Struct, rename="camel", gc=False):
    """A container of a pod's spec."""

    name: str
    resources: RawResources | None = None
    restart_policy: str | None = None


class RawSpec(msgspec.Struct, rename="camel", gc=False):
    """`spec` of a pod."""

    containers: list[RawContainer]
    init_containers: list[RawContainer] | None = None
    ephemeral_containers: list[RawContainer] | None = None
    node_name: str | None = None
    priority: int | None = None


class RawTerminated(msgspec.Struct, gc=False):
    """`terminated` of a container's state."""

    container_id: str | None = msgspec.field(default=None, name="containerID")


class RawState(msgspec.Struct, gc=False):
    """`state` or `lastState` of a container's status."""

    running: dict[str, msgspec.Raw] | None = None  # only its presence matters
    terminated: RawTerminated | None = None


class RawContainerStatus(msgspec.Struct, rename="camel", gc=False):
    """One of the three kinds of container statuses."""

    name: str
    container_id: str | None = msgspec.field(default=None, name="containerID")
    state: RawState | None = None
    last_state: RawState | None = None


class RawStatus(msgspec.Struct, rename="camel", gc=False):
    """`status` of a pod."""

    container_statuses: list[RawContainerStatus] | None = None
    init_container_statuses: list[RawContainerStatus] | None = None
    ephemeral_container_statuses: list[RawContainerStatus] | None = None


class RawOwnerReference(msgspec.Struct, gc=False):
    """One of `metadata.ownerReferences`."""

    kind: str
    name: str
    controller: bool | None = None


class RawMetadata(msgspec.Struct, rename="camel", gc=False):
    """`metadata` of a pod."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    namespace: Annotated[str, msgspec.Meta(min_length=1)]
    uid: Annotated[str, msgspec.Meta(min_length=1)]
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[RawOwnerReference] | None = None
    deletion_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class RawPod(msgspec.Struct, gc=False):
    """A pod."""

    metadata: RawMetadata
    spec: RawSpec
    status: RawStatus | None = None


class RawLabelled(msgspec.Struct, gc=False):
    """`metadata` of a node or a namespace."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    labels: dict[str, str] | None = None


class RawNodeMetadata(RawLabelled, gc=False):
    """`metadata` of a node."""

    annotations: dict[str, str] | None = None
    uid: str = ""


class RawNodeStatus(msgspec.Struct, gc=False):
    """`status` of a node."""

    capacity: dict[str, str | int | float] | None = None


class RawNode(msgspec.Struct, gc=False):
    """A node."""

    metadata: RawNodeMetadata
    status: RawNodeStatus | None = None


class RawNamespace(msgspec.Struct, gc=False):
    """A namespace."""

    metadata: RawLabelled


class RawListMetadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """`metadata` of a list; `more` is the token to request the rest of it, empty if it is complete."""

    resource_version: str = ""
    more: str = msgspec.field(default="", name="continue")


class RawDocument(msgspec.Struct, gc=False):
    """A list of objects, or one object."""

    kind: str = ""
    metadata: RawListMetadata = RawListMetadata()
    items: list[msgspec.Raw] | None = None


DOCUMENT_DECODER: Final = msgspec.json.Decoder(RawDocument)
POD_DECODER: Final = msgspec.json.Decoder(RawPod)
NODE_DECODER: Final = msgspec.json.Decoder(RawNode)
NAMESPACE_DECODER: Final = msgspec.json.Decoder(RawNamespace)
# RecursionError: JSON nested a thousand levels deep.
DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def split_items(text: bytes, kind: str) -> Sequence[bytes | msgspec.Raw]:
    """Split the output of `kubectl get -o json` into its objects: a list of them, or a single one of this kind.

    ValueError with a sentence if it is neither: half-written, not JSON, another kind.
    """
    try:
        document = DOCUMENT_DECODER.decode(text)
    except DECODE_ERRORS as error:
        raise ValueError(f"it is not what `kubectl get -o json` prints: {error}") from error
    if document.kind == kind:
        return (text,)
    if document.kind not in ("List", f"{kind}List") or document.items is None:
        raise ValueError(f"it is not a list of kind {kind}List: its kind is {document.kind or 'missing'!r}")
    return document.items


def name_object(item: bytes | msgspec.Raw) -> str:
    """The name of an object that can't be decoded, as far as it is readable."""
    try:
        metadata = msgspec.json.decode(item)["metadata"]
        return "/".join(str(metadata[key]) for key in ("namespace", "name") if key in metadata) or "without a name"
    except (*DECODE_ERRORS, LookupError, TypeError):
        return "without a name"
