"""The JSON of the API and of `kubectl get -o json`: lists are split, so that each object is decoded on its own."""

import re
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

Item = bytes | msgspec.Raw
Decoded = TypeVar("Decoded")


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
_ANYTHING: Final = msgspec.json.Decoder()
# RecursionError: even `decode_json` raises it for brackets by the thousand that are never closed.
DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# What is read of any object is nested less than half as deep.
_DEEPEST: Final = 50
_NO_BRACKET: Final = rb'[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# The next bracket; pairs without others in between, the most common ones, are passed over at once.
_BRACKET: Final = re.compile(
    rb"(?:%(no)b|\{(?:%(no)b)*+\}|\[(?:%(no)b)*+\])*+([\[\]{}])" % {b"no": _NO_BRACKET}, re.DOTALL
)


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
