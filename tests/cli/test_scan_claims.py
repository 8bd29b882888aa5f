"""`gpu-watchdog scan` with what claims gave: each shape of an allocation, by the running command and its files."""

import json
from collections import defaultdict
from pathlib import Path

from tests.claims import claim, listed, with_claims
from tests.kube.test_claims import CARD, CASES, GPUS, RULE, SLICES, raw_pod
from tests.rig.command import gpu_watchdog
from tests.stub import Stub, StubGpu, build_or_skip


def test_each_shape_of_an_allocation_declares_the_same_by_the_command(tmp_path: Path) -> None:
    """Points 42 and 43: from the files to the output, what the table of shapes says of each of them."""
    build_or_skip("current")
    cards = tuple(StubGpu(uuid=each.uuid, total=CARD, reserved=0) for each in GPUS)
    stub = Stub(gpus=cards).write(tmp_path / "nvml.txt")
    cases = {
        name: case
        for name, case in CASES.items()
        if case.slices is SLICES and case.gpus is GPUS and not (case.more or case.policy)
    }
    assert len(cases) > 10
    uids = {name: f"u{number}" for number, name in enumerate(cases)}
    pods = (
        with_claims(raw_pod(uids[name]), {"gpu": uids[name]}, {"main": [case.uses]}) for name, case in cases.items()
    )
    claims = (claim(uids[name], *case.given, pods=(uids[name],)) for name, case in cases.items())
    written = {
        "--pods": listed(*pods),
        "--claims": listed(*claims),
        "--slices": listed(*SLICES),
        "--policy": RULE.encode(),
    }
    arguments: list[str | Path] = ["--node", "n1", "--json"]
    for option, text in written.items():
        path = tmp_path / option.strip("-")
        path.write_bytes(text)
        arguments += [option, path]
    ended = gpu_watchdog("scan", *arguments, stub=stub)
    assert ended.returncode == 0, ended.stderr
    declared: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for account in json.loads(ended.stdout)["accounts"]:
        if account["declared"] is not None:
            declared[account["uid"]][account["gpu"] or ""] = account["declared"]
    for name, case in cases.items():
        assert declared[uids[name]] == (case.declared or {}), name
