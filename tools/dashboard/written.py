"""The dashboard as it is in deploy/grafana."""

import json
from typing import Final

from tools import ROOT
from tools.dashboard.actions import actions
from tools.dashboard.allocated import allocated
from tools.dashboard.cards import cards
from tools.dashboard.grid import dashboard
from tools.dashboard.health import health
from tools.dashboard.hour import hour
from tools.dashboard.models import models
from tools.dashboard.over_time import over_time
from tools.dashboard.overview import overview
from tools.dashboard.pods import pods
from tools.dashboard.unseen import unseen
from tools.dashboard.utilization import utilization

FILE: Final = ROOT / "deploy" / "grafana" / "gpu-memory-watchdog.json"


def text() -> str:
    """Give the file's text."""
    made = dashboard(
        [
            *(overview(), models(), cards(), allocated(), utilization()),
            *(pods(), hour(), over_time(), actions(), unseen(), health()),
        ]
    )
    return json.dumps(made, indent=2) + "\n"
