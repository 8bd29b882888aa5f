"""The site of the documentation as a reader gets it: every link leads somewhere, every page is found, search works."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.node.support import cannot_run
from tools import ROOT

pytestmark = pytest.mark.slow

ALERTS: Final = ROOT / "deploy" / "prometheus" / "alerts.yaml"
# What a browser fetches from another server when it shows a page.
_LOADS_FROM_ELSEWHERE: Final = re.compile(r"""(?:\bsrc(?:set)?|<link\b[^>]*\bhref)=["'](?:https?:|//)[^"']*""")


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


def test_every_link_leads_somewhere(site: Path) -> None:
    """Every link and anchor of every page names a place on the site."""
    lychee = [str(Path(sys.executable).with_name("lychee")), "--offline", "--include-fragments", "--format", "json"]
    done = subprocess.run([*lychee, str(site)], capture_output=True, text=True, timeout=300, check=False)
    report = json.loads(done.stdout)
    assert done.returncode == 0, report["error_map"]
    assert report["successful"] > 5000


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    """The site works without a network, and a reader's browser asks no other server."""
    assert [
        each for page in site.rglob("*.html") for each in _LOADS_FROM_ELSEWHERE.findall(page.read_text("utf-8"))
    ] == []


def test_every_page_of_the_docs_is_on_the_site(site: Path) -> None:
    """No page is left out; that the links lead to each of them is checked in tests/docs."""
    written = {path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md") if "templates" not in path.parts}
    assert {path.with_suffix(".html") for path in written} <= {path.relative_to(site) for path in site.rglob("*.html")}


def test_the_search_knows_the_pages(site: Path) -> None:
    """The search works without a server: its index is a script, with every page and the words of alerts."""
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").rstrip().removesuffix(")"))
    assert {"docs/index", "docs/runbooks", "docs/policy", "CONTRIBUTING"} <= set(index["docnames"])
    assert {"breaker", "helm", "notebook"} <= index["terms"].keys() | index["titleterms"].keys()
    assert (site / "search.html").is_file()


def test_an_alert_opens_its_runbook(site: Path) -> None:
    """The anchor of each alert's runbook_url is a place on the site's page, as it is on a repository host's."""
    anchors = set(re.findall(r'\bid="([^"]+)"', (site / "docs" / "runbooks.html").read_text("utf-8")))
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    wanted = {rule["annotations"]["runbook_url"].partition("#")[2] for group in groups for rule in group["rules"]}
    assert len(wanted) >= 20
    assert wanted <= anchors
