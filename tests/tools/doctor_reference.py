"""Writes docs/doctor.md: docs/templates/doctor.md with everything that doctor can find, from the code that finds it."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pynvml

from watchdog.cli.doctor.finding import FindingState, Purpose, Topic
from watchdog.cli.doctor.report import TOPICS
from watchdog.node.nvml_calls import REMEDIES

ROOT: Final = Path(__file__).parents[2]
TEMPLATE: Final = ROOT / "docs" / "templates" / "doctor.md"
REFERENCE: Final = ROOT / "docs" / "doctor.md"
_MARKS: Final = {FindingState.OK: "ok", FindingState.WARNING: "warning", FindingState.MISSING: "lacks"}


def doctor_reference() -> str:
    """The whole text of docs/doctor.md."""
    text = TEMPLATE.read_text(encoding="utf-8")
    text = text.replace("{errors}", "\n".join(_errors()))
    return text.replace("{reference}", "\n".join(_topics()).rstrip())


def _topics() -> Iterator[str]:
    for topic in TOPICS:
        yield f"## `{topic.name}`"
        yield ""
        yield f"{topic.means} {_needed(topic)}"
        yield ""
        yield "| mark | what | remedy |"
        yield "|---|---|---|"
        for case in topic.cases.values():
            yield f"| {_MARKS[case.state]} | {_words(case.what)} | {_words(case.remedy)} |"
        yield ""


def _errors() -> Iterator[str]:
    # The words of pynvml for a code depend on whether a library has been loaded before; the names of nvml.h do not.
    names = {getattr(pynvml, name): name for name in sorted(dir(pynvml)) if name.startswith("NVML_ERROR_")}
    for code in sorted(REMEDIES):
        yield f"| {code} | `{names[code]}` | {_words(REMEDIES[code])} |"


def _needed(topic: Topic) -> str:
    return "Needed for both." if Purpose.OBSERVE in topic.purposes else "Needed for enforcing."


def _words(text: str) -> str:
    """Write what differs in capitals, and keep what stands in a table's cell from ending it."""
    return re.sub(r"\{([a-z_]+)\}", lambda match: match[1].upper(), text).replace("|", "\\|")


def main() -> int:
    """Write the file, or with `--check` say whether it is as it would be written."""
    text = doctor_reference()
    if "--check" in sys.argv[1:]:
        return 0 if REFERENCE.read_text(encoding="utf-8") == text else 1
    REFERENCE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
