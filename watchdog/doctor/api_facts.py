"""What doctor knows of the API server and of this account there, before it judges."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from watchdog.kube.credentials import Credentials, Peer
from watchdog.kube.reviews import Account
from watchdog.kube.rights import Right

# Where the questions ended: no way, no answer, a certificate that is not accepted, an answer that is none of an API
# server, credentials that are not accepted, none that were sent, no time left; or all was asked.
Ended = Literal["no_way", "unreachable", "certificate", "odd", "credentials", "anonymous", "late", "asked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiFacts:
    """All that was asked of the API server, as far as it went. `problem` is why it went no further, with its remedy.

    `offset_s` is how far its clock is ahead of this node's. `rights` are the verbs that this account lacks of each
    right that was asked for, `later` those of rights that the policy would need to enforce; `rights_problem` is why
    not all could be asked. `exists` is whether the cluster has a node of
    this name, None where that can't be seen; `similar` is a node's name that is there and was perhaps meant.
    `waited_s` is how long was waited where it ended `late`, and `asking` for what.
    """

    ended: Ended
    kubeconfig: Path | None = None
    host: str = ""
    problem: str = ""
    version: str = ""
    offset_s: float | None = None
    now_s: float = 0.0
    peer: Peer = field(default_factory=Peer)
    credentials: Credentials = field(default_factory=Credentials)
    account: Account = field(default_factory=Account)
    rights: Mapping[Right, tuple[str, ...]] = field(default_factory=dict)
    later: Mapping[Right, tuple[str, ...]] = field(default_factory=dict)
    rights_problem: str = ""
    exists: bool | None = None
    similar: str = ""
    asking: str = ""
    waited_s: float = 0.0

    @property
    def unlisted(self) -> frozenset[str]:
        """The resources that this account may not list, of those that the policy needs."""
        return frozenset(right.resource for right, lacking in self.rights.items() if "list" in lacking)
