"""A node as the API writes it -> the node that the core knows."""

import msgspec

from watchdog.core.model import Node
from watchdog.kube.objects.wire import NODE_DECODER, RawNodeStatus


def decode_node(item: bytes | msgspec.Raw) -> Node:
    """Read one node; an error of DECODE_ERRORS where it can't be read."""
    raw = NODE_DECODER.decode(item)
    capacity = (raw.status or RawNodeStatus()).capacity or {}
    return Node(
        name=raw.metadata.name,
        labels=raw.metadata.labels or {},
        annotations=raw.metadata.annotations or {},
        capacity={name: str(quantity) for name, quantity in capacity.items()},
        uid=raw.metadata.uid,
    )
