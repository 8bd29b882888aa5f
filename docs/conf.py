"""The site of the documentation: `make docs-site` builds it from the same pages that a repository host renders."""

import re
import shutil
from importlib import metadata
from pathlib import Path

from sphinx.application import Sphinx

project = "gpu-memory-watchdog"
author = "The gpu-memory-watchdog authors"
project_copyright = author
version = release = metadata.version("gpu-memory-watchdog")

# The source folder is the repository, so that a page's links to files outside docs/ lead to the same places.
root_doc = "docs/index"
include_patterns = ["docs/**.md", "CONTRIBUTING.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "SECURITY.md"]
exclude_patterns = ["docs/templates", ".*", "build", "tests", "watchdog", "deploy", "bench", "tools"]

extensions = ["myst_parser"]
myst_heading_anchors = 4

# Its lexer for PromQL does not know subqueries.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = f"{project} {release}"
html_extra_path = ["site"]
html_copy_source = False
html_show_sphinx = False

_LINK = re.compile(r"\]\(([^):#]+)\.md")


def _contents(text: str) -> str:
    """The tables of contents that the site needs: one for each paragraph of the front page that lists pages."""
    listed: set[str] = set()
    trees = []
    for caption, body in re.findall(
        r"^\*\*([^*]+)\.\*\* (.*?)\n\n", text.partition("## All pages\n")[2] + "\n\n", re.M | re.S
    ):
        pages = [page for page in _LINK.findall(body) if page not in listed]
        listed.update(pages)
        lines = "\n".join(f"/{page.removeprefix('../')}" if page.startswith("../") else page for page in pages)
        trees.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{lines}\n```\n")
    return "\n".join(trees)


def _add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname == root_doc:
        source[0] += f"\n{_contents(source[0])}"
    if docname == "docs/architecture":
        pages = "\n".join(f"adr/{page.stem}" for page in sorted(Path(app.confdir, "adr").glob("*.md")))
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def _copy_pictures(app: Sphinx, error: Exception | None) -> None:
    if error is None:
        shutil.copytree(Path(app.confdir, "pictures"), Path(app.outdir, "docs", "pictures"), dirs_exist_ok=True)


def setup(app: Sphinx) -> None:
    """Add tables of contents, which repository hosts show as code, and the pictures that HTML in a page names."""
    app.connect("source-read", _add_contents)
    app.connect("build-finished", _copy_pictures)
