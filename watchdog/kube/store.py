"""The objects of one kind, filled by a LIST and updated by a WATCH; each object is decoded on its own."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

import msgspec

from watchdog.kube.client import ApiResponse
from watchdog.kube.wire import DECODE_ERRORS, DOCUMENT_DECODER, LONGEST_OBJECT, Item, ListSplitter, decode_json


class BrokenStreamError(ValueError):
    """A watch event that can't be interpreted, so nothing after it can be relied on."""


class EventKind(StrEnum):
    """The types of watch events (EventType in k8s.io/apimachinery/pkg/watch)."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """An object's identity by its own metadata; a part is empty if it is missing or unreadable."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    version: str = ""

    @property
    def title(self) -> str:
        """`namespace/name`, as far as readable."""
        return "/".join(filter(None, (self.namespace, self.name))) or "without a name"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One line of a watch."""

    kind: EventKind
    # The raw object.
    item: Item
    identity: Identity


class LineSplitter:
    """Splits a stream into lines, buffering no more than the longest line allowed."""

    def __init__(self, longest: int = LONGEST_OBJECT) -> None:
        self._longest = longest
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Each line that this chunk completes; BrokenStreamError if one is too long. An incomplete last line waits."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._append(chunk[start:end])
            line, self._rest = bytes(self._rest), bytearray()
            start = end + 1
            if line.strip():
                yield line
        self._append(chunk[start:])

    def _append(self, part: bytes) -> None:
        if len(self._rest) + len(part) > self._longest:
            self._rest = bytearray()
            raise BrokenStreamError(f"a line is longer than {self._longest // 2**20} MiB")
        self._rest += part


class _RawEvent(msgspec.Struct, gc=False):
    type: EventKind
    object: msgspec.Raw


# Of any type: even of an object that can't be decoded, the name should be read if possible.
class _RawIdentity(msgspec.Struct, rename="camel", gc=False):
    name: object = None
    namespace: object = None
    uid: object = None
    resource_version: object = None


class _RawWithIdentity(msgspec.Struct, gc=False):
    metadata: _RawIdentity


class _RawCode(msgspec.Struct, gc=False):
    code: int = 0


_CODE: Final = msgspec.json.Decoder(_RawCode)
_EVENT: Final = msgspec.json.Decoder(_RawEvent)
_OBJECT: Final = msgspec.json.Decoder(_RawWithIdentity)
_RAW: Final = msgspec.json.Decoder(msgspec.Raw)


def read_event(line: bytes) -> WatchEvent:
    """Parse one line; BrokenStreamError if it is not an event of a known type."""
    try:
        raw = decode_json(_EVENT, line)
    except DECODE_ERRORS as error:
        raise BrokenStreamError(f"a line is not a watch event: {error}") from error
    identity = Identity() if raw.type is EventKind.ERROR else read_identity(raw.object)
    if raw.type is EventKind.BOOKMARK and not identity.version:
        raise BrokenStreamError("a bookmark has no resourceVersion")
    return WatchEvent(kind=raw.type, item=raw.object, identity=identity)


def read_identity(item: Item) -> Identity:
    """The identity of an object, as far as it can be read."""
    try:
        metadata = decode_json(_OBJECT, item).metadata
    except DECODE_ERRORS:
        return Identity()
    return Identity(
        namespace=_text(metadata.namespace),
        name=_text(metadata.name),
        uid=_text(metadata.uid),
        version=_version(metadata.resource_version),
    )


def read_status(item: Item) -> ApiResponse:
    """The Status of an ERROR event, as the response that it would have been."""
    try:
        code = _CODE.decode(item).code
    except DECODE_ERRORS:
        code = 0
    return ApiResponse(code if code >= 400 else 500, bytes(item), {})


class ListReader:
    """The items of a list of this kind, read while it arrives; ValueError if it is no such list.

    `version` is its resourceVersion, to watch from, once all items have been read.
    """

    def __init__(self, chunks: Iterable[bytes], kind: str) -> None:
        self._chunks = chunks
        self._kind = kind
        self.version = ""

    def __iter__(self) -> Iterator[msgspec.Raw]:
        splitter = ListSplitter()
        try:
            for chunk in self._chunks:
                for item in splitter.feed(chunk):
                    yield decode_json(_RAW, item)
            document = decode_json(DOCUMENT_DECODER, splitter.rest)
        except DECODE_ERRORS as error:
            raise ValueError(f"the response is not a list: {error}") from error
        if document.kind != self._kind:
            raise ValueError(f"the response is not a {self._kind}, but {document.kind or 'nameless'!r}")
        self.version = _version(document.metadata.resource_version)
        if not self.version:
            raise ValueError(f"the {self._kind} has no resourceVersion to watch from")
        yield from (item for item in document.items or () if bytes(item) not in (b"{}", b"[]"))


def _version(text: object) -> str:
    # A watch from "0" may start at any version, and miss objects that were deleted meanwhile.
    return "" if text == "0" else _text(text)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


Value = TypeVar("Value")
_Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """An object that could not be read: its previous content no longer holds, its current content is not known."""

    title: str
    why: str


# A pod as it is kept takes 3 kB; a tenant can make it take 9 MB, and only quotas limit how many pods name a node.
ROOM: Final = 32 * 2**20
_SLACK: Final = ROOM // 8  # all objects are looked through once in as many bytes, and not for each one
_NO_ROOM: Final = f"it is one of the largest, and all of them take more than {ROOM // 2**20} MiB of memory"


@dataclass(frozen=True, slots=True)
class _StoredObject(Generic[Value]):
    """What the store has of one object."""

    uid: str
    content: Value | Unread
    # About how many bytes the content takes in memory, rather more than less.
    size: int = 0

    @classmethod
    def of(
        cls,
        uid: str,
        content: Value | Unread,
        before: "_StoredObject[Value] | None",
        own: Callable[[Value], object] = lambda value: value,
    ) -> "_StoredObject[Value]":
        """What is kept of an object; what was kept before, if it is equal. `own` leaves out what others share."""
        size = 0
        if not isinstance(content, Unread):
            text = msgspec.json.encode(own(content))
            # A string with what refers to it takes 80 bytes, and one rare character makes all of it four times as long.
            size = len(text) * (1 if text.isascii() else 4) + 40 * text.count(b'"')
        made = cls(uid, content, size)
        return before if before == made and before is not None else made


class Store(Generic[Value]):
    """The objects by namespace and name, in the order of arrival; for one thread.

    A name stands for one object at a time, whatever its UID: a recreated object replaces the former one, and a late
    deletion of the former one removes nothing. An equal object stays identical, so that comparisons by identity see no
    change.
    """

    def __init__(
        self,
        decode: Callable[[Item], Value | None],
        *,
        namespaced: bool,
        may_go: Callable[[Value], bool] = lambda _: True,
        on_deleted: Callable[[str], None] = lambda _: None,
        shrink: Callable[[Value], Value] = lambda value: value,
        own: Callable[[Value], object] = lambda value: value,
    ) -> None:
        """`decode` returns None for an object to be ignored, and raises one of DECODE_ERRORS if it can't be read.

        Where there is no room for all, the largest are made smaller by `shrink`, and given up if that is not enough;
        what `may_go` comes first. `own` is what of an object takes memory that no other one shares. `on_deleted` gets
        the UID of each object that an event deletes, before it is removed here.
        """
        self._decode: Final = decode
        self._may_go: Final = may_go
        self._on_deleted: Final = on_deleted
        self._shrink: Final = shrink
        self._own: Final = own
        self._namespaced: Final = namespaced
        self._entries: dict[_Key, _StoredObject[Value]] = {}
        self._nameless: tuple[Unread, ...] = ()
        self._size = 0

    def fill(self, items: Iterable[Item]) -> bool:
        """Replace all objects with these, once all have come; return whether anything has changed."""
        before = self._entries, self._nameless
        entries: dict[_Key, _StoredObject[Value]] = {}
        nameless = []
        size = 0
        for item in items:
            identity = read_identity(item)
            key, content = self._name(identity), self._read(item, identity.title)
            if key is not None and content is not None:
                entries[key] = _StoredObject.of(identity.uid, content, self._entries.get(key), self._own)
                size += entries[key].size
                if size > ROOM + _SLACK:
                    size = self._make_room(entries)
            elif isinstance(content, Unread):
                nameless.append(content)
        self._size = self._make_room(entries)
        self._entries, self._nameless = entries, tuple(nameless)
        return (self._entries, self._nameless) != before

    def apply(self, event: WatchEvent) -> bool:
        """Apply an event; return whether anything has changed. BrokenStreamError if it does not name its object."""
        uid = event.identity.uid
        if event.kind is EventKind.DELETED and uid:
            self._on_deleted(uid)
        key = self._name(event.identity) or next(
            (key for key, old in self._entries.items() if uid and old.uid == uid), None
        )
        if key is None:
            raise BrokenStreamError("an event does not name its object")
        before = self._entries.get(key)
        title = Identity(namespace=key[0], name=key[1]).title
        content = None if event.kind is EventKind.DELETED else self._read(event.item, title)
        if content is not None:
            self._entries[key] = after = _StoredObject.of(uid, content, before, self._own)
            self._size += after.size - (before.size if before is not None else 0)
            if self._size > ROOM + _SLACK:
                self._size = self._make_room(self._entries)
            return after is not before
        if before is None or (before.uid and uid and before.uid != uid):
            return False
        self._size -= self._entries.pop(key).size
        return True

    @property
    def values(self) -> Iterator[Value]:
        """The objects that could be read."""
        return (entry.content for entry in self._entries.values() if not isinstance(entry.content, Unread))

    @property
    def unread(self) -> Iterator[Unread]:
        """The objects that could not be read."""
        yield from (entry.content for entry in self._entries.values() if isinstance(entry.content, Unread))
        yield from self._nameless

    def _make_room(self, entries: dict[_Key, _StoredObject[Value]]) -> int:
        """Shrink the largest objects, then give them up, until there is room for all; returns the size of all."""
        size = sum(entry.size for entry in entries.values())
        for change in (self._shrunk, self._given_up):
            if size <= ROOM:
                break

            def order(key: _Key) -> tuple[bool, int]:
                content = entries[key].content
                return isinstance(content, Unread) or not self._may_go(content), -entries[key].size

            for key in sorted(entries, key=order):
                if size <= ROOM:
                    break
                before, entries[key] = entries[key], change(entries[key], key)
                size += entries[key].size - before.size
        return size

    def _shrunk(self, entry: _StoredObject[Value], key: _Key) -> _StoredObject[Value]:
        content = entry.content
        return (
            entry
            if isinstance(content, Unread)
            else _StoredObject.of(entry.uid, self._shrink(content), entry, self._own)
        )

    def _given_up(self, entry: _StoredObject[Value], key: _Key) -> _StoredObject[Value]:
        title = Identity(namespace=key[0], name=key[1]).title
        return _StoredObject(entry.uid, Unread(title=title, why=_NO_ROOM))

    def _name(self, identity: Identity) -> _Key | None:
        if not identity.name or (self._namespaced and not identity.namespace):
            return None
        return identity.namespace, identity.name

    def _read(self, item: Item, title: str) -> Value | Unread | None:
        try:
            return self._decode(item)
        except DECODE_ERRORS as error:
            return Unread(title=title, why=str(error))
