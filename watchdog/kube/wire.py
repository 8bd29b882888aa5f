"""The JSON of the API and of `kubectl get -o json`: lists are split, so that each object is decoded on its own."""

from collections.abc import Sequence
from typing import Final

import msgspec

Item = bytes | msgspec.Raw


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
# RecursionError: JSON nested a thousand levels deep.
DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def split_items(text: bytes, kind: str) -> Sequence[Item]:
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


def name_object(item: Item) -> str:
    """The name of an object that can't be decoded, as far as it is readable."""
    try:
        metadata = msgspec.json.decode(item)["metadata"]
        return "/".join(str(metadata[key]) for key in ("namespace", "name") if key in metadata) or "without a name"
    except (*DECODE_ERRORS, LookupError, TypeError):
        return "without a name"
