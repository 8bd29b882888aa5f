"""How pages name pods and GPUs, and the paths of their pages.

Paths are relative to the status page, so that a proxy may put a path in front.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import quote

from watchdog.report.sentences.node import gpu_label
from watchdog.report.status import AccountStatus, GpuStatus, PlanStatus, RecentStatus, Status
from watchdog.report.text import inert, shorten

_LONGEST_SHOWN: Final = 40  # characters of a name; the UUID of a GPU has as many
_LONG_NAMES: Final = re.compile(rf"[^\s/]{{{_LONGEST_SHOWN + 1},}}")
# A name that is no part of a longer one; a full stop behind it may end a sentence.
_WHOLE_NAME: Final = r"(?<![\w./\\-])(?:{})(?![\w/\\-]|\.[\w.])"
# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
_NAMESPACE: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_NAME: Final = re.compile(r"(?!.*(?:\.\.|\.-|-\.))[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
# `3`, `3/1` of a MIG instance, or a UUID; older ones of instances are `MIG-GPU-.../1/0`.
_GPU: Final = re.compile(r"[0-9]{1,4}(?:/[0-9]{1,4})?|[A-Za-z0-9-]{1,80}(?:/[0-9]{1,4}){0,2}")


def pod_path(namespace: str, name: str) -> str:
    """The path of a pod's page; empty if that is no name that Kubernetes gives."""
    return f"pods/{namespace}/{name}" if _NAMESPACE.fullmatch(namespace) and _NAME.fullmatch(name) else ""


def gpu_path(name: str) -> str:
    """The path of a GPU's page by its short name or UUID; empty if that is no name that a driver gives."""
    return f"gpus/{quote(name)}" if _GPU.fullmatch(name) else ""


def short_names(text: str) -> str:
    """A text in which each name of more than 40 characters lacks its middle, such as both parts of `namespace/pod`."""
    if len(text) <= _LONGEST_SHOWN:
        return text
    return _LONG_NAMES.sub(lambda name: shorten(name[0], _LONGEST_SHOWN), text)


@dataclass(frozen=True, slots=True)
class PodName:
    """A pod as pages name it; parts.html renders all names by one macro, `subject_name`."""

    namespace: str
    pod: str
    # Whether it is listed under its namespace, which then is not part of the name.
    is_grouped: bool = False

    @classmethod
    def of(cls, title: str) -> Self:
        """The pod of a `namespace/name`."""
        namespace, _, name = title.partition("/")
        return cls(namespace, name)

    @property
    def names(self) -> tuple[str, str]:
        """The name as it is shown, each long part without its middle; and the whole one."""
        whole = inert(self.pod) if self.is_grouped else f"{inert(self.namespace)}/{inert(self.pod)}"
        return short_names(whole), whole

    @property
    def path(self) -> str:
        """The path of its page; empty if it has none."""
        return pod_path(self.namespace, self.pod)


@dataclass(frozen=True, slots=True)
class GpuName:
    """A GPU as pages name it."""

    label: str
    uuid: str
    # That of its page; empty: it has none.
    path: str = ""

    @property
    def names(self) -> tuple[str, str]:
        """The name as it is shown, and its UUID."""
        return self.label, inert(self.uuid)


Subject = PodName | GpuName


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedSubject:
    """The pod or the GPU that an address asks for."""

    # Empty if it asks for a GPU.
    namespace: str = ""
    pod: str = ""
    # Its short name in the status, or its UUID.
    gpu: str = ""

    @property
    def title(self) -> str:
        """The pod as `namespace/name`."""
        return f"{self.namespace}/{self.pod}"

    def is_of(self, of: AccountStatus | RecentStatus | PlanStatus) -> bool:
        """Whether an account, an action or a step is the pod's."""
        return (of.namespace, of.pod) == (self.namespace, self.pod)

    def gpus_of(self, status: Status) -> list[GpuStatus]:
        """The GPUs that it may mean; several are compute instances of one GPU instance."""
        return [gpu for gpu in status.gpus if gpu.has_name(self.gpu)]


def gpu_names(gpus: Iterable[GpuStatus]) -> Mapping[str, GpuName]:
    """The names of a node's GPUs by UUID, in their order."""
    gpus = tuple(gpus)
    # Compute instances of one GPU instance have the same number, so their paths have their UUIDs.
    numbers = Counter((gpu.index, gpu.gi) for gpu in gpus)
    return {
        gpu.uuid: GpuName(
            label=gpu_label(gpu),
            uuid=gpu.uuid,
            path=gpu_path(gpu.uuid if gpu.index is None or numbers[gpu.index, gpu.gi] > 1 else gpu.number),
        )
        for gpu in gpus
    }


def with_subjects(text: str, subjects: Iterable[Subject]) -> Iterator[str | Subject]:
    """A text in parts: those pods and GPUs that it names by any of their names, and what is between them.

    What has no page stays text, as does a name that several have.
    """
    by_name: dict[str, set[Subject]] = {}
    for subject in subjects:
        if subject.path:
            for name in (*subject.names, inert(subject.names[1])):
                by_name.setdefault(name, set()).add(subject)
    known = {name: found.pop() for name, found in by_name.items() if len(found) == 1}
    end = 0
    if known:
        longest_first = sorted(known, key=len, reverse=True)
        for match in re.finditer(_WHOLE_NAME.format("|".join(map(re.escape, longest_first))), text):
            if match.start() > end:
                yield text[end : match.start()]
            yield known[match[0]]
            end = match.end()
    if end < len(text):
        yield text[end:]
