"""`python -m tests.pictures.top FOLDER` writes top-NODE-COLUMNS-THEME.svg: what `gpu-watchdog top` draws, as root.

The nodes have one card and four pods (real processes in real cgroups, so that one is really killed), and eight cards
and a hundred pods. The daemons are real, with the hour before in their journals; the stub of NVML shows the cards. The
cluster has simulated daemons behind a real API server. A picture is the last frame of a terminal.
"""

import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME, TerminalTheme
from rich.text import Text

from tests.cli.full_node import full_node, many
from tests.cli.session import Session, session
from tests.pictures.past import at_work, earlier_spells, is_drawn, put_to_work, record_hour
from tests.rig import node
from tests.rig.cluster.simulated_nodes import simulated_nodes
from tests.rig.command import COMMAND, daemon
from tests.stub import GIB, MIB
from tests.world.test_kill import run
from tools.programs import programs

_SMALL: Final = ((100, 26), (80, 24))  # columns and rows
_FULL: Final = ((140, 40), (80, 24))
_CLUSTER: Final = ((120, 28), (80, 24))
_SizedLines = tuple[int, list[str]]
_THEMES: Final[dict[str, TerminalTheme]] = {"light": DEFAULT_TERMINAL_THEME, "dark": SVG_EXPORT_THEME}
_POLICY: Final = """
mode = "enforce"
[[declaration]]
resource = "veriff.com/gpu-memory"
unit = "1"
[allowance]
per_context = "512Mi"
percent = "2%"
[[rule]]
name = "notebooks"
match = { namespaces = ["jupyter"] }
step = [
  { above = "100%", for = "5s", do = "warn" },
  { above = "110%", for = "1m", do = "kill", scope = "container" },
]
[[rule]]
name = "batch"
match = {}
step = [{ above = "110%", for = "2s", do = "kill", scope = "container", grace = "2s" }]
"""
_TENANTS: Final = (  # declared, and what one process uses in GiB
    ("jupyter", "alice-0", "8Gi", 14.8),
    ("jupyter", "bob-0", "16Gi", 14),
    ("batch", "finetune-7b-x2x4q", "20Gi", 31),
    ("batch", "embed-nightly-mmz5p", "12Gi", 13.6),
)
# The library's own letters come from a server of other people; the reader's machine has some.
_FONT: Final = 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, "Liberation Mono", monospace'
_FOREIGN: Final = re.compile(r"@font-face\s*\{[^}]*\}\s*")


def small() -> Iterator[_SizedLines]:
    """The lines, with their colours, of a node on which a pod has been killed and another one will be, by columns."""
    with tempfile.TemporaryDirectory(prefix="gpu-watchdog-picture-") as folder, node(Path(folder)) as made:
        for namespace, name, declared, used in _TENANTS:
            made.start(made.pod(name, ("main", declared), namespace=namespace), used=int(used * GIB))
        made.start(None, used=900 * MIB)
        card = replace(made.stub.gpus[0], name="NVIDIA H100 80GB HBM3", total=80 * GIB, reserved=600 * MIB)
        made.stub = replace(made.stub, gpus=(card,))
        put_to_work(made)
        policy = made.root / "policy.toml"
        policy.write_text(_POLICY, encoding="utf-8")
        record_hour(made.journal, policy, made.shown, made.owners, spells={"alice-0": (30.5, 30.0)})
        with run(made, policy) as running:
            running.wait(is_drawn)
            yield from _frames(running.port, _SMALL, r"(?s)kill in .*kill +done")


def full() -> Iterator[_SizedLines]:
    """The lines of a node with eight cards and a hundred pods."""
    tenants = [replace(each, card=number % 8) for number, each in enumerate(islice(many(), 100))]
    with (
        tempfile.TemporaryDirectory(prefix="gpu-watchdog-picture-") as folder,
        full_node(Path(folder), tenants, cards=8) as made,
    ):
        at_work(made.stub).write(made.stub_file)
        spells = earlier_spells(made.stub, made.owners)
        record_hour(made.root / "journal.db", made.root / "policy.toml", made.stub, made.owners, spells=spells)
        with daemon(made.root, made.stub_file, *made.arguments) as running:
            running.wait(is_drawn)
            yield from _frames(running.port, _FULL, r"(?s)100 pods.*warn +observed")


def cluster() -> Iterator[_SizedLines]:
    """The lines of a cluster of sixty nodes, one without a daemon and one whose daemon has just started."""
    with (
        tempfile.TemporaryDirectory(prefix="gpu-watchdog-picture-") as folder,
        simulated_nodes(Path(folder), programs(), 60) as made,
    ):
        made.answer(12, "error")
        made.remove_pod(31)
        kubeconfig = ("--kubeconfig", made.plane.admin_kubeconfig)
        command: list[str | Path] = [*made.plane.network.enter, COMMAND, "top", "--cluster", *kubeconfig]
        for columns, rows in _CLUSTER:
            with session(command=command, columns=columns, rows=rows) as shown:
                shown.wait(lambda screen: re.search(r"(?s)58 by proxy, 2 silent.*no daemon.*kill in", screen.text))
                yield columns, _last(shown, rows)


def _frames(port: int, sizes: Iterable[tuple[int, int]], there: str) -> Iterator[_SizedLines]:
    """The lines in terminals of these sizes, by columns, once they have something."""
    for columns, rows in sizes:
        with session("--url", f"http://127.0.0.1:{port}", columns=columns, rows=rows) as shown:
            shown.wait(lambda screen: re.search(there, screen.text))
            yield columns, _last(shown, rows)


def _last(shown: Session, rows: int) -> list[str]:
    """The last whole frame: from one beginning of the screen to the next."""
    frames = shown.written.decode().split("\x1b[H")
    return next(each for each in reversed(frames) if each.count("\n") == rows - 1).split("\r\n")


def svg(lines: list[str], columns: int, theme: TerminalTheme) -> str:
    """The lines as a picture that needs nothing from anywhere."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as nowhere:
        console = Console(record=True, width=columns, file=nowhere, force_terminal=True, color_system="truecolor")
        for line in lines:
            console.print(Text.from_ansi(line), no_wrap=True, overflow="crop", crop=True)
        made = console.export_svg(title="gpu-watchdog top", unique_id="top", theme=theme)
    made = (
        _FOREIGN.sub("", made)
        .replace("Fira Code, monospace", _FONT)
        .replace("font-family: arial", "font-family: sans-serif")
    )
    assert "url(http" not in made
    assert "//cdn" not in made
    return made


def main() -> None:
    """Draw into the folder that is named on the command line."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, frames in (("small", small()), ("full", full()), ("cluster", cluster())):
        for columns, lines in frames:
            for theme, colours in _THEMES.items():
                path = folder / f"top-{name}-{columns}-{theme}.svg"
                path.write_text(svg(lines, columns, colours), encoding="utf-8")


if __name__ == "__main__":
    main()
