"""Draws the layers of the code, as the import contracts have them: docs/pictures/layers.svg."""

import tomllib
from typing import Final
from xml.sax.saxutils import escape

from tools import ROOT

PICTURE: Final = ROOT / "docs" / "pictures" / "layers.svg"
# What each package is for; the order is that of the contract in pyproject.toml.
PURPOSES: Final = {
    "cli": "commands",
    "daemon": "the loop, and what it does to pods",
    "past": "replay, recommendations",
    "export": "metrics, log, status page",
    "journal": "records on disk",
    "report": "status, sentences, Events",
    "node": "GPU driver, /proc, signals",
    "kube": "Kubernetes API",
    "config": "policy file",
    "core": "values and rules; knows no clock, file or client",
}
# Any module but those of the core, the last layer, may import these.
SHARED: Final = ("clock", "options")
_WIDTH, _LEFT, _SIDE, _HEIGHT, _GAP = 880, 20, 130, 52, 22
_SVG: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
    'role="img" font-family="sans-serif" font-size="14" fill="#1f2328">'
)
_ARROW: Final = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" fill="#0969da"/></marker></defs>'
)
_CONTRACT: Final = "imports point one way"


def layers() -> list[list[str]]:
    """The packages from top to bottom, each layer a list of those side by side."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (each for each in project["tool"]["importlinter"]["contracts"] if each["name"] == _CONTRACT)
    found = [[name.strip().removeprefix("watchdog.") for name in layer.split("|")] for layer in contract["layers"]]
    return [layer for layer in found if layer != ["__main__"]]


def _box(left: float, top: float, width: float, height: float, name: str, purpose: str) -> str:
    middle, center = left + width / 2, top + height / 2
    return (
        f'<rect x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="6" fill="#ddf4ff" '
        'stroke="#0969da"/>\n'
        f'<text x="{middle:g}" y="{center - 3:g}" text-anchor="middle" font-weight="600">{escape(name)}</text>\n'
        f'<text x="{middle:g}" y="{center + 15:g}" text-anchor="middle" font-size="12" fill="#57606a">'
        f"{escape(purpose)}</text>"
    )


def picture() -> str:
    """The picture as SVG; KeyError for a package without a purpose."""
    rows = layers()
    total = 20 + len(rows) * (_HEIGHT + _GAP)
    usable = _WIDTH - 3 * _LEFT - _SIDE
    parts = [
        _SVG.format(width=_WIDTH, height=total),
        "<title>Layers of the code</title>",
        "<desc>From top to bottom: "
        + "; ".join(", ".join(f"{name} ({PURPOSES[name]})" for name in row) for row in rows)
        + f". Each imports only what is below it. Beside all but the last: {' and '.join(SHARED)}.</desc>",
        _ARROW,
        f'<rect width="{_WIDTH}" height="{total}" fill="#ffffff"/>',
    ]
    for number, row in enumerate(rows):
        top, width = 20 + number * (_HEIGHT + _GAP), (usable - (len(row) - 1) * _LEFT) / len(row)
        parts += [
            _box(_LEFT + place * (width + _LEFT), top, width, _HEIGHT, f"{name}/", PURPOSES[name])
            for place, name in enumerate(row)
        ]
        if number + 1 < len(rows):
            middle, bottom = _LEFT + usable / 2, top + _HEIGHT
            parts.append(
                f'<path d="M{middle:g} {bottom} L{middle:g} {bottom + _GAP}" fill="none" stroke="#0969da" '
                'stroke-width="1.5" marker-end="url(#a)"/>'
            )
    parts.append(
        _box(
            _WIDTH - _LEFT - _SIDE,
            20,
            _SIDE,
            total - 20 - 2 * (_HEIGHT + _GAP) + _HEIGHT,
            ", ".join(SHARED),
            "for all but the core",
        )
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Write the picture again."""
    PICTURE.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
