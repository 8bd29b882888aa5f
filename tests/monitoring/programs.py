"""Where the programs of the monitoring stack are; they come from the distribution."""

import shutil
from pathlib import Path
from typing import Final

from tests.node.support import cannot_run

# The Debian package of each, and what else a program may be called: upstream's Alertmanager is `alertmanager`.
_PACKAGES: Final = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "alertmanager": "prometheus-alertmanager",
    "amtool": "prometheus-alertmanager",
    "chromium": "chromium",
    "jq": "jq",
    "curl": "curl",
}
_NAMES: Final = {"alertmanager": ("prometheus-alertmanager", "alertmanager"), "chromium": ("chromium", "chrome")}


def find(name: str) -> Path:
    """The program, prometheus, chromium or jq for example. Where it is missing the test can't run.

    It is skipped then, with the Debian package to install, and fails in CI.
    """
    name = name.removeprefix("prometheus-")
    found = next(filter(None, map(shutil.which, _NAMES.get(name, (name,)))), None)
    if found is None:
        cannot_run(f"needs {name}; on Debian and Ubuntu: apt-get install {_PACKAGES[name]}")
    return Path(found)
