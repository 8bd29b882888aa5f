"""The site of the documentation as a reader gets it: every link leads somewhere, every page is found, search works."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urldefrag

import pytest
import yaml

from tests.node.support import cannot_run
from tools import ROOT

pytestmark = pytest.mark.slow

ALERTS: Final = ROOT / "deploy" / "prometheus" / "alerts.yaml"
# Made by Sphinx: the search itself, and an index of terms that we don't use.
_OWN: Final = {"search.html", "genindex.html"}


class Page(HTMLParser):
    """What a page links to and loads, and the anchors that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep links and anchors."""
        for name, value in attrs:
            if name in ("href", "src", "srcset") and value:
                self.links.append(value)
            if value and (name in ("src", "srcset") or (tag, name) == ("link", "href")):
                self.loads.append(value)
            if name == "id" and value:
                self.anchors.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from the checkout; a warning is an error."""
    if find_spec("sphinx") is None:
        cannot_run("there is no sphinx: make docs-site installs it")
    out = tmp_path_factory.mktemp("site")
    flags = ["-q", "-W", "--keep-going", "-b", "html", "-c", "docs", "-d", str(out / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *flags, ".", str(out / "html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return out / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """Every page that can be reached from the front page by following links."""
    reached: dict[Path, Page] = {}
    waiting = [site / "index.html"]
    while waiting:
        path = waiting.pop()
        if path not in reached and path.suffix == ".html" and path.is_file():
            reached[path] = Page(path)
            waiting += [target for target, _ in _targets(path, reached[path])]
    return reached


def _targets(path: Path, page: Page) -> list[tuple[Path, str]]:
    """The files of the site that a page links to, with the anchors."""
    inside = [each for each in page.links if not re.match(r"[a-z]+:|//", each)]
    parts = [(url.partition("?")[0], anchor) for url, anchor in map(urldefrag, inside)]
    return [((path.parent / unquote(url)).resolve() if url else path, unquote(anchor)) for url, anchor in parts]


def test_every_link_leads_somewhere(pages: dict[Path, Page]) -> None:
    """A link names a file of the site, and its anchor a place in it."""
    broken = [
        f"{path.name}: {target.name}#{anchor}"
        for path, page in pages.items()
        for target, anchor in _targets(path, page)
        if not target.is_file() or (anchor and target in pages and anchor not in pages[target].anchors)
    ]
    assert broken == []
    assert sum(len(page.links) for page in pages.values()) > 5000


def test_a_page_loads_nothing_from_elsewhere(pages: dict[Path, Page]) -> None:
    """The site works without a network, and a reader's browser asks no other server."""
    assert [each for page in pages.values() for each in page.loads if re.match(r"https?:|//", each)] == []


def test_every_page_is_found_from_the_front_page(site: Path, pages: dict[Path, Page]) -> None:
    """Each page of docs/ is on the site, and no page is an orphan."""
    built = {path for path in site.rglob("*.html") if path.name not in _OWN and "_static" not in path.parts}
    assert {path.relative_to(site) for path in built - pages.keys()} == set()
    written = {path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md") if "templates" not in path.parts}
    assert {path.with_suffix(".html") for path in written} <= {path.relative_to(site) for path in pages}


def test_the_search_knows_the_pages(site: Path) -> None:
    """The search works without a server: its index is a script, with every page and the words of alerts."""
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").rstrip().removesuffix(")"))
    assert {"docs/index", "docs/runbooks", "docs/policy", "CONTRIBUTING"} <= set(index["docnames"])
    assert {"breaker", "helm", "notebook"} <= index["terms"].keys() | index["titleterms"].keys()
    assert (site / "search.html").is_file()


def test_an_alert_opens_its_runbook(site: Path) -> None:
    """The anchor of each alert's runbook_url is a place on the site's page, as it is on a repository host's."""
    anchors = Page(site / "docs" / "runbooks.html").anchors
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    wanted = {rule["annotations"]["runbook_url"].partition("#")[2] for group in groups for rule in group["rules"]}
    assert len(wanted) >= 20
    assert wanted <= anchors
