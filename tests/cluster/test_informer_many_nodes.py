"""The informers of many nodes on one API server, through an outage of it: they come back spread out, with few requests.

By hand, with a thousand: `python -m tests.rig.cluster.watchers`.
"""

from pathlib import Path

import pytest

from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.rights_guard import RightsGuard
from tests.rig.cluster.watchers import through_an_outage

WATCHERS = 50


@pytest.mark.slow
def test_an_outage_of_the_server(programs: Path, tmp_path: Path, rights_guard: RightsGuard) -> None:
    """All watch again within a minute; a list each at most, for the history that a new server does not have."""
    with ControlPlane(tmp_path / "plane", programs=programs, controllers=False, scheduler=False) as plane:
        result = through_an_outage(plane, WATCHERS, outage_s=20, settle_s=0)
    assert rights_guard.strangers(plane) == []
    lists = sum(count for (verb, _), count in result.requests.items() if verb == "list")
    watches = sum(count for (verb, code), count in result.requests.items() if (verb, code) == ("watch", 200))
    assert lists <= WATCHERS
    assert watches <= 2 * WATCHERS
    assert result.all_watching_s < 60
    # All at once would be 50 in the first second. Drawn from 30 s it is 2 a second, and hardly ever 12.
    assert result.peak_per_s["list"] <= 25
    refused = sum(count for (_, code), count in result.requests.items() if code != 200)
    assert refused <= 2 * WATCHERS
