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
def test_invalid_arguments(arguments: list[str], says: str) -> None:
    """Invalid arguments are refused with exit code 2 before any query."""
    done = CliRunner().invoke(main, ["explain", *arguments])
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())


def test_a_journal_on_the_command_line_is_read_alone(site: Site) -> None:
    """A journal named without an address is read alone: no daemon is queried about another node's pod."""
    site.endpoints.publish(quiet())
    listen, journal = site.url.removeprefix("http://"), ("--journal", str(site.journal))
    by_environment = {"GPU_WATCHDOG_LISTEN": listen}
    named = CliRunner().invoke(main, ["explain", "a/trainer", *journal], env=by_environment)
    assert named.exit_code == 1
    assert all(words in named.output for words in ("there is no journal", "no daemon was asked"))
    for arguments, variables in (
        (("--listen", listen, *journal), {}),  # an address on the command line means the daemon there
        ((), {**by_environment, "GPU_WATCHDOG_JOURNAL": str(site.journal)}),
        (("--json", "--url", site.url, *journal), {}),
    ):
        queried = CliRunner().invoke(main, ["explain", "a/trainer", *arguments], env=variables)
        assert (queried.exit_code, "uses 4Gi" in " ".join(queried.output.split())) == (0, True)
