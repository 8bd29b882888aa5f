"""The recording rules on what the real collector exposes: each gives what its name says."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.monitoring.rules.dcgm import RECORDED, RECORDED_CARD, RECORDED_POD, Scraped, scrape
from tests.monitoring.rules.promtool import RECORDING, ROOT, hold, rules
from tests.monitoring.rules.world import World
from tests.report.build import killed, trainer, trainer_node
from tests.worlds import Gi, at, gpu, process, snapshot, use
from watchdog.core.brakes import Brake
from watchdog.core.model import MigParent
from watchdog.core.plan import Outcome
from watchdog.core.utilization import CardSeconds, Utilization

pytestmark = pytest.mark.slow
PAGE = (ROOT / "docs" / "prometheus.md").read_text(encoding="utf-8")
QUERY = re.compile(r"^```promql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WAY = {"rule": "notebooks", "action": "kill"}


def _after_a_kill() -> World:
    """Two nodes: on one a/trainer uses 12.4GiB and is killed, and the series of two daemons of it overlap.

    On the other it was killed before the first scrape.
    """
    world = World("east")
    first, second = world.daemon(), world.daemon("n2")
    early: tuple[Outcome, ...] = (killed(at=at(0)),)
    for moment in world.until(5):
        second.see(trainer_node(4.0, moment), outcomes=early)
        first.see(trainer_node(12.4, moment))
        early = ()
    successor = world.daemon()
    successor.begin_again(watchdog_pod="gpu-watchdog-next")
    for moment in world.until(10):
        is_now = moment == 390
        second.see(trainer_node(4.0, moment))
        first.see(trainer_node(12.4, moment))
        began, ended = (killed(reaction_s=0.4),), (killed(at=at(390)),)
        successor.see(trainer_node(12.4, moment), began=began if is_now else (), outcomes=ended if is_now else ())
    return world


def after_a_kill() -> World:
    """Sums count every card and pod once, also where two daemons have reported it; counters go on over a restart."""
    world = _after_a_kill()
    n1, n2 = {"node": "n1"}, {"node": "n2"}
    trainer = {"namespace": "a", "pod": "trainer"}
    cards = [({**each, "gpu": f"GPU-{number}"}, number) for each in (n1, n2) for number in (0, 1)]
    # As `trainer_node` has it: the first card has what the pod uses and 512MiB, the second 2GiB.
    used = {("n1", 0): int(12.4 * Gi) + Gi // 2, ("n1", 1): 2 * Gi, ("n2", 0): 4 * Gi + Gi // 2, ("n2", 1): 2 * Gi}
    world.gives(
        "node_gpu:gpu_watchdog_memory_free:ratio",
        *((labels, 1 - used[labels["node"], number] / (80 * Gi)) for labels, number in cards),
    )
    world.gives(
        "node_gpu:gpu_watchdog_memory_unattributed:ratio",
        *((labels, Gi / (80 * Gi) if number == 0 else 0.0) for labels, number in cards),
    )
    world.gives("node:gpu_watchdog_memory_total:sum", (n1, 160 * Gi), (n2, 160 * Gi))
    world.gives("node:gpu_watchdog_memory_used:sum", (n1, int(14.9 * Gi)), (n2, int(6.5 * Gi)))
    big, small = ({**each, **trainer} for each in (n1, n2))
    world.gives("namespace_pod:gpu_watchdog_memory_used:max", (big, int(12.4 * Gi)), (small, 4 * Gi))
    world.gives("namespace_pod:gpu_watchdog_memory_declared:max", (big, 8 * Gi), (small, 8 * Gi))
    allowed = 8 * Gi * 102 // 100 + 2 * Gi
    world.gives(
        "namespace_pod:gpu_watchdog_memory_over_allowed:ratio",
        (big, int(12.4 * Gi) / allowed),
        (small, 4 * Gi / allowed),
    )
    world.gives("namespace:gpu_watchdog_memory_used:sum", ({"namespace": "a"}, int(12.4 * Gi) + 4 * Gi))
    world.gives("namespace:gpu_watchdog_memory_declared:sum", ({"namespace": "a"}, 16 * Gi))
    verdicts = {"within": 1, "over": 1, "undeclared": 0, "misdeclared": 0, "unknown": 0}
    world.gives("verdict:gpu_watchdog_accounts:sum", *(({"verdict": each}, n) for each, n in verdicts.items()))
    # The window is longer than the world, so the increase of one is extrapolated a little.
    killed_once = 'rule_action_result:gpu_watchdog_actions:increase1h{action="kill", result="done"}'
    world.gives(f"count by (cluster, rule, action, result) ({killed_once} > 0.9 < 1.3)", ({**WAY, "result": "done"}, 1))
    rest = "rule_action_result:gpu_watchdog_actions:increase1h == 0"
    world.gives(f"count by (cluster, action) ({rest})", ({"action": "kill"}, 5), ({"action": "warn"}, 6))
    world.gives("count by (cluster) (brake:gpu_watchdog_withheld:increase1h == 0)", ({}, len(Brake)))
    late = 'node_action:gpu_watchdog_reaction_seconds:p99_1h{action="kill"} > 0.49 < 0.5'
    world.gives(f"count by (cluster, node) ({late})", ({"node": "n1"}, 1))
    return world


def unknown_parts() -> World:
    """A card or a pod whose use is not known is not counted as 0: its node or namespace has no sum, others have."""
    world = World("east")
    first, second = world.daemon(pods=(trainer(), trainer(name="lone", namespace="b", uid="u2"))), world.daemon("n2")
    lost = replace(gpu(1), up=False, used=None, total=None)
    for moment in world.until(3):
        first.see(trainer_node(None, moment, gpus=(gpu(0, used=4 * Gi), lost)))
        second.see(trainer_node(4.0, moment))
    world.gives("node:gpu_watchdog_memory_used:sum", ({"node": "n2"}, 6 * Gi + Gi // 2))
    world.gives("node:gpu_watchdog_memory_total:sum", ({"node": "n2"}, 160 * Gi))
    world.gives("namespace:gpu_watchdog_memory_used:sum", ({"namespace": "b"}, 0))
    return world


def what_idle_cards_cost() -> World:
    """A namespace holds half a card on two nodes: on one, a quarter of it computes; on the other, that is unknown.

    What is unknown costs nothing, but counts as held. Of another namespace nothing is known: it has no utilization.
    """
    world = World("east")
    daemons = world.daemon(), world.daemon("n2")
    for second in world.until(90):
        known = CardSeconds(held=second / 2, computing=second / 8, idle=second * 3 / 8)
        unknown = CardSeconds(held=second / 2)
        for daemon, spent in zip(daemons, ({"a": known}, {"a": unknown, "b": unknown}), strict=True):
            daemon.see(trainer_node(4.0, second), utilization=Utilization(by_namespace=spent))
    record, a, b = "namespace_state:gpu_watchdog_card_seconds:increase1h", {"namespace": "a"}, {"namespace": "b"}
    spent_s = {"held": (3600, 1800), "computing": (450, 0), "idle": (1350, 0)}
    of_both = (((a, state, first), (b, state, second)) for state, (first, second) in spent_s.items())
    world.gives(record, *(({**each, "state": state}, seconds) for both in of_both for each, state, seconds in both))
    # The queries of the page, of an hour instead of a day.
    section = PAGE.partition("\n## What idle cards cost\n")[2].partition("\n## ")[0]
    idle, held, busy, known, _ = (each.strip().replace("[1d]", "[1h]") for each in QUERY.findall(section))
    found = (
        (idle, {"a": 3.06 * 1350 / 3600, "b": 0}),
        (held, {"a": 3.06, "b": 3.06 / 2}),
        (busy, {"a": 0.25}),
        (known, {"a": 0.5, "b": 0}),
    )
    for query, values in found:
        expr = query.replace("by (namespace)", "by (cluster, namespace)")
        world.gives(expr, *(({"namespace": name}, value) for name, value in values.items()))
    return world


def beside_dcgm(scraped: Scraped | None, *, without: str = "") -> World:
    """A pod on a card and on two MIG instances of another, a second pod on the card, and what dcgm-exporter says there.

    It names one pod of the card, and the pod of one of the instances. None: there is no dcgm-exporter.
    """
    world = World("east")
    daemon = world.daemon(pods=(trainer(), trainer(name="lone", namespace="b", uid="u2")))
    if scraped is not None:
        scrape(world, scraped, without=without)
    instances = tuple(gpu(9, uuid=f"MIG-{i}", parent="GPU-9", gi=i, ci=0, profile="1g.6gb") for i in (3, 5))
    placed = [
        use(101, Gi),
        use(201, Gi),
        *(replace(use(102 + i, Gi), gpu=each.uuid) for i, each in enumerate(instances)),
    ]
    processes = [*(process(pid, "u1/main") for pid in (101, 102, 103)), process(201, "u2/main")]
    seen = snapshot(placed, processes, (gpu(0), *instances), parents=(MigParent(uuid="GPU-9", index=9, name="Stub"),))
    for moment in world.until(2):
        daemon.see(replace(seen, at=at(moment)))
    return world


def what_dcgm_exporter_says(scraped: Scraped) -> World:
    """Each value under the labels of the watchdog: by card, and by the pods that both name. No other card comes in."""
    world = beside_dcgm(scraped)
    card, with_mig = {"node": "n1", "gpu": "GPU-0"}, {"node": "n1", "gpu": "GPU-9"}
    both = {"GPU_TEMP": (48, 50), "POWER_USAGE": (40.979, 31.25), "XID_ERRORS": (79, 0)}
    for name, (first, second) in both.items():
        world.gives(f"node_gpu:DCGM_FI_DEV_{name}:max", (card, first), (with_mig, second))
    one = {"ECC_SBE_VOL_TOTAL": 7, "ECC_DBE_VOL_TOTAL": 1, "UNCORRECTABLE_REMAPPED_ROWS": 2}
    for name, value in one.items():
        world.gives(f"node_gpu:DCGM_FI_DEV_{name}:max", (card, value))
    first_pod, second_pod = {"namespace": "a", "pod": "trainer"}, {"namespace": "b", "pod": "lone"}
    on_card, on_mig = {**card, **first_pod}, {**with_mig, **first_pod}
    world.gives("namespace_pod_gpu:gpu_watchdog_card:group", (on_card, 1), (on_mig, 1), ({**card, **second_pod}, 1))
    world.gives("namespace_pod_gpu:gpu_watchdog_card_dcgm:group", (on_card, 1), (on_mig, 1))
    for name, (of_card, of_mig) in both.items():
        world.gives(f"namespace_pod_gpu:DCGM_FI_DEV_{name}:max", (on_card, of_card), (on_mig, of_mig))
    (query,) = QUERY.findall(PAGE.partition("\n## With dcgm-exporter\n")[2].partition("\n## ")[0])
    world.gives(query.strip(), (on_card, 79), ({**card, **second_pod}, 79))
    for name in ("ECC_DBE_VOL_TOTAL", "UNCORRECTABLE_REMAPPED_ROWS"):
        world.gives(f"namespace_pod_gpu:DCGM_FI_DEV_{name}:max", (on_card, one[name]))
    return world


def what_a_real_one_said(scraped: Scraped) -> World:
    """What dcgm-exporter wrote on a real card is under the watchdog's labels of that card, and of the pod on it."""
    world = World("east")
    daemon = world.daemon(pods=(trainer(name=RECORDED_POD["pod"], namespace=RECORDED_POD["namespace"]),))
    scrape(world, scraped, output=RECORDED)
    card = replace(gpu(0), uuid=RECORDED_CARD)
    seen = snapshot([replace(use(101, Gi), gpu=RECORDED_CARD)], [process(101, "u1/main")], (card,))
    for moment in world.until(2):
        daemon.see(replace(seen, at=at(moment)))
    on_card = {"node": "n1", "gpu": RECORDED_CARD}
    for name, value in {
        "GPU_TEMP": 48,
        "POWER_USAGE": 40.979,
        "XID_ERRORS": 0,
        "UNCORRECTABLE_REMAPPED_ROWS": 0,
    }.items():
        world.gives(f"node_gpu:DCGM_FI_DEV_{name}:max", (on_card, value))
        world.gives(f"namespace_pod_gpu:DCGM_FI_DEV_{name}:max", ({**on_card, **RECORDED_POD}, value))
    return world


def without_dcgm() -> World:
    """Where there is no dcgm-exporter the rules give nothing, and pods are on their cards all the same."""
    world = beside_dcgm(None)
    world.gives('count({__name__=~".*DCGM.*|.*dcgm.*"})')
    world.gives("count by (cluster) (namespace_pod_gpu:gpu_watchdog_card:group)", ({}, 3))
    return world


def dcgm_without_the_temperature() -> World:
    """A field that dcgm-exporter is told not to export is missing, and the others are there for each pod."""
    world = beside_dcgm("default", without="DCGM_FI_DEV_GPU_TEMP")
    trainer = {"node": "n1", "namespace": "a", "pod": "trainer"}
    on_card, on_mig = {**trainer, "gpu": "GPU-0"}, {**trainer, "gpu": "GPU-9"}
    world.gives("namespace_pod_gpu:DCGM_FI_DEV_XID_ERRORS:max", (on_card, 79), (on_mig, 0))
    world.gives("namespace_pod_gpu:DCGM_FI_DEV_GPU_TEMP:max")
    return world


def dcgm_alone() -> World:
    """Without the watchdog's series they give nothing either."""
    world = World()
    scrape(world, "default")
    world.wait(1)
    world.gives('count({__name__=~".*:DCGM.*|.*:gpu_watchdog_card.*"})')
    return world


def test_each_gives_what_its_name_says(tmp_path: Path) -> None:
    """Every world, in one run of promtool."""
    beside = (what_dcgm_exporter_says("default"), what_dcgm_exporter_says("honored"), without_dcgm(), dcgm_alone())
    real = (what_a_real_one_said("default"), what_a_real_one_said("honored"))
    others = (after_a_kill(), unknown_parts(), what_idle_cards_cost(), dcgm_without_the_temperature())
    hold((*others, *beside, *real), tmp_path, RECORDING)


def test_every_record_is_asked_for() -> None:
    """No recording rule without a test of what it gives."""
    text = Path(__file__).read_text(encoding="utf-8")
    # Those of dcgm-exporter are asked for by the names of its fields.
    names = [re.sub(r"^\w+:DCGM_FI_DEV_(\w+):max$", r"\1", each["record"]) for each in rules(RECORDING)]
    assert [name for name in names if name not in text] == []
