"""What an owner can copy into a manifest: YAML that, read back as the daemon reads a pod, is enough."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
import yaml

from tests.report.build import trainer
from tests.report.notes import BURST, FRACTION, GPUMEM, OF_CONTAINER, OF_LABEL, PERCENT, SHARE, declaring
from tests.report.test_advice import BLOCKS, TABLE, UNDECLARED, under
from tests.worlds import VERIFF, Gi, Mi, assessed, claimant, container, gpu, process, snapshot, use
from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.model import ContainerKind, Node, Owner, Pod
from watchdog.core.policy import NO_ALLOWANCE, Allowance, Declaration, Policy
from watchdog.report.advice import advice, to_write
from watchdog.report.manifest import Manifest, manifest

NODE: Final = Node(name="n1")
CARDS: Final = (gpu(0), gpu(1))
# As KAI's scheme has them: for the first container, or the one that another annotation names.
KAI: Final = Declaration(
    annotation="gpu-memory", unit=Mi, per="gpu", container_annotation="gpu-fraction-container-name"
)
KAI_PART: Final = replace(FRACTION, container_annotation="gpu-fraction-container-name")


def account(holder: Pod, policy: Policy, used: int, by: str = "main", node: Node = NODE) -> Assessment:
    """The account of that pod, of which a container uses so much on one of two cards of 80Gi."""
    uid = holder.uid
    seen = snapshot([use(5, used)], [process(5, f"{uid}/{by}")], CARDS)
    return next(each for each in assessed(seen, (holder,), policy, node) if each.used_at_least)


def copied(found: Assessment, policy: Policy, node: Node = NODE) -> Manifest:
    """What its owner can copy."""
    written = to_write(found, policy, node, CARDS)
    assert written is not None
    return manifest(written, found)


def applied(holder: Pod, text: str) -> Pod:
    """The pod with this part of a manifest merged into its own, as its owner would."""
    part: Mapping[str, Any] = yaml.safe_load(text)
    metadata = part.get("metadata", {})
    assert all(type(value) is str for values in metadata.values() for value in values.values())
    made = replace(
        holder,
        annotations={**holder.annotations, **metadata.get("annotations", {})},
        labels={**holder.labels, **metadata.get("labels", {})},
    )
    spec = part.get("spec", {})
    for kind in ("containers", "initContainers"):
        for entry in spec.get(kind, ()):
            (own,) = (each for each in made.containers if each.name == entry["name"])
            assert (own.kind is ContainerKind.MAIN) is (kind == "containers")
            limits = {key: str(value) for key, value in entry["resources"]["limits"].items()}
            changed = replace(own, resources={**own.resources, **limits})
            made = replace(made, containers=tuple(changed if each is own else each for each in made.containers))
    return made


@pytest.mark.parametrize("allowance", [NO_ALLOWANCE, Allowance()])
@pytest.mark.parametrize("used", [30 * Gi, 47 * Gi + 12345])
@pytest.mark.parametrize(("declaration", "number"), [row[:2] for row in TABLE])
def test_the_line_is_enough(declaration: Declaration, number: str, used: int, allowance: Allowance) -> None:
    """With the line in the pod's manifest, and nothing else changed, the same use is within; it is what advice says."""
    policy, holder = under(declaration, allowance), declaring(declaration, number)
    before = account(holder, policy, used)
    assert before.verdict is Verdict.OVER
    text = copied(before, policy).yaml
    after = account(applied(holder, text), policy, used)
    assert (after.verdict, after.misdeclarations) == (Verdict.WITHIN, ()), text
    number = text.rpartition(": ")[2].strip('"')
    assert f" to at least {number}" in advice(before, policy, gpus=CARDS).replace('"', "")


@pytest.mark.parametrize("default", [None, 0, Gi])
@pytest.mark.parametrize("used", [600 * Mi, 12 * Gi, 47 * Gi + 12345])
@pytest.mark.parametrize(
    "declaration",
    [VERIFF, GPUMEM, BLOCKS, OF_CONTAINER, OF_LABEL, BURST, PERCENT, FRACTION, KAI, KAI_PART],
    ids=lambda each: each.key,
)
@pytest.mark.parametrize("by", ["main", "side"])
@pytest.mark.parametrize("accounts", ["pod", "container"])
def test_a_pod_that_declares_nothing_gets_a_line_too(
    declaration: Declaration, used: int, default: int | None, by: str, accounts: str
) -> None:
    """With the line the pod declares enough for what it uses, whichever container uses it."""
    policy = under(declaration, Allowance(), default=default, account=accounts)
    before = account(UNDECLARED, policy, used, by)
    assert before.declared_by in (None, "default")
    if declaration.kind != "resource" and accounts == "container" and not declaration.container_annotation:
        return  # it is of the whole pod, so no single container can have it
    text = copied(before, policy).yaml
    after = account(applied(UNDECLARED, text), policy, used, by)
    assert (after.verdict, after.declared_by) == (Verdict.WITHIN, declaration.key.replace("{container}", by)), text
    assert after.misdeclarations == (), text


def test_the_second_container_is_named_beside_the_amount() -> None:
    """Where an annotation is for one container, the line names the one that uses the memory, unless it is the first."""
    policy = under(KAI, Allowance(), account="container")
    named = yaml.safe_load(copied(account(UNDECLARED, policy, Gi, "side"), policy).yaml)["metadata"]["annotations"]
    assert named == {"gpu-memory": "1024", "gpu-fraction-container-name": "side"}
    first = yaml.safe_load(copied(account(UNDECLARED, policy, Gi), policy).yaml)["metadata"]["annotations"]
    assert first == {"gpu-memory": "1024"}


def test_a_key_that_the_node_has_comes_first() -> None:
    """A resource that the node does not list would leave the pod pending."""
    policy = replace(under(VERIFF), declarations=(VERIFF, BLOCKS))
    listing = Node(name="n1", capacity={"cpu": "8", BLOCKS.key: "1000"})
    found = account(UNDECLARED, policy, 4 * Gi)
    assert VERIFF.key in copied(found, policy).yaml
    assert BLOCKS.key in copied(found, policy, listing).yaml
    default = replace(under(VERIFF, default=Gi), declarations=(VERIFF, BLOCKS))
    found = account(UNDECLARED, default, 4 * Gi)
    assert VERIFF.key in advice(found, default)
    assert BLOCKS.key in advice(found, default, node=listing)


@pytest.mark.parametrize(
    ("owner", "where"),
    [(Owner(kind="Job", name="train"), "in the pod template of Job train"), (None, "in the pod")],
)
def test_where_it_goes(owner: Owner | None, where: str) -> None:
    """In the template that makes the pod again, if it has one; an init container is where those are."""
    holder = trainer(owner=owner, containers=(container("on", "1Gi", of="u1", kind=ContainerKind.SIDECAR),))
    found = copied(account(holder, under(VERIFF), 4 * Gi, "on"), under(VERIFF))
    assert (found.where, found.yaml) == (
        where,
        'spec:\n  initContainers:\n  - name: "on"\n    resources:\n      limits:\n        veriff.com/gpu-memory: 4Gi',
    )


@pytest.mark.parametrize("name", ["null", "1e3", "123", "0x1f", "true", "a", "n", "e5", "off", "x-1"])
def test_names_stay_names(name: str) -> None:
    """A container may be called what YAML takes for a number or a truth value."""
    holder = trainer(containers=(container(name, "1Gi", of="u1"),))
    text = copied(account(holder, under(VERIFF), 4 * Gi, name), under(VERIFF)).yaml
    assert yaml.safe_load(text)["spec"]["containers"][0]["name"] == name


@pytest.mark.parametrize(("request_", "path"), [("gpu", ("exactly",)), ("gpu/small", ("firstAvailable", 0))])
def test_a_claim_is_made_again_with_more(request_: str, path: tuple[str | int, ...]) -> None:
    """The amount stands where the resource API has it, of a template one level deeper."""
    holder = claimant("a")
    claims = {
        key: replace(claim, devices=tuple(replace(each, request=request_) for each in claim.devices))
        for key, claim in holder.claims.items()
    }
    policy = replace(under(VERIFF), schemes=("dra",))
    found = account(replace(holder, claims=claims), policy, 6 * Gi)
    assert found.verdict is Verdict.OVER
    made = copied(found, policy)
    (entry,) = yaml.safe_load(made.yaml)["spec"]["devices"]["requests"]
    given: Any = entry
    for step in path:
        given = given[step]
    assert (entry["name"], given["capacity"]["requests"]) == ("gpu", {"memory": "6Gi"})
    assert made.where == "in a new ResourceClaim like team, for which the pod is made again"


@pytest.mark.parametrize(
    ("declaration", "holder", "used"),
    [
        (SHARE, UNDECLARED, Gi),
        (VERIFF, declaring(VERIFF, "8Gi"), Gi),
        (VERIFF, declaring(VERIFF, "8Gi"), 0),
        (PERCENT, declaring(PERCENT, "50"), 90 * Gi),
        (Declaration(resource="nvidia.com/mig-*", unit="mig"), UNDECLARED, Gi),
    ],
    ids=["a count of shares", "within", "unused", "more than a card", "whole instances"],
)
def test_where_no_line_is_enough_there_is_none(declaration: Declaration, holder: Pod, used: int) -> None:
    """Rather no line than one that does not do what it promises."""
    policy = under(declaration)
    seen = snapshot([use(5, used)], [process(5, "u1/main")], CARDS)
    for found in assessed(seen, (holder,), policy, NODE):
        assert to_write(found, policy, NODE, CARDS) is None
