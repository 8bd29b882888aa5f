"""Events made by hand."""

from dataclasses import replace

from watchdog.kube.event_objects import PodEvent

T0 = 1_800_000_000.25


def pod_event(second: float = 0.0, **more: object) -> PodEvent:
    """A warning on pod a/trainer, this many seconds after the test began."""
    made = PodEvent(
        namespace="a",
        pod="trainer",
        uid="11111111-2222-3333-4444-555555555555",
        reason="GPUMemoryOverLimit",
        action="Warn",
        note="Pod a/trainer uses 12.4Gi of GPU memory.",
        at_s=T0 + second,
        key=("u1", "GPUMemoryOverLimit", "notebooks", "above 100% for 30s"),
        annotations={"gpu-memory-watchdog/used": "13314398617"},
    )
    return replace(made, **more)  # type: ignore[arg-type]
