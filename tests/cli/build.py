"""Statuses made by the real core, and frames of them as `top` draws them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace as replaced

from msgspec.structs import replace

from tests.report.build import climbing, quiet, status_document
from tests.report.build import serving as served
from tests.worlds import Gi
from watchdog.cli.rows import TopRow, chosen
from watchdog.cli.top_keys import Selection
from watchdog.cli.top_view import ScreenFrame, draw
from watchdog.cli.views import BLOCKS
from watchdog.core.plan import CycleReport
from watchdog.core.policy import Do
from watchdog.export.endpoints import Endpoints
from watchdog.export.metrics import Metrics
from watchdog.report.status import (
    AccountPart,
    AccountStatus,
    ContainerStatus,
    HealthStatus,
    PlanStatus,
    ProcessStatus,
    Status,
    decode,
)


def status(report: CycleReport | None = None, **more: object) -> Status:
    """The status of a report, or of a/trainer after 31 s above its threshold, as it arrives; `more` is JSON."""
    return decode(json.dumps({**status_document(report or climbing()), **more}).encode())


def account(name: str = "p", *, used: int | None = 4 * Gi, least: int = 0, **more: object) -> AccountStatus:
    """An account of pod ns/`name`, which uses half of what it is allowed."""
    made = AccountStatus(
        namespace="ns",
        pod=name,
        uid=f"uid-{name}",
        used=used,
        used_at_least=least if used is None else used,
        declared=8 * Gi,
        declared_by="veriff.com/gpu-memory",
        allowed=8 * Gi,
        verdict="within",
        rule="notebooks",
    )
    return replace(made, **more)


def step(do: Do = Do.KILL, due_in_s: float = 0.0, **more: object) -> PlanStatus:
    """A step of the plan."""
    return replace(PlanStatus(do=do, due_in_s=due_in_s), **more)


def row(of: AccountStatus, *steps: PlanStatus, **more: object) -> TopRow:
    """The row of an account with these steps; `more` is of the status."""
    return TopRow(account=of, steps=steps, status=replace(status(), **more))


def node(*accounts: AccountStatus | tuple[AccountStatus, PlanStatus], **more: object) -> Status:
    """A status with these accounts, each with its step where it has one."""
    pairs = [each if isinstance(each, tuple) else (each, None) for each in accounts]
    plan = [
        replace(due, uid=of.uid, account=AccountPart(container=of.container, gpu=of.gpu))
        for of, due in pairs
        if due is not None
    ]
    return replace(status(), accounts=tuple(of for of, _ in pairs), plan=tuple(plan), **more)


def busy(*, reason: str | None = None) -> Status:
    """Pods on a card: one computes, one is idle, of one that is unknown; with a `reason` all is."""
    used = ProcessStatus(pid=1, gpu="GPU-0", used=4 * Gi, container="main", name="python3")
    known: dict[str, dict[str, object]] = {
        "computes": {"utilization": 0.35},
        "idle": {"utilization": 0.0, "idle_s": 7800, "idle": True},
        "soon": {"utilization": 0.0, "idle_s": 600},
        "unknown": {},
    }
    containers = (ContainerStatus(container="main", gpu="GPU-0"),)
    accounts = tuple(
        replace(account(name, processes=(used,), containers=containers), **({} if reason else values))
        for name, values in known.items()
    )
    card = replace(status().gpus[0], utilization=None if reason else 0.35, utilization_unknown=reason)
    return replace(node(*accounts, unattributed=()), gpus=(card,), health=HealthStatus())


def full(pods: int = 200, gpus: int = 16) -> Status:
    """A status with many pods and GPUs, some over and one unknown."""
    first = status(quiet()).gpus[0]
    accounts = [
        account(
            f"finetune-llama3-70b-{number:05}",
            used=None if number == 5 else number * Gi // 10,
            verdict="over" if number > 80 else "unknown" if number == 5 else "within",
        )
        for number in range(pods)
    ]
    due = [step(due_in_s=float(number), scope="container", above="110%") for number in range(pods)]
    return node(
        *(pair if number > 88 else pair[0] for number, pair in enumerate(zip(accounts, due, strict=True))),
        gpus=tuple(replace(first, uuid=f"GPU-{number}", index=number) for number in range(gpus)),
    )


def frame(
    shown: Status | None, width: int = 80, height: int = 24, selection: Selection | None = None, **more: object
) -> ScreenFrame:
    """A frame to be drawn."""
    selection = selection or Selection()
    made = ScreenFrame(
        status=shown,
        rows=chosen(shown, selection.choice) if shown is not None else (),
        selection=selection,
        elapsed_s=0.0,
        width=width,
        height=height,
        signs=BLOCKS,
    )
    return replaced(made, **more)  # type: ignore[arg-type]


@contextmanager
def serving(report: CycleReport) -> Iterator[str]:
    """The real server of the daemon with a report published; its address."""
    endpoints = Endpoints(Metrics(), 1.0)
    endpoints.publish(report)
    with served(endpoints) as server:
        yield f"http://127.0.0.1:{server.port}"


def drawn(of: ScreenFrame) -> list[str]:
    """The lines as a terminal without colour gets them."""
    return [line.plain for line in draw(of)]


def text(of: ScreenFrame) -> str:
    """The same as one text."""
    return "\n".join(drawn(of))
