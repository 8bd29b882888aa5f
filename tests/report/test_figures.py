"""What an account uses at most, where the driver does not say what it uses: true whatever the others use."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.build import Story, policy, trainer, trainer_node
from tests.worlds import Gi, container, gpu, process, rule, snapshot, step, use
from watchdog.core.assessment import Verdict
from watchdog.core.model import Claim, ClaimedDevice, Pod, Snapshot, Use
from watchdog.report.figures import Bounds, pinned_by_claim

TWO: tuple[Pod, ...] = (trainer(uid="u1"), trainer(uid="u2", name="other", containers=(container("main", of="u2"),)))
PROCESSES = (process(101, "u1/main"), process(102, "u1/main"), process(201, "u2/main"), process(9, None))
CARDS = (gpu(0, used=11 * Gi, reserved=Gi), gpu(1, used=21 * Gi, reserved=Gi))
ON_BOTH = (use(101, None), use(101, 2 * Gi, 1))


def seen(first: int | None, second: int | None, host: int | None, counter: int | None, **more: object) -> Snapshot:
    """Pods u1 and u2 and the host on a card of 80Gi, 1Gi of it reserved; amounts in Gi, None: unknown."""
    amounts = {101: first, 201: second, 9: host}
    uses = [use(pid, None if amount is None else amount * Gi) for pid, amount in amounts.items()]
    return on_cards(uses, (gpu(0, used=None if counter is None else counter * Gi, reserved=Gi),), **more)


def on_cards(uses: list[Use], cards: tuple[object, ...], **more: object) -> Snapshot:
    """These uses on these cards."""
    return replace(snapshot(uses, PROCESSES, cards), **more)  # type: ignore[arg-type]


STRAY = replace(
    snapshot([use(101, None), use(301, 10 * Gi)], [PROCESSES[0], process(301, "gone/main")]),
    gpus=(gpu(0, used=30 * Gi, reserved=Gi),),
)


@pytest.mark.parametrize(
    ("node", "bounds"),
    [
        pytest.param(seen(None, 5, 4, 30), {"u1": 20, "u2": None},
                     id="what is reserved and what others are known to use is not its"),
        pytest.param(seen(None, None, 4, 30), {"u1": 25, "u2": 25},
                     id="two that are silent may each use all that is left"),
        pytest.param(seen(7, None, None, 30), {"u1": None, "u2": 22}, id="a use that is known is not bounded"),
        pytest.param(seen(None, 5, 4, None), {"u1": None, "u2": None}, id="without a counter there is no bound"),
        pytest.param(seen(None, 5, 4, 30, blind=True), {"u1": None, "u2": None},
                     id="the counter of before NVML failed is no bound"),
        pytest.param(on_cards([use(101, 7 * Gi), use(102, None)], (gpu(0, used=3 * Gi, reserved=Gi),)), {"u1": 7},
                     id="a counter that is behind never takes what is known"),
        pytest.param(STRAY, {"u1": 29}, id="a process whose pod is unknown may be of this one"),
        pytest.param(on_cards([*ON_BOTH], CARDS), {"u1": 12},
                     id="a silent process on one card says nothing of the other"),
        pytest.param(on_cards([*ON_BOTH], CARDS, unseen=frozenset({"GPU-1"})), {"u1": 30},
                     id="a card that hides its processes counts too"),
        pytest.param(on_cards([], CARDS, unseen=frozenset({"GPU-0"})), {"u1": 10},
                     id="a pod that is seen nowhere may be on a card that hides its processes, as on WSL"),
        pytest.param(on_cards([use(101, None)], ()), {"u1": None}, id="cards that could not be listed bound nothing"),
    ],
)  # fmt: skip
def test_what_a_pod_uses_at_most(node: Snapshot, bounds: dict[str, int | None]) -> None:
    """The bound of each pod that uses or declares something, from the counters and what is known of the others."""
    report = Story(pods=TWO).see(node)
    found = {each.account.uid: Bounds.of(report).used_at_most(each) for each in report.assessments}
    assert found == {uid: None if bound is None else bound * Gi for uid, bound in bounds.items()}


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20), st.sets(st.sampled_from(["u1", "u2", "host"])))
def test_the_bound_holds(first: int, second: int, host: int, silent: set[str]) -> None:
    """Law: whatever each really uses and whatever of that the driver reports, nothing uses more than the bound."""
    real = {"u1": first, "u2": second, "host": host}
    shown = {name: None if name in silent else amount for name, amount in real.items()}
    report = Story(pods=TWO).see(seen(shown["u1"], shown["u2"], shown["host"], first + second + host + 1))
    for each in report.assessments:
        bound = Bounds.of(report).used_at_most(each)
        assert (bound is None) is (each.account.uid not in silent)
        assert bound is None or real[each.account.uid] * Gi <= bound


def test_no_action_follows_from_a_bound() -> None:
    """It may be the use of another: the verdict stays unknown and nothing is planned, however large it is."""
    node, cards = trainer_node(None), (gpu(0, used=79 * Gi), gpu(1))
    silent = replace(node, uses=tuple(replace(each, used=None) for each in node.uses), gpus=cards)
    report = Story(under=policy(rule(step("100%"), name="r"))).see(silent)
    (found,) = report.assessments
    assert (found.verdict, report.plan.entries) == (Verdict.UNKNOWN, ())
    assert Bounds.of(report).used_at_most(found) == 79 * Gi


CLAIMED = {
    "one": Claim(name="one", devices=(ClaimedDevice(request="gpu", name="0", uuid="GPU-0", pinned_limit=3 * Gi),)),
    "two": Claim(
        name="two",
        devices=(
            ClaimedDevice(request="gpu", name="0", uuid="GPU-0", pinned_limit=2 * Gi),
            ClaimedDevice(request="mig", name="1", uuid="MIG-1", parent="GPU-1", pinned_limit=5 * Gi),
            ClaimedDevice(request="gpu", name="2", uuid="GPU-2"),
        ),
    ),
}


@pytest.mark.parametrize(
    ("on", "most"), [(None, 5), ("GPU-0", 3), ("MIG-1", 5), ("GPU-1", 5), ("GPU-2", None), ("GPU-3", None)]
)
def test_the_limits_of_clients_that_claims_set(on: str | None, most: int | None) -> None:
    """The largest one on the account's own GPU, or on any if it has all of them."""
    (account,) = Story(pods=(trainer(claims=CLAIMED),)).see(trainer_node(4.0)).assessments
    account = replace(account, account=account.account._replace(gpu=on))
    assert pinned_by_claim(account) == (None if most is None else most * Gi)
