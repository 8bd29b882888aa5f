"""The objects of one kind as a LIST and then a WATCH bring them: each decoded on its own, unchanged ones kept."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

import msgspec

from watchdog.kube.follow.watch_stream import BrokenStreamError, EventKind, Identity, WatchEvent, read_identity
from watchdog.kube.objects.wire import DECODE_ERRORS

Item = bytes | msgspec.Raw
Value = TypeVar("Value")
_Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded(Generic[Value]):
    """An object that could be read."""

    identity: Identity
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """An object that could not be read: what it said before does not hold any more, what it says now is not known."""

    title: str
    why: str


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Value]):
    uid: str
    content: Value | Unread


class Shelf(Generic[Value]):
    """The objects by namespace and name, in the order in which they came; for one thread.

    A name stands for one object at a time, whatever its UID: one that is created anew takes the former one's place,
    and the deletion of the former one, should it come late, takes nothing away.
    """

    def __init__(self, decode: Callable[[Item], Decoded[Value] | None], *, namespaced: bool) -> None:
        """`decode` gives None for an object that is none of ours, and one of DECODE_ERRORS where it can't be read."""
        self._decode: Final = decode
        self._namespaced: Final = namespaced
        self._entries: dict[_Key, _Entry[Value]] = {}
        self._nameless: tuple[Unread, ...] = ()

    def fill(self, items: Sequence[Item]) -> bool:
        """Take these and nothing else; whether anything has changed. What is equal stays the very same object."""
        before, nameless_before = self._entries, self._nameless
        self._entries, nameless = {}, []
        for key, entry in filter(None, map(self._read, items)):
            if key is not None:
                self._entries[key] = _kept(before.get(key), entry)
            elif isinstance(entry.content, Unread):
                nameless.append(entry.content)
        self._nameless = tuple(nameless)
        return (self._entries, self._nameless) != (before, nameless_before)

    def take(self, event: WatchEvent) -> bool:
        """Take a change; whether anything has changed. BrokenStreamError where it does not say of what."""
        if event.kind is EventKind.DELETED:
            return self._drop(event.identity)
        found = self._read(event.item, event.identity)
        if found is None:
            return self._drop(event.identity)
        key, entry = found
        if key is None:
            key = self._key_of(event.identity)
            if key is None:
                raise BrokenStreamError("an event can't be read, and does not say which object it is about")
        before = self._entries.get(key)
        self._entries[key] = _kept(before, entry)
        return self._entries[key] is not before

    @property
    def values(self) -> Iterator[Value]:
        """What could be read."""
        return (entry.content for entry in self._entries.values() if not isinstance(entry.content, Unread))

    @property
    def unread(self) -> Iterator[Unread]:
        """What could not be read."""
        for (namespace, name), entry in self._entries.items():
            if isinstance(entry.content, Unread):
                # It may have been found by its UID, and not say its name any more.
                yield replace(entry.content, title=Identity(namespace=namespace, name=name).title)
        yield from self._nameless

    def _read(self, item: Item, identity: Identity | None = None) -> tuple[_Key | None, _Entry[Value]] | None:
        try:
            decoded = self._decode(item)
        except DECODE_ERRORS as error:
            identity = identity or read_identity(item)
            unread = Unread(title=identity.title, why=str(error))
            return self._name(identity), _Entry(identity.uid, unread)
        if decoded is None:
            return None
        return self._name(decoded.identity), _Entry(decoded.identity.uid, decoded.value)

    def _drop(self, identity: Identity) -> bool:
        key = self._key_of(identity)
        if key is None:
            raise BrokenStreamError("a deletion does not say which object it is about")
        found = self._entries.get(key)
        if found is None or (found.uid and identity.uid and found.uid != identity.uid):
            return False
        del self._entries[key]
        return True

    def _key_of(self, identity: Identity) -> _Key | None:
        """Where the object stands: by its name, or, where that is not legible, by its UID."""
        key = self._name(identity)
        if key is not None or not identity.uid:
            return key
        return next((key for key, entry in self._entries.items() if entry.uid == identity.uid), None)

    def _name(self, identity: Identity) -> _Key | None:
        if not identity.name or (self._namespaced and not identity.namespace):
            return None
        return identity.namespace, identity.name


def _kept(before: _Entry[Value] | None, now: _Entry[Value]) -> _Entry[Value]:
    """The former one where they are equal: whoever compares by identity has nothing to do again."""
    return before if before is not None and before == now else now
