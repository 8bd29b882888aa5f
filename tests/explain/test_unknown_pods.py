"""`explain` for a pod of which nothing is known."""

from contextlib import closing

import pytest

from tests.explain.site import Site, after_the_kill, write
from tests.export.build import Story, hostile_pod, quiet, trainer
from tests.ports import free_port
from tests.worlds import Gi, process, snapshot, use
from watchdog.cli.explain import near_misses
from watchdog.core.policy import JournalLimits
from watchdog.journal.journal import Journal
from watchdog.journal.recorder import Recorder


def test_a_stopped_daemon_is_not_an_unknown_pod(site: Site) -> None:
    """For a pod without any decision: where to query, and what it used in the last recorded cycle."""
    recorder = Recorder()
    with closing(Journal.open(site.journal, JournalLimits(), "n1")) as journal:
        for second in range(3):
            recorder.record(quiet(second), journal)
        recorder.end(journal)
    text = site.refusal(url=f"http://127.0.0.1:{free_port()}")
    assert text.startswith("nothing was decided about pod a/trainer\n")
    assert "at 08:00:02 UTC, a/trainer used 4Gi" in text
    assert "\n    kubectl -n gpu-memory-watchdog get pods -o wide\n" in text
    assert "\n    kubectl -n gpu-memory-watchdog exec POD -- gpu-watchdog explain a/trainer\n" in text
    other = site.refusal("a/other", url=f"http://127.0.0.1:{free_port()}")
    assert other.startswith("nothing is known about pod a/other\n")


def test_an_unknown_pod(site: Site) -> None:
    """The error has the query, the possible reasons, and similar pods."""
    write(site.journal, after_the_kill())
    site.endpoints.publish(
        Story(pods=(trainer(namespace="b", uid="u2"),)).see(snapshot([use(5, Gi)], [process(5, "x/y")]))
    )
    text = site.refusal("c/trainer")
    assert all(words in text for words in ("pod c/trainer", "another node", "one of them"))
    assert text.endswith("a/trainer or b/trainer?")


def test_neither_a_daemon_nor_a_journal(site: Site) -> None:
    """If neither can be read both reasons are given, each with its place."""
    text = site.refusal(url=f"http://127.0.0.1:{free_port()}")
    assert ("does not answer" in text, f"there is no journal {site.journal}" in text) == (True, True)


@pytest.mark.parametrize(
    ("pod", "known", "misses"),
    [
        ("a/web", ["b/web", "a/wep", "x/y"], ["b/web", "a/wep"]),
        ("a/web-1", ["a/web-2", "a/web-3", "a/web-4", "a/web-5"], ["a/web-5", "a/web-4", "a/web-3"]),
        ("a/web", ["far/away"], []),
        ("a/web", [], []),
    ],
)
def test_near_misses(pod: str, known: list[str], misses: list[str]) -> None:
    """The same name in another namespace comes first, then what is written much alike; three at most."""
    assert near_misses(pod, known) == misses


def test_hostile_names_are_inert(site: Site) -> None:
    """A tenant's names bring no control codes to the terminal."""
    pod = hostile_pod()
    seen = snapshot([use(5, 2 * Gi)], [process(5, "evil/c\x07\r", name="\x1b]0;x")])
    site.endpoints.publish(Story(pods=(pod,)).see(seen))
    found = site.explain(f"{pod.namespace}/{pod.name}")
    assert all(line.isprintable() for line in found.lines(100))
    assert "\x1b" not in site.refusal("a/\x1b[2J")
