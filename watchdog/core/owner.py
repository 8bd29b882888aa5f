"""Who stands behind a pod."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The controller of a pod, as its own object tells."""

    kind: str
    name: str
