"""The profile of AppArmor and the label of SELinux that this process runs under: both may keep signals from pods."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ATTRIBUTES: Final = Path("/proc/self/attr")
_ENABLED: Final = Path("/sys/module/apparmor/parameters/enabled")
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


def look_at_confinement(attributes: Path = _ATTRIBUTES, enabled: Path = _ENABLED) -> Confinement:
    """Read what this process runs under; nothing where neither module runs, or where it can't be read."""
    # AppArmor's own file is of Linux 5.8; the other is that of whichever module is the main one (proc_pid_attr(5)).
    if own := _text(attributes / "apparmor" / "current"):
        return confinement_of(own)
    return confinement_of(_text(attributes / "current"), has_apparmor=_text(enabled) == "Y")


def confinement_of(text: str, *, has_apparmor: bool = True) -> Confinement:
    """Understand the text of such a file.

    AppArmor writes `NAME (MODE)`, or `unconfined`; profiles that lie on top of each other are joined by `//&`, and each
    of them must let a signal through. In modes other than `enforce` and `kill` a profile denies nothing. Without
    AppArmor a bare name is another module's: SELinux with no policy loaded writes `kernel`
    (security_sid_to_context_core in security/selinux/ss/services.c), Smack a label such as `_`.
    """
    label = text.strip("\0\n ")
    found = _SELINUX.fullmatch(label)
    if found and " (" not in label and "//" not in label:
        return Confinement(selinux_type=found["type"])
    matched = _APPARMOR.fullmatch(label)
    if matched is None or matched["mode"] in ("complain", "unconfined") or not (matched["mode"] or has_apparmor):
        return Confinement()
    names = [name for name in matched["name"].split("//&") if name.rpartition(":")[2] != "unconfined"]
    return Confinement(profile="//&".join(names), is_of_runtime=any(map(_OF_RUNTIMES.fullmatch, names)))


def _text(path: Path) -> str:
    """What a file of the kernel says; empty where it can't be read: EINVAL where the module that owns it is off."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    except OSError:
        return ""
