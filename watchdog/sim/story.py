"""The story of the demo: a small shared card with three tenants, one of which runs away."""

from pathlib import Path
from typing import Final

from watchdog.core.model import Gpu
from watchdog.sim.curve import Curve
from watchdog.sim.tenant import Task, Tenant

_GI: Final = 2**30
_RESOURCE: Final = "veriff.com/gpu-memory"

NODE: Final = "demo-node"
POLICY: Final = Path(__file__).with_name("policy.toml")
# Seconds for which the driver holds the memory of a process that has ended; on a real card it is up to a second.
RELEASE_S: Final = 0.6
CARD: Final = Gpu(
    uuid="GPU-5eed5eed-0000-4000-8000-000000000000",
    index=0,
    name="Simulated 24Gi",
    total=24 * _GI,
    used=0,
    reserved=_GI // 2,
)

_WITHIN: Final = Tenant(
    namespace="vision",
    pod="detector",
    uid="d0000001-0000-4000-8000-000000000001",
    container="serve",
    container_id="a1" * 32,
    resource=_RESOURCE,
    declared="8Gi",
    tasks=(Task(name="detector", curve=Curve(((0, 0), (1.5, 7.0), (6, 7.0), (8, 7.3), (11, 7.3), (13, 7.1)))),),
)
_BURSTS: Final = Tenant(
    namespace="notebooks",
    pod="jupyter-7",
    uid="d0000001-0000-4000-8000-000000000002",
    container="notebook",
    container_id="b2" * 32,
    resource=_RESOURCE,
    declared="4Gi",
    tasks=(
        Task(name="notebook", curve=Curve(((0, 0), (0.5, 0), (2, 3.2), (3, 3.2), (3.6, 6.0), (6.4, 6.0), (7.2, 3.3)))),
    ),
)
# The trainer, which holds nearly all of it, is a fork that ignores SIGTERM; the loader holds nothing on the card and
# goes with its container all the same.
_RUNS_AWAY: Final = Tenant(
    namespace="training",
    pod="finetune",
    uid="d0000001-0000-4000-8000-000000000003",
    container="train",
    container_id="c3" * 32,
    resource=_RESOURCE,
    declared="6Gi",
    tasks=(
        Task(name="launcher", curve=Curve(((0.5, 0), (1, 0.6)))),
        Task(
            name="trainer", curve=Curve(((0, 0), (0.5, 0), (2.5, 4.4), (7.5, 4.4), (14.5, 10.6))), ignores_sigterm=True
        ),
        Task(name="loader"),
    ),
)
TENANTS: Final = (_WITHIN, _BURSTS, _RUNS_AWAY)
