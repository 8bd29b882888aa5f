"""All that a frame is drawn from: the last picture of the node, what is chosen, and the size of the terminal."""

from dataclasses import dataclass
from typing import Final

from rich.style import Style

from watchdog.top.amounts import Signs
from watchdog.top.order import chosen
from watchdog.top.state import State
from watchdog.top.values import Account, View

PLAIN: Final = Style.null()
TITLE: Final = Style(bold=True)
# Not bright black: some themes of terminals (Solarized) have the background's colour there.
DIM: Final = Style(dim=True)
GOOD: Final = Style(color="green")
BAD: Final = Style(color="red", bold=True)
ODD: Final = Style(color="yellow")
MARKED: Final = Style(bold=True, reverse=True)
STYLES: Final = {
    "over": BAD,
    "unknown": ODD,
    "misdeclared": ODD,
    "within": GOOD,
    "undeclared": DIM,
    "pods": Style(color="cyan"),
    "no_pod": Style(color="magenta"),
    "rest": ODD,
    "free": DIM,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A picture to draw. `elapsed_s` is how long ago the pass was, so that what is to come runs down.

    `view` is None before the first answer. `old` says why the picture is an old one, in lines; empty: it is not.
    """

    view: View | None
    state: State
    elapsed_s: float
    width: int
    height: int
    signs: Signs
    old: str = ""

    @property
    def rows(self) -> tuple[Account, ...]:
        """The accounts that are chosen, in their order."""
        return chosen(self.view, self.state.choice) if self.view is not None else ()
