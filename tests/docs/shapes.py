"""Reads the tables of docs/declarations.md: nodes, pods and uses as their cells write them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.worlds import container, gpu, pod, process, use
from watchdog.core.model import Container, ContainerKind, Gpu, Node, Pod, Process, Use
from watchdog.core.units import parse_quantity

PAGE: Final = Path(__file__).parents[2] / "docs" / "declarations.md"
RARER: Final = Path(__file__).with_name("shapes.md")
SYSTEMS, SHAPES = "Sharing systems", "Examples by pod shape"

_FENCE: Final = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SCHEMES: Final = re.compile(r'Schemes? (?P<names>[^,]+(?:,[^,]+)?), (?P<how>by name only|in `"\*"`)')
_CODE: Final = re.compile(r"`([^`]+)`")
_CARD: Final = re.compile(r"(?:(?P<count>\d+) x )?(?P<size>[0-9.]+[MG]i)(?: MIG (?P<profile>\S+))?")
_DECLARED: Final = re.compile(
    r"(?P<size>\S+?)(?: on (?:each of )?(?P<gpus>\d+) GPUs?)?(?:, under pressure (?P<request>\S+))?"
)
_COMPARED: Final = re.compile(
    r"(?:pod|container (?P<container>\S+?))(?: on GPU (?P<gpu>\d))?: (?P<used>[0-9A-Za-z]+)"
    r"(?: vs (?P<declared>[0-9A-Za-z.]+)(?:, under pressure vs (?P<request>\S+))?|, (?P<verdict>\w+))"
)
_KINDS: Final = {
    "init": (ContainerKind.INIT, False),
    "running init": (ContainerKind.INIT, True),
    "sidecar": (ContainerKind.SIDECAR, True),
    "ephemeral": (ContainerKind.EPHEMERAL, True),
}


@dataclass(frozen=True)
class System:
    """What one system writes: its schemes, tables that its section has besides, and the rows of what pods declare."""

    name: str
    schemes: tuple[str, ...]
    by_name_only: bool
    tables: str
    rows: tuple[tuple[str, ...], ...]


def systems() -> Iterator[System]:
    """The systems of the page."""
    for part in _part(SYSTEMS).split("\n### ")[1:]:
        name, _, text = part.partition("\n")
        named = _SCHEMES.match(text.strip())
        assert named, name
        yield System(
            name=name,
            schemes=tuple(_CODE.findall(named["names"])),
            by_name_only=named["how"] == "by name only",
            tables="".join(_FENCE.findall(text)),
            rows=tuple(_rows(text)),
        )


def shapes() -> tuple[str, list[tuple[str, ...]]]:
    """The policy and the rows of the table of shapes: those of the page, and the rarer ones."""
    text = _part(SHAPES)
    (toml,) = _FENCE.findall(text)
    return toml, [*_rows(text), *_rows(RARER.read_text(encoding="utf-8"))]


def read_node(cell: str) -> tuple[Node, tuple[Gpu, ...]]:
    """A node as a cell writes it: its cards or MIG instances, and its labels."""
    labels: dict[str, str] = {}
    cards: list[Gpu] = []
    for item in cell.split(", "):
        if item.startswith("label "):
            key, _, value = item.removeprefix("label ").partition("=")
            labels[key] = value
            continue
        match = _CARD.fullmatch(item)
        assert match, item
        mig = {"parent": "GPU-p", "gi": 1, "ci": 0, "profile": match["profile"]} if match["profile"] else {}
        for _ in range(int(match["count"] or 1)):
            cards.append(gpu(len(cards), parse_quantity(match["size"]), **mig))
    return Node(name="n1", labels=labels), tuple(cards)


def read_pairs(cell: str) -> dict[str, str]:
    """What a pod writes: `key: value`."""
    return dict(item.split(": ", 1) for item in _CODE.findall(cell))


def read_pod(cell: str) -> Pod:
    """A pod as a cell writes it: its containers with their resources, and its annotations."""
    containers: list[Container] = []
    annotations: dict[str, str] = {}
    for item in _CODE.findall(cell):
        if item.startswith("annotation "):
            key, _, value = item.removeprefix("annotation ").partition("=")
            annotations[key] = value
            continue
        title, _, text = item.partition(": ")
        *words, name = title.split(" ")
        kind, running = _KINDS[" ".join(words)] if words else (ContainerKind.MAIN, True)
        resources = dict(pair.split(" ", 1) for pair in text.split(", ")) if text else {}
        containers.append(container(name, kind=kind, running=running, resources=resources))
    return pod("a", *containers, annotations=annotations)


def read_uses(cell: str) -> tuple[list[Use], list[Process]]:
    """What the processes of a pod use, one process for each use."""
    uses, processes = [], []
    for pid, item in enumerate(_CODE.findall(cell), 100):
        name, amount, *card = item.split(" ", 2)
        uses.append(use(pid, parse_quantity(amount), int(card[0].removeprefix("on ")) if card else 0))
        processes.append(process(pid, f"a/{name}"))
    return uses, processes


@dataclass(frozen=True, order=True)
class Line:
    """One comparison: of which account, what is used, with what, and with what under pressure."""

    container: str
    gpu: str
    used: int
    declared: int | None
    requested: int | None
    verdict: str


def read_compared(cell: str) -> list[Line]:
    """The comparisons that a cell names, in the order of their accounts."""
    return sorted(_line(item) for item in cell.split("; "))


def _line(item: str) -> Line:
    match = _COMPARED.fullmatch(item)
    assert match, item
    used = parse_quantity(match["used"])
    declared = _optional(match["declared"])
    verdict = match["verdict"] or ("over" if used > (declared or 0) else "within")
    card = f"GPU-{match['gpu']}" if match["gpu"] else ""
    return Line(match["container"] or "", card, used, declared, _optional(match["request"]), verdict)


def read_declared(cell: str) -> tuple[int, int | None, int | None]:
    """What a cell says is declared: bytes, on how many GPUs each (None: over all), and what was requested below it."""
    match = _DECLARED.fullmatch(cell)
    assert match, cell
    return parse_quantity(match["size"]), int(match["gpus"]) if match["gpus"] else None, _optional(match["request"])


def _optional(text: str | None) -> int | None:
    return parse_quantity(text) if text else None


def _part(heading: str) -> str:
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    return re.split(r"^## ", text, maxsplit=1, flags=re.MULTILINE)[0]


def _rows(text: str) -> list[tuple[str, ...]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines[1:]]
