"""The JSON of the API and of `kubectl get -o json`: lists are split, so that each object is decoded on its own."""

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import msgspec

Item = bytes | msgspec.Raw
Decoded = TypeVar("Decoded")


class RawListMetadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """`metadata` of a list."""

    resource_version: str = ""
    # The token to request the rest of it; empty if it is complete.
    more: str = msgspec.field(default="", name="continue")


class RawDocument(msgspec.Struct, gc=False):
    """A list of objects, or one object."""

    kind: str = ""
    metadata: RawListMetadata = RawListMetadata()
    items: list[msgspec.Raw] | None = None


DOCUMENT_DECODER: Final = msgspec.json.Decoder(RawDocument)
_ANYTHING: Final = msgspec.json.Decoder()
# RecursionError: even `decode_json` raises it for brackets by the thousand that are never closed.
DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# What is read of any object is nested less than half as deep.
_DEEPEST: Final = 50


def older(pattern: bytes) -> bytes:
    """The pattern without possessive quantifiers, which match wrongly before Python 3.11.5 (python/cpython#106052)."""
    return pattern.replace(b"*+", b"*").replace(b"++", b"")


_IN_STRING: Final = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
_NO_BRACKET: Final = rb'(?:[^"\[\]{}]++|"%b")*+' % _IN_STRING
# The next bracket; pairs without others in between, the most common ones, are passed over at once.
_NO_PAIR: Final = rb"%(no)b(?:(?:\{%(no)b\}|\[%(no)b\])%(no)b)*+" % {b"no": _NO_BRACKET}


def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern if sys.version_info >= (3, 11, 5) else older(pattern), re.DOTALL)


_BRACKET: Final = _compiled(_NO_PAIR + rb"([\[\]{}])")


def decode_json(decoder: msgspec.json.Decoder[Decoded], text: Item) -> Decoded:
    """Decode JSON however deep it is nested; an error of DECODE_ERRORS if it can't be read.

    Anyone who may create pods can nest `metadata.managedFields` almost 10,000 levels deep, and the list of the node's
    pods contains it: Kubernetes 1.34 stored 9,990 levels, and 9,999 if they came as protobuf. msgspec goes 990 levels
    deep with Python 3.11, 1,491 with 3.12.1, 9,992 with 3.13.0; only for 3.11 can that be raised.
    """
    try:
        return decoder.decode(text)
    except RecursionError:
        return decoder.decode(_without_depths(bytes(text)))


def _without_depths(text: bytes) -> bytes:
    """The same JSON, with whatever is nested too deeply to matter emptied."""
    kept: list[bytes] = []
    depth = start = 0
    for found in _BRACKET.finditer(text):
        if found[1] in b"[{":
            depth += 1
            if depth == _DEEPEST:
                kept.append(text[start : found.end()])
        else:
            if depth == _DEEPEST:
                start = found.start(1)
            depth -= 1
    return b"".join((*kept, text[start:]))


# etcd accepts 1.5 MiB per object (--max-request-bytes), which JSON can make six times as long (each byte as \u00XX).
LONGEST_OBJECT: Final = 16 * 2**20
# Before the next mark: a bracket, the quote of a string that the text does not end, or the end of the text.
_MARK: Final = rb'([\[\]{}"]|\Z)'
_NEXT: Final = _compiled(_NO_BRACKET + _MARK)
_NEXT_IN_ITEM: Final = _compiled(_NO_PAIR + _MARK)
_REST_OF_STRING: Final = _compiled(_IN_STRING)
_ITEMS: Final = re.compile(rb'[{,]\s*"items"\s*:\s*\[\Z')
_OPENING, _CLOSING = frozenset((b"[", b"{")), frozenset((b"]", b"}"))


class ListSplitter:
    """Splits the JSON of a list into its items while it arrives, and holds one of them at a time.

    Nothing limits the size of a list: 30 pods of one tenant, which need never run, can make it 250 MiB.
    """

    def __init__(self, longest: int = LONGEST_OBJECT) -> None:
        self._longest = longest
        self._item: bytearray | None = None
        self._rest = bytearray()
        self._escape = b""
        self._depth = 0
        self._in_items = self._in_string = False

    @property
    def rest(self) -> bytes:
        """What has come of the list, with `{}` or `[]` for each item that has been split off."""
        return bytes(self._rest)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Each object or array in `items` that this chunk completes; ValueError if one is too long."""
        chunk, self._escape = self._escape + chunk, b""
        start = at = 0
        while at < len(chunk):
            if self._in_string:
                at = self._skip_string(chunk, at)
                continue
            before, at = self._depth, self._skip_deep(chunk, at)
            change = before, self._depth
            if change == (1, 2):
                self._append(chunk[start:at])
                start, self._in_items = at, _ITEMS.search(self._rest) is not None
            elif change == (2, 3) and self._in_items:
                self._append(chunk[start:at])
                start, self._item = at - 1, bytearray()
            elif change == (3, 2) and self._item is not None:
                self._append(chunk[start:at])
                yield bytes(self._item)
                start, self._item = at - 1, None
        self._append(chunk[start : len(chunk) - len(self._escape)])

    def _skip_string(self, chunk: bytes, at: int) -> int:
        """Where the string ends, or the chunk."""
        at = next(_REST_OF_STRING.finditer(chunk, at)).end()
        if at == len(chunk):
            return at
        self._in_string = chunk[at : at + 1] != b'"'
        self._escape = b"\\" if self._in_string else b""  # the next chunk has the character that it escapes
        return at + 1

    def _skip_deep(self, chunk: bytes, at: int) -> int:
        """Where the next bracket ends that may begin or end an item; or the chunk, or the quote of its last string."""
        depth = self._depth
        for found in (_NEXT_IN_ITEM if depth > 2 else _NEXT).finditer(chunk, at):
            mark = found[1]
            if mark in _OPENING:
                depth += 1
            elif mark in _CLOSING:
                depth -= 1
            else:
                self._in_string = mark != b""
                break
            if depth < 4:
                break
        self._depth = depth
        return found.end()

    def _append(self, part: bytes) -> None:
        kept = self._rest if self._item is None else self._item
        kept += part
        if len(kept) > self._longest:
            raise ValueError(f"an object is longer than {self._longest // 2**20} MiB")


def split_items(text: bytes, kind: str) -> Sequence[Item]:
    """Split the output of `kubectl get -o json` into its objects: a list of them, or a single one of this kind.

    ValueError with a sentence if it is neither: half-written, not JSON, another kind.
    """
    try:
        document = decode_json(DOCUMENT_DECODER, text)
    except DECODE_ERRORS as error:
        raise ValueError(f"it is not what `kubectl get -o json` prints: {error}") from error
    if document.kind == kind:
        return (text,)
    if document.kind not in ("List", f"{kind}List") or document.items is None:
        raise ValueError(f"it is not a list of kind {kind}List: its kind is {document.kind or 'missing'!r}")
    return document.items


def name_object(item: Item) -> str:
    """The name of an object that can't be decoded, as far as it is readable."""
    try:
        metadata = decode_json(_ANYTHING, item)["metadata"]
        return "/".join(str(metadata[key]) for key in ("namespace", "name") if key in metadata) or "without a name"
    except (*DECODE_ERRORS, LookupError, TypeError):
        return "without a name"
