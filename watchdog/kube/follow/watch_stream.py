"""What a LIST and a WATCH bring, as bytes -> items and events; nothing here knows of a connection or of time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from watchdog.kube.api.answers import Answer
from watchdog.kube.objects.wire import DECODE_ERRORS

# etcd takes 1.5 MiB an object (--max-request-bytes), which JSON can make six times as long (each byte as \u00XX).
LONGEST_LINE: Final = 16 * 2**20


class BrokenStreamError(ValueError):
    """What came is no event of which anything can be said, so nothing after it can be relied on."""


class EventKind(StrEnum):
    """The types of watch events (EventType in k8s.io/apimachinery/pkg/watch)."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """How an object names itself; each part is empty where it has none, or none that is legible."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    version: str = ""

    @property
    def title(self) -> str:
        """For people: `namespace/name`, as far as it is legible."""
        return "/".join(filter(None, (self.namespace, self.name))) or "without a name"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One line of a watch; `item` is its object as it was written."""

    kind: EventKind
    item: bytes | msgspec.Raw
    identity: Identity = Identity()


class Lines:
    """Cuts a stream into lines, keeping no more of it than the longest line that is allowed."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Each line that this chunk ends; BrokenStreamError where one is too long. A last one without an end waits."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._take(chunk[start:end])
            line, self._rest = bytes(self._rest), bytearray()
            start = end + 1
            if line.strip():
                yield line
        self._take(chunk[start:])

    def _take(self, part: bytes) -> None:
        if len(self._rest) + len(part) > self._longest:
            self._rest = bytearray()
            raise BrokenStreamError(f"a line is longer than {self._longest // 2**20} MiB")
        self._rest += part


class _RawEvent(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


# Of any type: an object that can't be decoded shall still tell what it can of its name.
class _RawIdentity(msgspec.Struct, rename="camel", gc=False):
    name: object = None
    namespace: object = None
    uid: object = None
    resource_version: object = None


class _RawObject(msgspec.Struct, gc=False):
    metadata: _RawIdentity


class _RawListMeta(msgspec.Struct, rename="camel", gc=False):
    resource_version: str = ""


class _RawList(msgspec.Struct, gc=False):
    kind: str
    metadata: _RawListMeta
    items: list[msgspec.Raw] | None = None


class _RawCode(msgspec.Struct, gc=False):
    code: int = 0


_CODE: Final = msgspec.json.Decoder(_RawCode)
_EVENT: Final = msgspec.json.Decoder(_RawEvent)
_OBJECT: Final = msgspec.json.Decoder(_RawObject)
_LIST: Final = msgspec.json.Decoder(_RawList)


def read_event(line: bytes) -> WatchEvent:
    """Read one line; BrokenStreamError where it is no event of a type that is known."""
    try:
        raw = _EVENT.decode(line)
        kind = EventKind(raw.type)
    except (*DECODE_ERRORS, ValueError) as error:
        raise BrokenStreamError(f"a line is no event of a watch: {error}") from error
    if kind is EventKind.ERROR:
        return WatchEvent(kind=kind, item=raw.object)
    identity = read_identity(raw.object)
    if kind is EventKind.BOOKMARK and not identity.version:
        raise BrokenStreamError("a bookmark has no resourceVersion")
    return WatchEvent(kind=kind, item=raw.object, identity=identity)


def read_identity(item: bytes | msgspec.Raw) -> Identity:
    """How an object names itself, as far as it can be read."""
    try:
        metadata = _OBJECT.decode(item).metadata
    except DECODE_ERRORS:
        return Identity()
    return Identity(
        namespace=_text(metadata.namespace),
        name=_text(metadata.name),
        uid=_text(metadata.uid),
        version=_version(_text(metadata.resource_version)),
    )


def read_status(item: bytes | msgspec.Raw) -> Answer:
    """The Status that an ERROR event brings, as the answer that it would have been."""
    try:
        code = _CODE.decode(item).code
    except DECODE_ERRORS:
        code = 0
    return Answer(code if code >= 400 else 500, bytes(item), {})


def read_list(body: bytes, kind: str) -> tuple[Sequence[msgspec.Raw], str]:
    """The items of a list of this kind, and its resourceVersion, from which a watch goes on. ValueError otherwise."""
    try:
        found = _LIST.decode(body)
    except DECODE_ERRORS as error:
        raise ValueError(f"the answer is no list: {error}") from error
    if found.kind != kind:
        raise ValueError(f"the answer is no {kind}, but {found.kind or 'nameless'!r}")
    version = _version(found.metadata.resource_version)
    if not version:
        raise ValueError(f"the {kind} has no resourceVersion to go on from")
    return found.items or (), version


def _version(text: str) -> str:
    # A watch from "0" would begin anywhere, and pass over what has been deleted meanwhile.
    return "" if text == "0" else text


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
