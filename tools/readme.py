"""Puts the end of docs/demo.txt into the README."""

from typing import Final

from tools import ROOT

README: Final = ROOT / "README.md"
DEMO: Final = ROOT / "docs" / "demo.txt"
_BEGIN: Final = "<!-- demo -->\n"
_END: Final = "<!-- /demo -->\n"


def with_demo(readme: str, demo: str) -> str:
    """The text of the README with the last screen of the demo and what the victim's owner reads."""
    head, begin, rest = readme.partition(_BEGIN)
    _, end, tail = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"{README.name} has no place for the demo")
    last = demo.partition("... and at the end:\n")[2].partition("\nNext:\n")[0].strip("\n")
    return f"{head}{begin}```text\n{last}\n```\n{end}{tail}"


def main() -> None:
    """Write the README again."""
    text = with_demo(README.read_text(encoding="utf-8"), DEMO.read_text(encoding="utf-8"))
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
