"""The status page with hostile names: whatever tenants call things is shown as text."""

import re
from dataclasses import replace

import pytest
from msgspec import structs

from tests.export.page_reader import WELL, Read, action, read
from tests.report.build import KILL, WARN, Story, policy
from tests.worlds import Gi, container, gpu, pod, process, rule, snapshot, step, use
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Owner, Pod
from watchdog.core.plan import CycleReport
from watchdog.export.endpoints import Endpoints
from watchdog.export.metrics import Metrics
from watchdog.export.web import respond

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
    plain = read(
        hostile("tame"), recent=(action(),), remedies={"tame": "tame"}, health=structs.replace(WELL, api="tame")
    )
    kinds = {element for element, _ in plain.elements}
    for element, attributes in page.elements:
        assert element in kinds
        assert not {"style", "src", "srcdoc"} & attributes.keys()
        assert attributes.get("action", "./#pods") == "./#pods"
        assert not [key for key in attributes if key.startswith("on")]
        href = attributes.get("href", "#")
        assert re.match(r"[#?]|\./$|(?:pods|gpus|api)/|(?:metrics|readyz|healthz)$|data:image/svg\+xml,", href), href
    text, tame = ("".join("".join(parts) for parts in each.sections.values()) for each in (page, plain))
    assert text.replace("\n", "").isprintable()
    assert text.count("\n") == tame.count("\n"), "a line ends where the template ends one"
    assert len(max(text.split(" "), key=len)) <= 2010
    text.encode("utf-8")


@pytest.mark.parametrize(
    ("query", "text", "pods"),
    [
        ("pod=" + "x" * 60_000, "x" * 400, 0),
        ("pod=%22%3E%3Cscript%3Ealert(1)%3C/script%3E", '"><script>alert(1)</script>', 0),
        ("pod=%22+autofocus+onfocus=alert(1)+x=%22", '" autofocus onfocus=alert(1) x="', 0),
        ("pod=%", "%", 0),
        ("pod=%zz%4", "%zz%4", 0),
        ("pod=%ff%fe", "\ufffd\ufffd", 0),
        ("pod=%ed%b2%80", "\ufffd\ufffd\ufffd", 0),
        ("pod=%00%1b%5b2J", "\\x00\\x1b[2J", 0),
        ("pod=%e2%80%ae", "\\u202e", 0),
        ("pod=a&pod=u11", "u11", 2),
        ("pod=u11;pod=u12", "u11;pod=u12", 0),
        ("pod=++POD-U11++", "POD-U11", 2),
        ("pod&pod=", "", 12),
        ("&&=&==&pod[]=u11&POD=u11", "", 12),
        ("x&" * 30 + "pod=u11", "", 12),
        ("pod=job/train-3", "job/train-3", 1),
        ("pod=ns/", "ns/", 12),
        ("still&all&pod=Main", "Main", 12),
    ],
)
def test_any_filter_is_text(query: str, text: str, pods: int) -> None:
    """Whatever is in the address: the page is whole, shows the filter as text, and says how many pods match."""
    many = tuple(
        pod(f"u{n}", container("main", "1Gi", of=f"u{n}"), owner=Owner(kind="Job", name=f"train-{n}"))
        for n in (*range(10), 11, 111)
    )
    endpoints = Endpoints(Metrics(), 1.0)
    processes = [process(100 + n, f"u{n}/main") for n in (*range(10), 11, 111)]
    endpoints.publish(Story(pods=many).see(snapshot([use(each.pid, Gi // 2) for each in processes], processes)))
    head, body = respond(endpoints, f"GET /?{query} HTTP/1.1\r\nHost: n\r\n\r\n".encode())
    assert head.startswith(b"HTTP/1.1 200 ")
    page = Read(body.decode())
    (field,) = (values for tag, values in page.elements if tag == "input" and values.get("type") == "search")
    assert (field["value"], field.keys() & {"autofocus", "onfocus"}) == (text, set())
    assert "script" not in {tag for tag, _ in page.elements}
    reported = page.text("pods")
    assert sum(row[0] != "Pod" for row in page.rows["pods"]) == pods
    if text and pods:
        assert f"{pods} of 12 match" in reported
    elif text:
        assert "No pod matches" in reported
    assert (b"Refresh: " in head) is ("still" not in query)
