"""The live view of a cluster: its nodes and pods, and from there the view of a node and the explanation of a pod."""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from watchdog import clock
from watchdog.cli.cluster import ClusterChoice, opened
from watchdog.cli.cluster_rows import SORTS, NodeAnswer, NodeRow, PodRow, node_rows, pod_rows
from watchdog.cli.cluster_view import ClusterFrame, draw_cluster, draw_lines
from watchdog.cli.explain import Explanation, by_daemon
from watchdog.cli.program import NARROWEST
from watchdog.cli.tables import wrapped
from watchdog.cli.terminal import Terminal, size_of
from watchdog.cli.top import Asked, Live, Poller, View, show
from watchdog.cli.top_keys import ALL, COMMON, MOVES, NODE_KEYS, Bindings, Selection, keys_of, pressed
from watchdog.cli.views import Choice, prepare
from watchdog.clock import Bell
from watchdog.core.errors import Problem
from watchdog.kube.failure import DaemonError
from watchdog.report.status import Status
from watchdog.report.summary import Summary
from watchdog.report.text import capital, inert

_ESCAPE_S: Final = 0.05  # the rest of an escape sequence arrives within this time, even over a slow line
_FRAME_S: Final = 1.0


class Source(Protocol):
    """Where the view gets what it shows."""

    @property
    def answers(self) -> tuple[NodeAnswer[Summary], ...]:
        """What each node answered last; the same tuple as long as that is the same."""

    @property
    def problem(self) -> Problem | None:
        """Why not all nodes are known; None: they are."""

    def refresh(self) -> None:
        """Ask again; DaemonError if nothing can be asked."""

    def status_of(self, answer: NodeAnswer[Summary]) -> Status:
        """The whole status of a node; DaemonError."""


def _next_order(state: Selection) -> Selection:
    orders = list(SORTS)
    return state.choose(sort=orders[(orders.index(state.choice.sort) + 1) % len(orders)], backwards=False)


_KEYS: Final = Bindings(
    sorts={},
    actions={
        **COMMON,
        "o": _next_order,
        "r": lambda state: state.choose(backwards=not state.choice.backwards),
        "v": lambda state: state.choose(over=not state.choice.over),
        "a": lambda state: replace(state, whole=not state.whole),
        "enter": lambda state: replace(state, opened=True),
    },
)


def _back(state: Selection) -> Selection:
    """All pods again, or if they are shown, back to the cluster."""
    return state.choose(**ALL) if state.choice.is_filtered else replace(state, ended=True)


_INNER_KEYS: Final = replace(NODE_KEYS, actions={**NODE_KEYS.actions, "escape": _back})
_MOVES: Final[Mapping[str, int]] = {**MOVES, " ": 10}


def _unexpected(error: Exception) -> str:
    return f"Unexpected: {type(error).__name__}: {inert(str(error), 300)}; please report this"


class Explained:
    """The explanation of a pod, asked for again and again."""

    def __init__(
        self, terminal: Terminal, bell: Bell, ask: Callable[[], Explanation | str], title: str, interval_s: float
    ) -> None:
        """`ask` gives the explanation, or why there is none."""
        self.ended = False
        self._terminal = terminal
        self._poller = Poller(ask, bell)
        self._title = title
        self._interval_s = interval_s
        self._next_s = 0.0
        self._shown: Explanation | str = "Waiting for the daemon."
        self._first = 0
        self._pending = b""

    def update(self) -> None:
        """Take what has arrived, and draw."""
        now_s = time.monotonic()
        if now_s >= self._next_s and not self._poller.is_busy:
            self._next_s = now_s + self._interval_s
            self._poller.send_query()
        if (answer := self._poller.pop_answer()) is not None:
            self._shown = answer[0]
        width, height = size_of(sys.stdout)
        lines = self._lines(width)
        self._first = max(min(self._first, len(lines) - height + 2), 0)  # the text may have become shorter
        data = self._terminal.read()
        keys, self._pending = keys_of(self._pending + data, is_all=not data)
        for key in keys:
            self.ended = self.ended or key in ("q", "ctrl-c", "escape", "backspace", "enter")
            self._first = max(min(self._first + _MOVES.get(key, 0), len(lines) - height + 2), 0)
        self._terminal.draw(draw_lines(self._title, lines, self._first, width, height), width, height)

    def sleep_s(self) -> float:
        """Seconds until there is something to do."""
        return _ESCAPE_S if self._pending else max(min(self._next_s - time.monotonic(), _FRAME_S), _ESCAPE_S)

    def _lines(self, width: int) -> list[str]:
        if isinstance(self._shown, str):
            return [line.plain for part in self._shown.splitlines() for line in wrapped(part, max(width, NARROWEST))]
        return list(self._shown.lines(max(width, NARROWEST)))


class ClusterLive:
    """The view of a cluster, and the one that was opened from it."""

    def __init__(self, terminal: Terminal, bell: Bell, source: Source, choice: Choice, interval_s: float) -> None:
        self._terminal = terminal
        self._bell = bell
        self._source = source
        self._poller = Poller(self._refresh, bell)
        self._selection = Selection(choice=choice)
        self._interval_s = interval_s
        self._next_s = 0.0
        self._problem = ""
        self._answers: tuple[NodeAnswer[Summary], ...] = ()
        # The pods in their order, and of which answers and choice.
        self._pods: list[PodRow] = []
        self._pods_of: tuple[tuple[NodeAnswer[Summary], ...], Choice] = (), choice
        self._now = clock.now()
        self._pending = b""
        self._inner: View | None = None

    @property
    def ended(self) -> bool:
        """Whether the user has left it."""
        return self._selection.ended

    def update(self) -> None:
        """Take what has arrived, and draw."""
        self._ask()
        if self._inner is not None:
            self._inner.update()
            if not self._inner.ended:
                return
            self._inner = None
        frame = self._frame()
        data = self._terminal.read()
        keys, self._pending = keys_of(self._pending + data, is_all=not data)
        for key in keys:
            self._selection = pressed(self._selection.at(frame.rows), key, frame.rows, _KEYS)
            frame = self._frame()
        if self._selection.opened:
            place = self._selection.at(frame.rows).place
            self._selection = replace(self._selection, opened=False)
            self._inner = self._opened(frame.rows[place]) if frame.rows else None
        self._terminal.draw(draw_cluster(frame), frame.width, frame.height)

    def sleep_s(self) -> float:
        """Seconds until there is something to do, unless a key, an answer or a signal arrives."""
        if self._inner is not None:
            return self._inner.sleep_s()
        if self._pending:
            return _ESCAPE_S
        if self._selection.paused or self._poller.is_busy:
            return _FRAME_S
        return min(max(self._next_s - time.monotonic(), 0.0), _FRAME_S)

    def _ask(self) -> None:
        now_s = time.monotonic()
        if self._inner is None and not self._selection.paused and now_s >= self._next_s and not self._poller.is_busy:
            self._next_s = now_s + self._interval_s
            self._poller.send_query()
        if (answer := self._poller.pop_answer()) is not None:
            self._problem, _ = answer
        if not self._selection.paused:
            self._answers, self._now = self._source.answers, clock.now()

    def _refresh(self) -> str:
        try:
            self._source.refresh()
        except DaemonError as error:
            return inert(capital(str(error)), 1000)
        except Exception as error:
            # A view that stops asking would show old data as if it were new.
            return _unexpected(error)
        return inert(str(self._source.problem), 600) if self._source.problem is not None else ""

    def _frame(self) -> ClusterFrame:
        width, height = size_of(sys.stdout)
        every = node_rows(self._answers, self._now)
        is_whole = self._selection.whole or len(every) <= 1
        frame = ClusterFrame(
            answers=self._answers,
            nodes=[row for row in every if is_whole or not row.is_calm],
            calm=[row for row in every if not is_whole and row.is_calm],
            pods=self._ordered_pods(),
            selection=self._selection,
            now=self._now,
            width=width,
            height=height,
            signs=prepare(sys.stdout),
            problem=self._problem,
        )
        return replace(frame, selection=self._selection.at(frame.rows))

    def _ordered_pods(self) -> list[PodRow]:
        """The pods in their order; that of 60,000 takes longer than a key may."""
        choice = self._selection.choice
        if self._pods_of[0] is not self._answers or self._pods_of[1] != choice:
            self._pods, self._pods_of = pod_rows(self._answers, choice), (self._answers, choice)
        return self._pods

    def _opened(self, row: NodeRow | PodRow) -> View:
        """The view of a row."""
        terminal, bell, every_s = self._terminal, self._bell, self._interval_s
        if isinstance(row, NodeRow):
            if row.of.answer is None:
                return Explained(terminal, bell, lambda: self._what_is_the_matter(row), f"Node {row.name}", every_s)
            return Live(terminal, bell, lambda: self._status(row), Selection(), every_s, _INNER_KEYS)
        title = f"{row.account.namespace}/{row.account.pod}"
        return Explained(terminal, bell, lambda: self._explanation(row, title), "", every_s)

    def _what_is_the_matter(self, row: NodeRow) -> str:
        rows = node_rows(self._source.answers, clock.now())
        return next((each.text for each in rows if each.key == row.key), "It is no longer there.")

    def _status(self, row: NodeRow | PodRow) -> Asked:
        try:
            return self._source.status_of(row.of), ""
        except DaemonError as error:
            return None, inert(str(error), 1000)
        except Exception as error:
            return None, _unexpected(error)

    def _explanation(self, row: PodRow, title: str) -> Explanation | str:
        status, problem = self._status(row)
        if status is None:
            return problem
        return by_daemon(title, status, ()) or f"The daemon of node {inert(row.of.node)} no longer knows this pod."


def watch_cluster(which: ClusterChoice, choice: Choice, interval_s: float) -> None:
    """Show all nodes live until the user quits."""
    with opened(which) as source:
        show(lambda terminal, bell: ClusterLive(terminal, bell, source, choice, interval_s))
