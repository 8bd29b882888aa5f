"""The profile of AppArmor and the label of SELinux that this process runs under: both may keep signals from pods."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# The first is AppArmor's own (Linux 5.8); the second is that of whichever module is the main one (proc_pid_attr(5)).
_ATTRIBUTES: Final = (Path("/proc/self/attr/apparmor/current"), Path("/proc/self/attr/current"))
_APPARMOR: Final = re.compile(r"(?P<name>.+?)(?: \((?P<mode>[a-z]+)\))?")
_SELINUX: Final = re.compile(r"[^:\s]+:[^:\s]+:(?P<type>[^:\s]+)(?::.+)?")
# Profiles that let signals through to processes under the same profile alone: those that runtimes give to containers
# (containerd contrib/apparmor/template.go, moby profiles/apparmor/template.go, containers/common pkg/apparmor).
_OF_RUNTIMES: Final = re.compile(r"cri-containerd\.apparmor\.d|docker-default|crio-default|containers-default-.+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What holds this process: names, empty where there is nothing that does.

    `profile` is of AppArmor, without its mode; `is_of_runtime` says that a container runtime gives it to whoever has
    none. `selinux_type` is the third part of SELinux's label.
    """

    profile: str = ""
    is_of_runtime: bool = False
    selinux_type: str = ""


def look_at_confinement() -> Confinement:
    """Read what this process runs under; nothing where neither module runs, or where it can't be read."""
    for path in _ATTRIBUTES:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # EINVAL where the module that owns the file is off
        if text.strip("\0\n "):
            return confinement_of(text)
    return Confinement()


def confinement_of(text: str) -> Confinement:
    """Understand the text of such a file.

    AppArmor writes `NAME (MODE)`, or `unconfined`; profiles that lie on top of each other are joined by `//&`, and each
    of them must let a signal through. In modes other than `enforce` and `kill` a profile denies nothing.
    """
    label = text.strip("\0\n ")
    found = _SELINUX.fullmatch(label)
    if found and " (" not in label and "//" not in label:
        return Confinement(selinux_type=found["type"])
    matched = _APPARMOR.fullmatch(label)
    if matched is None or matched["mode"] in ("complain", "unconfined"):
        return Confinement()
    names = [name for name in matched["name"].split("//&") if name.rpartition(":")[2] != "unconfined"]
    return Confinement(profile="//&".join(names), is_of_runtime=any(map(_OF_RUNTIMES.fullmatch, names)))
