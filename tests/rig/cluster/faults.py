"""What the API proxy does wrong, and to which requests."""

import json
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.rig.cluster.api import Object
from tests.rig.cluster.network import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A request as the proxy saw it; `at_s` is UNIX seconds."""

    method: str
    path: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str]
    at_s: float

    @property
    def watch(self) -> bool:
        """Whether it asks for a stream."""
        return self.parameters.get("watch") in {"1", "true", "True"}


When = Callable[[Seen], bool]
Edit = Callable[[bytes], bytes]


def everything(_: Seen) -> bool:
    """Every request."""
    return True


def watches(resource: str) -> When:
    """Watches of a resource, such as `pods`."""
    return lambda seen: seen.watch and seen.path.endswith(f"/{resource}")


def lists(resource: str) -> When:
    """Lists of a resource."""
    return lambda seen: seen.method == "GET" and not seen.watch and seen.path.endswith(f"/{resource}")


def writes(ending: str) -> When:
    """Everything but GET on paths with this ending, such as `/eviction` or `/events`."""
    return lambda seen: seen.method != "GET" and seen.path.endswith(ending)


def reply(status: int, headers: Mapping[str, str] | None, body: Object | bytes | None) -> Answer:
    """An answer that the API server never gave: without a body, a `Status` object with that code."""
    if body is None:
        made = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": status}
        body = {**made, "message": f"{status} by the proxy of the tests"}
    kind = "text/plain" if isinstance(body, bytes) else "application/json"
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(status=status, headers={"Content-Type": kind, **(headers or {})}, body=content)


@dataclass(eq=False, slots=True, kw_only=True)
class Rule:
    """One fault; `times` is how often it is still to be applied, None for every time."""

    when: When
    times: int | None
    reply: Answer | None = None
    delay_s: float = 0.0
    edit: Edit | None = None
    cut: bool = False


@dataclass(eq=False, slots=True)
class Rules:
    """The current faults, the latest first. A rule is used up by being applied."""

    _rules: list[Rule] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    healed: threading.Event = field(default_factory=threading.Event)

    def add(self, rule: Rule) -> None:
        with self._lock:
            self._rules.insert(0, rule)

    def clear(self) -> None:
        """Take all back; delays that run end."""
        with self._lock:
            self._rules.clear()
            self.healed.set()
            self.healed = threading.Event()

    def take(self, seen: Seen, wanted: Callable[[Rule], bool]) -> Rule | None:
        """The latest rule for a request that is of the wanted kind."""
        with self._lock:
            for rule in self._rules:
                if wanted(rule) and rule.when(seen):
                    if rule.times is not None:
                        rule.times -= 1
                        if rule.times <= 0:
                            self._rules.remove(rule)
                    return rule
        return None


def parse(method: str, target: str, headers: Mapping[str, str], at_s: float) -> Seen:
    """A request from its first line and headers."""
    parts = urllib.parse.urlsplit(target)
    parameters = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
    return Seen(method=method, path=parts.path, parameters=parameters, headers=headers, at_s=at_s)
