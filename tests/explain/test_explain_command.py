"""The command line of `explain`."""

import pytest
from click.testing import CliRunner

from tests.explain.site import Site
from tests.export.build import quiet
from watchdog.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["trainer"], "give NAMESPACE/NAME"),
        (["a/"], "give NAMESPACE/NAME"),
        (["a/b/c"], "give NAMESPACE/NAME"),
        (["a/b", "--url", "n1:9837"], "write http://HOST:PORT"),
        (["a/b", "--listen", "9837"], "write ADDR:PORT"),
        ([], "Missing argument"),
    ],
)
def test_wrong_use_is_said(arguments: list[str], says: str) -> None:
    """What can't be meant is refused with exit code 2 before anything is asked."""
    done = CliRunner().invoke(main, ["explain", *arguments])
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())


def test_a_journal_on_the_command_line_is_read_alone(site: Site) -> None:
    """Whoever names a journal alone means that one: no daemon is asked about another node's pod, and that is said."""
    site.endpoints.publish(quiet())
    listen = site.url.removeprefix("http://")
    by_environment = {"GPU_WATCHDOG_LISTEN": listen}
    named = CliRunner().invoke(main, ["explain", "a/trainer", "--journal", str(site.journal)], env=by_environment)
    assert (named.exit_code, "there is no journal" in named.output) == (1, True)
    assert "no daemon was asked" in named.output
    beside = ["explain", "a/trainer", "--listen", listen, "--journal", str(site.journal)]
    asked = CliRunner().invoke(main, beside)
    assert asked.exit_code == 0, "an address on the command line means the daemon there"
    assert "uses 4Gi" in " ".join(asked.output.split())
    by_environment = {"GPU_WATCHDOG_JOURNAL": str(site.journal), "GPU_WATCHDOG_LISTEN": listen}
    asked = CliRunner().invoke(main, ["explain", "a/trainer"], env=by_environment)
    assert asked.exit_code == 0
    assert "uses 4Gi" in " ".join(asked.output.split())
    both = ["explain", "a/trainer", "--json", "--url", site.url, "--journal", str(site.journal)]
    assert CliRunner().invoke(main, both).exit_code == 0
