"""The dashboard as it stands in deploy/grafana."""

import json
from pathlib import Path
from typing import Final

from tests.tools.dashboard.actions import actions
from tests.tools.dashboard.cards import cards
from tests.tools.dashboard.course import course
from tests.tools.dashboard.grid import dashboard
from tests.tools.dashboard.health import health
from tests.tools.dashboard.overview import overview
from tests.tools.dashboard.pods import pods
from tests.tools.dashboard.unseen import unseen

FILE: Final = Path(__file__).parents[3] / "deploy" / "grafana" / "gpu-memory-watchdog.json"


def text() -> str:
    """Give the file's text."""
    made = dashboard([overview(), cards(), pods(), course(), actions(), unseen(), health()])
    return json.dumps(made, indent=2) + "\n"
