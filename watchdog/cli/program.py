"""How the program is called: by its own name, or by kubectl as a plugin, which has a completion of its own."""

import contextlib
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, ShellComplete

# What kubectl runs for `kubectl gpu-watchdog`, and to complete its words (kubectl's pkg/cmd/plugin).
PLUGIN: Final = "kubectl-gpu_watchdog"
COMPLETION: Final = "kubectl_complete-gpu_watchdog"
_AS_PLUGIN: Final = "kubectl gpu-watchdog"
# Where a command has the width of the terminal that its caller has on another machine.
CALLER_WIDTH: Final = "gpu_watchdog.caller_width"
# Columns of the narrowest terminal that sentences are wrapped for.
NARROWEST: Final = 40


def program_name() -> str:
    """`gpu-watchdog` or `kubectl gpu-watchdog` if it is found by that name, or else the path it was started by."""
    started = sys.argv[0]
    path = Path(started)
    if path.parts[-2:] == ("watchdog", "__main__.py"):
        return f"{shlex.quote(sys.executable)} -m watchdog"
    if not path.name.startswith(("gpu-watchdog", PLUGIN)):
        return "gpu-watchdog"  # within another program, like a test's
    found = shutil.which(path.name)
    with contextlib.suppress(OSError):
        if found is not None and path.samefile(found):
            return _AS_PLUGIN if path.name == PLUGIN else path.name
    return shlex.quote(started)


def named_as_called() -> dict[str, Any]:
    """The arguments by which click names the program in usage and errors, where it can't find the name itself."""
    return {"prog_name": program_name()} if Path(sys.argv[0]).name == PLUGIN else {}


def is_completion() -> bool:
    """Whether kubectl asks how the words of a command line can go on."""
    return Path(sys.argv[0]).name == COMPLETION


class _PluginComplete(ShellComplete):
    """Completion for kubectl: the words are arguments, and the last line tells the shell what else to offer.

    These are the directives of cobra, on which kubectl is built
    (https://github.com/spf13/cobra/blob/v1.9.1/completions.go).
    """

    name = "kubectl"
    source_template = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one at the cursor, and that one."""
        *words, last = sys.argv[1:] or [""]
        return words, last

    def format_completion(self, item: CompletionItem[str]) -> str:
        """A word, with its explanation after a tab."""
        return f"{item.value}\t{item.help}" if item.help else str(item.value)

    def complete(self) -> str:
        """A line for each word, and the directive."""
        words, last = self.get_completion_args()
        items = self.get_completions(words, last)
        kinds = {item.type for item in items}
        directive = _FILES if "file" in kinds else _FOLDERS if "dir" in kinds else _NO_FILES
        lines = [self.format_completion(item) for item in items if item.type == "plain"]
        return "\n".join([*lines, f":{directive}"])


_FILES, _NO_FILES, _FOLDERS = 0, 4, 16


def print_completions(command: click.Command) -> None:
    """Answer kubectl for the words in the arguments."""
    click.echo(_PluginComplete(command, {}, _AS_PLUGIN, "").complete())
