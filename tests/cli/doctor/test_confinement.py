"""Parsing what AppArmor and SELinux write about a process."""

from pathlib import Path
from typing import Final

import pytest

from watchdog.cli.doctor.facts import Confinement
from watchdog.cli.doctor.gather import confinement_of, read_confinement

_DEFAULT: Final = Confinement(profile="cri-containerd.apparmor.d", is_of_runtime=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unconfined\n", Confinement()),
        ("cri-containerd.apparmor.d (enforce)\n", _DEFAULT),
        ("cri-containerd.apparmor.d (kill)\n", _DEFAULT),
        ("cri-containerd.apparmor.d (complain)\n", Confinement()),
        ("cri-containerd.apparmor.d//&unconfined (mixed)\n", _DEFAULT),
        ("cri-containerd.apparmor.d//&:k3s:unconfined (enforce)\n", _DEFAULT),
        ("runc (unconfined)\n", Confinement()),
        ("docker-default (enforce)\n", Confinement(profile="docker-default", is_of_runtime=True)),
        ("containers-default-0.50.1 (enforce)", Confinement(profile="containers-default-0.50.1", is_of_runtime=True)),
        ("gpu-guard (enforce)\n", Confinement(profile="gpu-guard")),
        (":ns://gpu-guard (enforce)\n", Confinement(profile=":ns://gpu-guard")),
        ("/usr/bin/a b (enforce)\n", Confinement(profile="/usr/bin/a b")),
        ("system_u:system_r:container_t:s0:c1,c2\0", Confinement(selinux_type="container_t")),
        ("system_u:system_r:spc_t:s0\0", Confinement(selinux_type="spc_t")),
        ("", Confinement()),
    ],
)
def test_confinement(text: str, expected: Confinement) -> None:
    """Profiles that deny nothing do not count; of stacked profiles each counts; SELinux has no profile."""
    assert confinement_of(text) == expected


@pytest.mark.parametrize(
    ("own", "main", "enabled", "expected"),
    [
        (None, "kernel\0", None, Confinement()),  # SELinux with no policy loaded
        (None, "kernel\0", "N\n", Confinement()),
        ("", "_", "N\n", Confinement()),  # Smack
        (None, "gpu-guard\n", "Y\n", Confinement(profile="gpu-guard")),
        (None, "cri-containerd.apparmor.d (enforce)\n", None, _DEFAULT),  # /sys is not mounted
        ("cri-containerd.apparmor.d (enforce)\n", "_", "Y\n", _DEFAULT),
        (None, "system_u:system_r:container_t:s0\0", "N\n", Confinement(selinux_type="container_t")),
        (None, None, None, Confinement()),
    ],
)
def test_a_bare_name_is_a_profile_only_where_apparmor_is_on(
    tmp_path: Path, own: str | None, main: str | None, enabled: str | None, expected: Confinement
) -> None:
    """Other modules write their own names into the shared file; none of them is mistaken for a profile."""
    (tmp_path / "apparmor").mkdir()
    for name, text in (("apparmor/current", own), ("current", main), ("enabled", enabled)):
        if text is not None:
            (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_confinement(tmp_path, tmp_path / "enabled") == expected
