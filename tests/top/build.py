"""Pictures made by the real core: reports as documents of the status, read back as `top` reads them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tests.export.build import climbing, hostile_pod, place_of, quiet
from tests.worlds import Gi
from watchdog.cli.top.grid import Drawing
from watchdog.cli.top.picture import picture
from watchdog.cli.top.reading import read_view
from watchdog.cli.top.state import Selection
from watchdog.cli.top.values import BLOCKS, AccountView, NextStep, NodeView, UsedAmount
from watchdog.core.plan import CycleReport
from watchdog.export.board import Board
from watchdog.export.http_server import HttpServer
from watchdog.export.metrics import Metrics
from watchdog.report.status import status_document

__all__ = [
    "account",
    "climbing",
    "crowded",
    "document",
    "drawn",
    "hostile_pod",
    "place_of",
    "quiet",
    "scene",
    "serving",
    "text",
    "view",
]


def document(report: CycleReport, **more: object) -> dict[str, Any]:
    """What /api/status says of a report, with some keys as the test wants them."""
    return {**status_document(report), **more}


def view(report: CycleReport | None = None, **more: object) -> NodeView:
    """A picture of a report, or of a/trainer after 31 s above its mark."""
    return read_view(document(report or climbing(), **more))


def account(name: str = "p", *, used: int | None = 4 * Gi, least: int = 0, **more: object) -> AccountView:
    """An account of pod ns/`name`, which uses half of what it may."""
    made = AccountView(
        key=(f"uid-{name}", "", ""),
        namespace="ns",
        pod=name,
        container="",
        card="",
        used=UsedAmount(known=used, least=least if used is None else used),
        declared=8 * Gi,
        declared_by="veriff.com/gpu-memory",
        allowed=8 * Gi,
        verdict="within",
        rule="notebooks",
        protected="",
        over_since_s=None,
        next=None,
        then=None,
        processes=(),
    )
    return replace(made, **more)  # type: ignore[arg-type]


def crowded(pods: int = 200, cards: int = 16) -> NodeView:
    """A picture with many pods and cards, some over and one unknown."""
    first = view(quiet())
    accounts = tuple(
        account(
            f"finetune-llama3-70b-{number:05}",
            used=None if number == 5 else number * Gi // 10,
            verdict="over" if number > 80 else "unknown" if number == 5 else "within",
            next=NextStep(do="kill", scope="container", above="110%", due_s=float(number)) if number > 88 else None,
        )
        for number in range(pods)
    )
    rows = tuple(replace(first.cards[0], uuid=f"GPU-{number}", label=str(number)) for number in range(cards))
    return replace(first, accounts=accounts, cards=rows)


def scene(
    shown: NodeView | None, width: int = 80, height: int = 24, state: Selection | None = None, **more: object
) -> Drawing:
    """A frame to be drawn."""
    made = Drawing(
        view=shown,
        state=state or Selection(),
        elapsed_s=0.0,
        width=width,
        height=height,
        signs=BLOCKS,
    )
    return replace(made, **more)  # type: ignore[arg-type]


@contextmanager
def serving(report: CycleReport, **_: Mapping[str, Any]) -> Iterator[str]:
    """The real server of the daemon with a report on its board; its address."""
    board = Board(Metrics(), 1.0)
    server = HttpServer("127.0.0.1:0", board)
    board.publish(report)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.close()


def drawn(of: Drawing) -> list[str]:
    """The lines as a terminal without colour gets them."""
    return [line.plain for line in picture(of)]


def text(of: Drawing) -> str:
    """The same as one text."""
    return "\n".join(drawn(of))
