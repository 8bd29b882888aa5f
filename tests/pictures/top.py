"""`python -m tests.pictures.top FOLDER` writes top.svg: what `gpu-watchdog top` draws on a terminal, as root.

The daemon is the real one, on a node of real processes in real cgroups whose four cards the stub of NVML shows; the
picture is the last frame that a terminal got.
"""

import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from tests.cli.session import Session, session
from tests.rig import Node, node
from tests.stub import GIB, MIB, StubGpu, StubProcess
from tests.world.test_kill import run

COLUMNS: Final = 128
ROWS: Final = 36
_POLICY: Final = """
mode = "enforce"
[[declaration]]
resource = "veriff.com/gpu-memory"
unit = "1"
[allowance]
per_context = "512Mi"
percent = "2%"
[protect]
namespaces = ["inference"]
[brakes]
owner = "1 per 10m"
[[rule]]
name = "notebooks"
match = { namespaces = ["jupyter"] }
[[rule.step]]
above = "100%"
for = "5s"
do = "warn"
[[rule.step]]
above = "110%"
for = "1m"
do = "kill"
scope = "container"
[[rule]]
name = "batch"
match = {}
[[rule.step]]
above = "110%"
for = "2s"
do = "kill"
scope = "container"
grace = "2s"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A pod with one process on a card, in GiB; `tells`: the driver says how much it uses."""

    name: str
    declared: str | None = None
    used: float
    card: int = 0
    tells: bool = True
    owner: str = ""


TENANTS: Final = (
    Tenant(name="jupyter/alice-0", declared="8Gi", used=12.4),
    Tenant(name="jupyter/bob-0", declared="16Gi", used=14),
    Tenant(name="jupyter/carol-0", declared="8Gi", used=8.9, card=1),
    Tenant(name="batch/finetune-7b-x2x4q", declared="20Gi", used=31, card=1, owner="finetune-7b"),
    Tenant(name="batch/finetune-7b-9kd7w", declared="20Gi", used=29, card=2, owner="finetune-7b"),
    Tenant(name="batch/embed-nightly-mmz5p", declared="12Gi", used=11.2, card=2),
    Tenant(name="batch/eval-sweep-t8h2c", declared="24Gi", used=19, card=3),
    Tenant(name="inference/triton-7c9f8d6b5-qlx2v", declared="10Gi", used=11.9, card=3),
    Tenant(name="inference/vllm-0", declared="24Gi", used=22),
    Tenant(name="research/sandbox-dave", used=6, card=3),
    Tenant(name="research/old-driver", declared="8Gi", used=5, card=2, tells=False),
)
# The library's own letters come from a server of other people; the reader's machine has some.
_FONT: Final = 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, "Liberation Mono", monospace'
_FOREIGN: Final = re.compile(r"@font-face\s*\{[^}]*\}\s*")


@contextmanager
def world(root: Path) -> Iterator[Node]:
    """The node."""
    with node(root, "cgroup") as made:
        dealt: list[list[StubProcess]] = [[] for _ in range(4)]
        for tenant in TENANTS:
            namespace, _, name = tenant.name.partition("/")
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": tenant.owner, "controller": True}
            metadata = {"ownerReferences": [owner]} if tenant.owner else {}
            pod = made.pod(name, ("main", tenant.declared), namespace=namespace, metadata=metadata)
            used = int(tenant.used * GIB)
            pid = made.start(pod, used=used if tenant.card == 0 else 0).pid
            if tenant.card:
                dealt[tenant.card].append(StubProcess(pid=pid, used=used if tenant.tells else None, holds=used))
        made.start(None, used=900 * MIB)
        cards = (
            StubGpu(
                uuid=f"GPU-{number:08x}-1b7c-4a2e-9d3f-5e6a7b8c9d0e",
                name="NVIDIA H100 80GB HBM3",
                total=80 * GIB,
                reserved=600 * MIB,
                base=number * 300 * MIB,
                processes=tuple(own),
            )
            for number, own in enumerate(dealt)
        )
        made.stub = replace(made.stub, gpus=tuple(cards))
        made.write()
        yield made


def frame() -> list[str]:
    """The lines, with their colours, of the last frame of a real run."""
    with tempfile.TemporaryDirectory(prefix="gpu-watchdog-picture-") as folder, world(Path(folder)) as made:
        policy = made.root / "policy.toml"
        policy.write_text(_POLICY, encoding="utf-8")
        with (
            run(made, policy) as running,
            session("--url", f"http://127.0.0.1:{running.port}", columns=COLUMNS, rows=ROWS) as shown,
        ):
            shown.wait(lambda screen: re.search(r"kill +done", screen.text) and "kill held: owner" in screen.text)
            shown.rest(5.0)
            return _last(shown)


def _last(shown: Session) -> list[str]:
    """The last whole frame: from one beginning of the screen to the next."""
    frames = shown.written.decode().split("\x1b[H")
    return next(each for each in reversed(frames) if each.count("\n") == ROWS - 1).split("\r\n")


def svg(lines: list[str]) -> str:
    """The lines as a picture that needs nothing from anywhere."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor")
        for line in lines:
            console.print(Text.from_ansi(line), no_wrap=True, overflow="crop", crop=True)
        made = console.export_svg(title="gpu-watchdog top", unique_id="top")
    made = (
        _FOREIGN.sub("", made)
        .replace("Fira Code, monospace", _FONT)
        .replace("font-family: arial", "font-family: sans-serif")
    )
    assert "url(http" not in made
    assert "//cdn" not in made
    return made


def main() -> int:
    """Draw into the folder that is named on the command line; the exit code."""
    if len(sys.argv) != 2:
        sys.stderr.write("which folder? python -m tests.pictures.top FOLDER\n")
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "top.svg").write_text(svg(frame()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
