"""`top --once` and `--json`: for pipes and scripts, by the real command against the daemon's real server."""

import json
import os
import subprocess

import pytest

from tests.cli.build import account, busy, node, serving, status
from tests.cli.session import session
from tests.ports import free_port
from tests.report.build import Story, climbing, quiet, trainer_node
from tests.rig.command import COMMAND
from tests.worlds import Gi, process, snapshot, use
from watchdog.cli.client import inside
from watchdog.cli.main import main
from watchdog.cli.status_text import status_text
from watchdog.cli.views import ASCII, BLOCKS, Choice
from watchdog.report.status import GapStatus, Status


def top(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPU_WATCHDOG")}
    own = {**kept, **environment}
    return subprocess.run(
        [COMMAND, "top", *arguments], capture_output=True, text=True, check=False, timeout=60, env=own
    )


def rows(text: str, title: str) -> list[dict[str, str]]:
    """A table of it, read as a script would: by the places of its titles."""
    blocks = [block.splitlines() for block in text.split("\n\n")]
    (lines,) = [lines for lines in blocks if lines[0].startswith(f"{title} ")]
    return [dict(zip(lines[0].split(), line.split(), strict=False)) for line in lines[1:]]


def test_in_a_pipe() -> None:
    """A pipe gets one picture without control codes, with `--once` and without it; --json, the daemon's document."""
    with serving(climbing()) as url:
        once, plain = top("--once", "--url", url), top("--url", url)
        document = json.loads(top("--json", "--url", url).stdout)
    assert (document["node"], document["accounts"][0]["pod"]) == ("n1", "trainer")
    assert (once.returncode, once.stderr) == (0, "")
    assert (plain.returncode, plain.stdout.split("\n\n")[1:]) == (0, once.stdout.split("\n\n")[1:])
    assert once.stdout.replace("\n", "").isprintable()
    (row,) = rows(once.stdout, "POD")[:1]
    assert {key: row[key] for key in ("POD", "USED", "ALLOWED", "PERCENT", "VERDICT")} == {
        "POD": "a/trainer", "USED": "12.4Gi", "ALLOWED": "10.2Gi", "PERCENT": "122%", "VERDICT": "over",
    }  # fmt: skip


def test_columns_do_not_depend_on_what_is_there() -> None:
    """A script finds the same columns on every node, a value in each cell, and no name cut."""
    name = "x" * 250
    many = node(account(name, container=""), account("b", rule=None))
    reported = status_text(many, Choice(), BLOCKS)
    few = status_text(status(quiet()), Choice(), BLOCKS)
    heads = [
        [line.split() for line in text.splitlines() if line.startswith(("POD ", "GPU "))] for text in (reported, few)
    ]
    assert heads[0] == heads[1]
    assert f"ns/{name}  unlisted_containers  -  " in reported
    assert all(len(row) >= 9 for row in rows(reported, "POD"))


def test_how_busy_and_how_long_idle() -> None:
    """One word in each cell, for scripts: what is unknown, or not idle, is a dash."""
    text = status_text(busy(), Choice(sort="name"), BLOCKS)
    found = {row["POD"]: (row["BUSY"], row["IDLE"]) for row in rows(text, "POD")}
    assert found == {
        "ns/computes": ("35%", "-"), "ns/idle": ("0%", "2h10m"), "ns/soon": ("0%", "-"), "ns/unknown": ("-", "-"),
    }  # fmt: skip
    assert [row["BUSY"] for row in rows(text, "GPU")] == ["35%"]
    assert [row["POD"] for row in rows(status_text(busy(), Choice(idle=True), BLOCKS), "POD")] == ["ns/idle"]
    assert [row["BUSY"] for row in rows(status_text(busy(reason="MIG"), Choice(), BLOCKS), "GPU")] == ["-"]


def test_choices_hold_for_it() -> None:
    """--sort, --over and --filter choose what is printed."""
    made = node(account("a", used=Gi), account("b", used=9 * Gi, verdict="over"))
    assert [row["POD"] for row in rows(status_text(made, Choice(sort="name"), BLOCKS), "POD")[:2]] == ["ns/a", "ns/b"]
    assert "ns/a" not in status_text(made, Choice(over=True), BLOCKS)
    with serving(climbing()) as url:
        assert "a/trainer" in top("--url", url, "--over", "--filter", "NOTEBOOKS", "--sort", "time").stdout
        assert "a/trainer" not in top("--url", url, "--filter", "other").stdout
        wrong = top("--url", url, "--sort", "size")
        assert "a/trainer" in top("--url", url, "--gpu", "1").stdout
        nowhere = top("--url", url, "--gpu", "7")
        assert "No pod is known to hold memory idle." in top("--url", url, "--idle").stdout
    assert (wrong.returncode, "'size' is not one of" in wrong.stderr) == (2, True)
    assert (nowhere.returncode, "'7' is no GPU of this node; it has: 0, 1" in nowhere.stderr) == (2, True)


FREE = status(quiet())
NONE_SHOWN = {
    "filter": (FREE, Choice(text="zzz"), "No pod matches the filter 'zzz'."),
    "GPU": (node(account("a")), Choice(gpu="1"), "No pod uses GPU 1."),
    "over": (FREE, Choice(over=True, gpu="1"), "No pod uses GPU 1 and is over its limit."),
    "empty node": (node(), Choice(text="zzz"), "No pod on this node uses or declares GPU memory."),
    "no pod list": (node(pods_synced_at=None), Choice(), "Unknown: there is no pod list."),
    "no driver": (node(gaps=(GapStatus(what="NVML"),)), Choice(), "Unknown: NVML is not responding."),
}


@pytest.mark.parametrize(("seen", "choice", "sentence"), NONE_SHOWN.values(), ids=NONE_SHOWN.keys())
def test_without_a_pod_a_sentence_is_printed(seen: Status, choice: Choice, sentence: str) -> None:
    """An empty result names its filter, and unknown pods are never reported as no pods."""
    reported = status_text(seen, choice, BLOCKS).split("\n\n")
    assert sentence in [part.strip() for part in reported]
    assert not any(part.startswith("POD ") for part in reported)


def test_what_is_wrong_comes_first() -> None:
    """Problems stand whole at the top, each on a line that begins with an exclamation mark."""
    gaps = (GapStatus(what="GPU-0", why="first " * 100), GapStatus(what="GPU-1", why="second"))
    reported = status_text(node(gaps=gaps), Choice(), BLOCKS).splitlines()
    assert reported[1:3] == ["! Unknown: GPU 0: " + "first " * 100, "! Unknown: GPU 1: second"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["--once", "--json"])
def test_the_daemon_is_away(how: str) -> None:
    """Exit code 1, with the reason and what helps."""
    done = top(how, "--url", f"http://127.0.0.1:{free_port()}")
    assert (done.returncode, done.stdout) == (1, "")
    assert all(each in done.stderr for each in ("Connection refused", "port-forward", inside("top", how)))


@pytest.mark.slow
def test_the_address() -> None:
    """It asks --url, or else the address of --listen, both also by the environment; a wrong one is wrong use."""
    with serving(climbing()) as url:
        listen = url.removeprefix("http://")
        assert top("--once", "--listen", listen).returncode == 0
        for variable in ({"GPU_WATCHDOG_LISTEN": listen}, {"GPU_WATCHDOG_URL": url}):
            assert top("--once", **variable).returncode == 0
    for wrong in (("--once", "--url", "localhost"), ("--interval", "0s"), ("--interval", "often")):
        assert top(*wrong).returncode == 2


def test_an_encoding_that_lacks_characters() -> None:
    """Output of another encoding than UTF-8 has bars and names without what it lacks, rather than a traceback."""
    seen = snapshot([use(101, Gi), use(102, None)], [process(101, "u1/main", name="訓練"), process(102, "u1/main")])
    with serving(Story().see(seen)) as url:
        done = top("--once", "--url", url, PYTHONIOENCODING="latin-1", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert ">=1Gi" in done.stdout
    assert "  ??\n" in done.stdout
    assert "≥" not in status_text(status(Story().see(trainer_node(None))), Choice(), ASCII)


def test_a_terminal_that_cannot_be_drawn_on() -> None:
    """TERM=dumb, or none: one picture without control codes, and the reason."""
    with serving(climbing()) as url:
        for term in ("dumb", ""):
            with session("--url", url, TERM=term) as shown:
                assert shown.end() == 0
            assert "TERM does not name a terminal" in shown.screen.usual
            assert "a/trainer" in shown.screen.usual
            assert b"\x1b" not in shown.written


@pytest.mark.parametrize("name", ["scan", "top", "history", "explain", "replay", "recommend", "check", "doctor"])
def test_every_report_is_there_as_json(name: str) -> None:
    """What a person can read a script can read."""
    assert "--json" in {word for option in main.commands[name].params for word in option.opts}
