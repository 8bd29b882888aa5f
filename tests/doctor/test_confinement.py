"""What AppArmor and SELinux write about a process, and what it means for signals."""

from typing import Final

import pytest

from watchdog.doctor.confinement import Confinement, confinement_of, look_at_confinement

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
def test_what_holds_a_process(text: str, expected: Confinement) -> None:
    """Profiles that deny nothing are none; of those on top of each other each counts; SELinux has no profile."""
    assert confinement_of(text) == expected


def test_this_process_can_be_looked_at() -> None:
    """Whatever this machine has, or has not, is read without an error."""
    assert isinstance(look_at_confinement(), Confinement)
