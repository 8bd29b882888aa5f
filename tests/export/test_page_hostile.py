"""The status page: what nobody can put into it, whatever they call their things."""

from dataclasses import replace

import pytest
from msgspec import structs

from tests.export.build import KILL, WARN, Story, policy
from tests.export.page_reader import WELL, action, read
from tests.worlds import Gi, container, gpu, process, rule, snapshot, step, use
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Pod
from watchdog.core.plan import CycleReport

HOSTILE = (
    '"><script>alert(1)</script><img src=x onerror=alert(1)>',
    "a\u202etxt.exe\u2066\u200f",
    "line\nbreak\r\x00\x1b[2J\x9b",
    "x" * 5000,
    "lone \udc80\ud800 surrogates",
    "&lt;b&gt; &amp; ' \" `",
    "javascript:alert(1)//</style></title>",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
)


def hostile(name: str) -> CycleReport:
    """A cycle in which everything that has a name has this one."""
    evil = Pod(
        namespace=name, name=name, uid=name, containers=(replace(container("main", "1Gi", of="evil"), name=name),),
        annotations={name: name}, labels={name: name},
    )  # fmt: skip
    under = policy(
        rule(WARN, KILL, step("150%", grace_s=0.0), name=name, account="container"), contact=name, source=name
    )
    place = replace(process(5, "evil/main").place, pod=name)
    gone = process(6, None, name=name)
    gaps = (Gap(reason=GapReason.CGROUP, what=name, problem=Problem(f"{name}; {name}")),)
    seen = snapshot(
        [replace(use(5, 3 * Gi), gpu=name), replace(use(6, Gi), gpu=name)],
        [process(5, None, name=name, place=place), gone],
        [replace(gpu(), uuid=name, name=name, profile=name, gi=1)],
        3,
        gaps=gaps,
    )
    report = Story(under=under, pods=(evil,)).see(seen, suspended=(name,), enforcing=False)
    return replace(report, node=replace(report.node, name=name))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(name: str) -> None:
    """Whatever a tenant calls things: no element, attribute or character of it gets into the page as anything else."""
    done = action(namespace=name, pod=name, container=name, rule=name, why=name, outcome=name)
    health = structs.replace(WELL, unready=(name,), journal=name, policy_error=name, api=name, version=name)
    page = read(hostile(name), recent=(done,), health=health, remedies={name: name})
    plain = read(hostile("tame"), recent=(action(),), remedies={"tame": "tame"})
    kinds = {element for element, _ in plain.elements}
    for element, attributes in page.elements:
        assert element in kinds
        assert not {"style", "src", "action", "srcdoc"} & attributes.keys()
        assert not [key for key in attributes if key.startswith("on")]
        href = attributes.get("href", "#")
        assert href.startswith(("#", "/", "data:image/svg+xml,"))
    text, tame = ("".join("".join(parts) for parts in each.sections.values()) for each in (page, plain))
    assert text.replace("\n", "").isprintable()
    assert text.count("\n") == tame.count("\n"), "a line ends where the template ends one"
    assert len(max(text.split(" "), key=len)) <= 2010
    text.encode("utf-8")
