"""The pages of a pod and of a GPU: the hour, where the limit comes from, the ladder, what was done, and what helps."""

import base64
import hashlib
import re
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import urljoin

import pytest
import yaml

from tests.export.lived import Watched
from tests.export.page_reader import Read, action
from tests.export.test_page_hostile import HOSTILE
from tests.report.build import AT_ONCE, KILL, WARN, Clock, Story, activity, climbing, policy, trainer, trainer_node
from tests.report.notes import FRACTION, OF_LABEL
from tests.worlds import MEMORY, VERIFF, Gi, at, claimant, container, gpu, pod, process, rule, snapshot, use
from watchdog.core.assessment import AccountKey
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Owner, Pod
from watchdog.core.policy import Do, Policy
from watchdog.core.utilization import CardUtilization
from watchdog.export.documentation import folder_of
from watchdog.export.endpoints import Endpoints
from watchdog.export.metrics import Metrics
from watchdog.export.plot import FULL
from watchdog.export.web import respond
from watchdog.report.status import Moment

TRAINER: Final = "/pods/a/trainer"
U1: Final = AccountKey(uid="u1")


def watched(until: float = 9.0, used: float = 12.4, every: float = 1.0, **story: Any) -> Watched:
    """The trainer's node after so many seconds in which it used 12.4Gi."""
    made = Watched(story=Story(**story))
    made.live(lambda second: trainer_node(used, second), until, every=every)
    return made


def page(made: Watched, path: str = TRAINER) -> Read:
    """A page, read back."""
    head, body = made.get(path)
    assert head.startswith("HTTP/1.1 200 "), head + body
    return Read(body)


def test_a_pod_that_is_over_its_limit() -> None:
    """Its state first, then use and limit, where that comes from, where each step stands, and the line to copy."""
    shown = page(watched())
    assert "a/trainer: over, kill in 1s Of Job train. On GPU 0, GPU 1." in shown.text()
    text = shown.text("account-0")
    for part in (
        "Pod a/trainer uses 12.4Gi of GPU memory. That is 2.2Gi over its limit, exceeded since 08:00:00 UTC.",
        (
            "Where its limit comes from Its limit is 10.2Gi: 8Gi declared by veriff.com/gpu-memory, plus 2.2Gi driver "
            "allowance (2% of 8Gi, plus 512Mi for each of 4 CUDA contexts). "
            'resources.limits["veriff.com/gpu-memory"] of container main: 8Gi'
        ),
        'The ladder Its rule is "notebooks". Warn above 10.2Gi (100% of its limit), for 5s (so far 5s): above',
        (
            "Kill all processes of container main above 11.2Gi (110% of its limit), for 10s (so far 9s): kill in 1s "
            "Kill all processes of container main (SIGTERM, then SIGKILL after 10s). Rule"
        ),
        "Kill all processes of container main above 15.2Gi (150% of its limit), immediately: not above",
        "What its owner can write To stay within its limit, use less GPU memory or declare more: set",
        (
            "Enough for what it uses now, in the pod template of Job train: spec: containers: - name: main resources: "
            "limits: veriff.com/gpu-memory: 11Gi"
        ),
    ):
        assert part in text, part


def test_the_line_to_copy_is_yaml() -> None:
    """What a browser copies from the page is the part of the manifest, with its blanks and line ends."""
    _, body = watched().get(TRAINER)
    (text,) = re.findall(r"<pre><code>(spec:.*?)</code></pre>", body, re.DOTALL)
    assert yaml.safe_load(text) == {
        "spec": {"containers": [{"name": "main", "resources": {"limits": {MEMORY: "11Gi"}}}]}
    }


@pytest.mark.parametrize(
    ("holder", "under", "wanted"),
    [
        (trainer(containers=(container("main", of="u1"),)), policy(), "veriff.com/gpu-memory: 12.5Gi"),
        (
            trainer(containers=(container("main", of="u1"),)),
            policy(declarations=(OF_LABEL,)),
            'sharedgpu/gpu_mem: "13Gi"',
        ),
        (trainer(containers=(container("main", of="u1"),)), policy(declarations=(FRACTION,)), 'gpu-fraction: "0.15"'),
        (trainer(), policy(protect=replace(policy().protect, namespaces=("a",))), "no action is taken on it"),
        (trainer(containers=(container("main", "16Gi", of="u1"),)), policy(), "what it declares is enough"),
    ],
    ids=["undeclared", "by a label", "by a fraction", "protected", "within"],
)
def test_what_its_owner_can_write(holder: Pod, under: Policy, wanted: str) -> None:
    """A suggestion for what declares nothing; for what needs none, that nothing has to be changed."""
    text = page(watched(pods=(holder,), under=under)).text("account-0")
    assert wanted.replace("12.5Gi", "13Gi") in text.partition("What its owner can write")[2], text


def test_where_a_declaration_is_wrong_or_missing() -> None:
    """The default that applies, what is wrong with what is written, and that steps apply to no pod without a limit."""
    wrong = trainer(containers=(container("main", of="u1"),), labels={"sharedgpu/gpu_mem": "900Ti"})
    under = policy(replace(rule(WARN, KILL, name="r"), default=4 * Gi), declarations=(OF_LABEL,))
    text = page(watched(pods=(wrong,), under=under)).text("account-0")
    assert "It declares no GPU memory, so the default of its rule applies: its limit is 6.1Gi: 4Gi from that" in text
    assert "The declaration sharedgpu/gpu_mem of the pod is ignored: " in text
    bare = page(watched(pods=(wrong,), under=policy(declarations=(OF_LABEL,)))).text("account-0")
    assert "It has no limit." not in bare
    assert "Warn above 100%, for 5s: does not apply" in bare


def test_what_claims_gave_is_shown_for_each_gpu() -> None:
    """A claim has no text in the pod that could be shown."""
    made = Watched(story=Story(under=replace(policy(), schemes=("dra",)), pods=(claimant("a"),)))
    made.live(lambda second: snapshot([use(5, Gi)], [process(5, "a/main")], second=second), 2.0, every=1.0)
    text = page(made, "/pods/ns/pod-a").text("account-0")
    assert "4Gi declared by claim team/gpu" in text
    assert "claims on GPU 0: 4Gi" in text


def test_between_two_cycles_the_last_amounts_hold() -> None:
    """With a long interval the time since the last cycle is no gap, unless no cycle completes."""
    made = watched(240, used=4.0, every=60, under=policy(interval_s=60.0))
    made.clock.second += 50
    assert "Hatched" not in page(made).text("account-0")
    made.clock.second += 200
    shown = page(made)
    assert "Hung: the last cycle completed" in shown.text()
    assert "Hatched" in shown.text("account-0")


def test_what_withholds_an_action() -> None:
    """Which step, by what, why, and where to read what releases it."""
    shown = page(watched(31, journal_writable=False))
    assert "kill withheld: journal" in shown.text()
    assert shown.text("withheld") == (
        "What is withheld now Kill withheld: journal: the watchdog can't write its journal, and takes no action "
        "without a record."
    )
    assert "docs/brakes.md#the-brakes-in-order" in shown.text("documents")
    assert page(watched()).text("withheld") == "What is withheld now Nothing."


def test_where_nothing_is_enforced_everything_is_withheld() -> None:
    """While the node is in a state without actions, the page does not say that nothing is withheld."""
    hung, stopped = watched(), watched()
    hung.clock.second += 200
    stopped.endpoints.publish(replace(climbing(10), enforcing=False, suspended=("stop_file",)))
    for made in (hung, stopped):
        shown = page(made)
        assert shown.text("withheld") == "What is withheld now All kills and evictions on this node: see above."
        assert ("b", {"class": "bad"}) not in shown.elements, "no step looks as if it came"


def level(shown: Read) -> str:
    """The colour of the headline."""
    (state,) = (values["class"] for tag, values in shown.elements if values.get("class", "").startswith("state "))
    return state.removeprefix("state ")


def test_a_long_name_is_whole_on_its_own_page() -> None:
    """In the headline both parts lack their middle; below it is all of the name, for who wants to copy it."""
    holder = trainer(namespace="n" * 63, name=f"{'p' * 120}-{'q' * 120}")
    made = watched(pods=(holder,))
    shown = page(made, f"/pods/{holder.title}")
    short = f"{'n' * 19}..{'n' * 19}/{'p' * 19}..{'q' * 19}"
    assert f"{short}: over, kill in 1s" in shown.text()
    (below,) = (text for text, around, _ in shown.texts if text == holder.title and "p" in around)
    assert below == holder.title
    assert "Pod a/trainer." not in page(watched()).text()


def test_how_to_stop_enforcement_is_as_on_the_status_page() -> None:
    """One wording for one thing; once stopped, how to resume."""
    made = watched()
    assert page(made).text("stop") == page(made, "/").text("stop")
    made.endpoints.publish(replace(climbing(10), enforcing=False, suspended=("stop_file",)))
    made.clock.second = 11
    shown = page(made)
    assert "Enforcement is stopped here" in shown.text("stop")
    assert "Enforcement is suspended" in shown.text()
    assert "docs/troubleshooting.md#enforcement-is-suspended" in shown.text("documents")
    assert "docs/runbooks.md#gpuwatchdognotenforcing" in shown.text("documents")


def killed() -> Watched:
    """The trainer, warned and killed, and then gone."""
    made = watched(600, every=15)
    made.mark(450, Do.WARN, U1, ("GPU-0", "GPU-1"))
    made.act(action(do="warn", at=Moment(at(450).wall_s), why="It is warned.", outcome=None))
    made.mark(610, Do.KILL, U1, ("GPU-0", "GPU-1"))
    made.act(action(at=Moment(at(610).wall_s), why="It used too much.", outcome="Its memory is free."))
    made.story = replace(made.story, pods=())
    made.live(lambda second: trainer_node(3.0, second, uses=(use(9, Gi),)), 900, 615, 15)
    return made


def test_a_pod_that_is_gone() -> None:
    """Killed pods are what people ask about: the hour with its marks, when it was last seen, and what was done."""
    shown = page(killed())
    assert "a/trainer: uses and declares no GPU memory on this node now; was killed 4m 50s ago" in shown.text()
    assert "It was last seen at 08:10:00 UTC." in shown.text("account-0")
    assert "W warning; K kill." in shown.text("account-0")
    assert "Hatched" not in shown.text("account-0"), "what is gone is not unknown"
    assert re.match(
        r"What was done container main was killed 08:10:10 UTC, 4m 50s ago It used too much\. Its memory is free\. "
        r"container main was warned 08:07:30 UTC, 7m 30s ago It is warned\. Older actions",
        shown.text("recent"),
    )
    assert "docs/runbooks.md#gpumemorypodkilled" in shown.text("documents")
    (figure,) = (values for tag, values in shown.elements if values.get("class") == "plot")
    assert figure["role"] == "img"
    assert level(shown) == "watch", "not green right after a kill"
    made = killed()
    made.clock.second = 610 + 901
    made.live(lambda second: trainer_node(3.0, second, uses=()), 1511, 1511)
    assert level(page(made)) == "good"


def test_a_pod_that_is_gone_and_has_only_actions() -> None:
    """After a restart of the watchdog the journal may have more than the hour."""
    made = Watched()
    made.live(lambda second: trainer_node(3.0, second, uses=()), 1.0)
    made.story = replace(made.story, pods=())
    made.act(action(namespace="b", pod="web-0"))
    assert "b/web-0: uses and declares no GPU memory on this node now; was killed" in page(made, "/pods/b/web-0").text()


def test_a_pod_that_came_back_under_the_same_name() -> None:
    """The hour of its predecessors is in the same plot, the oldest first; the new one is marked."""
    made = killed()
    made.story = replace(made.story, pods=(trainer(uid="u2", containers=(container("main", "8Gi", of="u2"),)),))
    again = snapshot([use(5, 6 * Gi)], [process(5, "u2/main")])
    made.live(lambda second: replace(again, at=at(second)), 1500, 915, 15)
    shown = page(made)
    assert shown.ids.count("account-0") == 1
    assert "account-1" not in shown.ids
    assert "a/trainer: within; the earlier pod of this name was killed 14m 50s ago" in shown.text()
    assert "Dotted line: a new pod of this name, 08:15:" in shown.text("account-0")
    rows = re.findall(r"\d\d:\d\d (?:[\d.]+Gi|0) (?:[\d.]+Gi|0) (?:[\d.]+Gi|0)", shown.text("account-0"))
    assert rows[0] == "07:55 12.4Gi 12.4Gi 12.4Gi"
    assert rows[-1].endswith("6Gi 6Gi 6Gi")


SUCCESSOR: Final = trainer(uid="u2", containers=(container("main", "8Gi", of="u2"),))


def test_two_pods_of_one_name_at_once() -> None:
    """Deleted by force, its processes still hold memory: each has its own hour, and its heading says which it is."""
    made = Watched(story=Story(pods=(trainer(uid="u0", containers=(container("main", "8Gi", of="u0"),)),)))
    made.live(lambda second: snapshot([use(100, 7 * Gi)], [process(100, "u0/main")], second=second), 60)
    made.story = replace(made.story, pods=(trainer(),))
    first = (use(101, 4 * Gi), process(101, "u1/main"))
    made.live(lambda second: snapshot([first[0]], [first[1]], second=second), 135, 75)
    made.story = replace(made.story, pods=(trainer(left_since=at(140)), SUCCESSOR))
    made.mark(136, Do.KILL, U1)
    made.act(action(at=Moment(at(136).wall_s)))
    uses, processes = (first[0], use(102, 6 * Gi)), (first[1], process(102, "u2/main"))
    made.live(lambda second: snapshot(uses, processes, second=second), 600, 150)
    shown = page(made)
    texts = {shown.text(f"account-{number}") for number in (0, 1)}
    (later,) = (text for text in texts if text.startswith("Use and limit, pod UID u2 "))
    (earlier,) = (text for text in texts if text.startswith("Use and limit, an earlier pod of this name, UID u1 "))
    assert "UTC: 6Gi used, at the end 6Gi, of" in later
    assert "Dotted line" not in later
    assert "UTC: 4Gi to 7Gi used, at the end 4Gi, of" in earlier
    assert "Dotted line: a new pod of this name, 08:01:15 UTC." in earlier
    assert "1 kill" in earlier
    assert "1 kill" not in later
    assert "account-2" not in shown.ids
    assert shown.text("recent").startswith("What was done the earlier pod of this name, container main was killed")


def test_a_successor_that_has_gone_first_is_no_predecessor() -> None:
    """The earlier pod's processes outlive the later pod: each has its own hour."""
    made = Watched()
    first = (use(101, 4 * Gi), process(101, "u1/main"))
    made.live(lambda second: snapshot([first[0]], [first[1]], second=second), 135)
    left = trainer(left_since=at(140))
    made.story = replace(made.story, pods=(left, SUCCESSOR))
    uses, processes = (first[0], use(102, 6 * Gi)), (first[1], process(102, "u2/main"))
    made.live(lambda second: snapshot(uses, processes, second=second), 300, 150)
    made.story = replace(made.story, pods=(left,))
    made.live(lambda second: snapshot([first[0]], [first[1]], second=second), 600, 315)
    shown = page(made)
    own, other = shown.text("account-0"), shown.text("account-1")
    assert own.startswith("Use and limit, an earlier pod of this name, UID u1 ")
    assert "UTC: 4Gi used, at the end 4Gi, of" in own
    assert "Dotted line" not in own
    assert other.startswith("Use and limit, another pod of this name It was last seen at 08:05:00 UTC.")


def test_what_was_done_to_the_predecessor_is_not_the_new_pods() -> None:
    """Killed, and back within the same 15 seconds: the kill is left of the dotted line, and the page says of which."""
    made = watched(120, every=5)
    made.mark(121, Do.KILL, U1, ("GPU-0",))
    made.act(action(at=Moment(at(121).wall_s)))
    made.story = replace(made.story, pods=(SUCCESSOR,))
    made.live(lambda second: snapshot([use(201, 2 * Gi)], [process(201, "u2/main")], second=second), 300, 132, 1)
    shown = page(made)
    assert "Dotted line: a new pod of this name, 08:02:12 UTC." in shown.text("account-0")
    (begin,) = (values for _, values in shown.elements if values.get("class") == "begin")
    (kill,) = (values for _, values in shown.elements if values.get("class") == "act kill")
    assert float(kill["x1"][:-1]) < float(begin["x1"][:-1])
    assert "a/trainer: within; the earlier pod of this name was killed 2m 59s ago" in shown.text()
    assert shown.text("recent").startswith("What was done the earlier pod of this name, container main was killed")
    made.act(action(at=Moment(at(290).wall_s), result=None))
    made.clock.second += 2
    assert "within; the earlier pod of this name: kill is in progress 12s ago" in page(made).text()


def test_a_crash_loop() -> None:
    """A pod for each cycle, each killed: three are named, and of what was forgotten the page gives no exact number."""
    made = Watched(story=Story(under=policy(interval_s=15.0)))
    for number in range(130):
        uid, second = f"u{number}", 15.0 * number
        made.story = replace(made.story, pods=(trainer(uid=uid, containers=(container("main", "8Gi", of=uid),)),))
        main = process(5, f"{uid}/main")
        made.live(partial(snapshot, [use(5, 12 * Gi)], [main], (gpu(0),)), second, second)
        made.mark(second, Do.KILL, AccountKey(uid=uid), ("GPU-0",))
        if number == 40:
            assert " 41 kills." in page(made).text("account-0")
            assert " And 37 more." in page(made).text("account-0")
    text = page(made).text("account-0")
    assert re.search(r" At least 10\d kills\.", text)
    assert text.count("Dotted line:") == 3
    assert re.search(r" And at least 9\d more\.", text)
    made.clock.second += 2
    assert " At least 60 kills." in page(made, "/gpus/0").text("use")


def test_a_static_pod() -> None:
    """The node owns it, and what declares its memory is in a file there."""
    shown = page(watched(pods=(trainer(owner=Owner(kind="Node", name="n1")),)))
    assert "Of Node" not in shown.text()
    assert "Enough for what it uses now, in the static pod's file on node n1:" in shown.text("account-0")


def test_each_account_has_its_own_plot_and_the_rest_is_named() -> None:
    """A pod of twenty containers, each with its own declaration: twelve in full, the most urgent first."""
    containers = tuple(container(f"c{number}", "1Gi", of="u1") for number in range(20))
    under = policy(rule(WARN, KILL, name="r", account="container"))
    seen = snapshot(
        [use(100 + number, number * Gi // 4 + 1) for number in range(20)],
        [process(100 + number, f"u1/c{number}") for number in range(20)],
    )
    made = Watched(story=Story(under=under, pods=(trainer(containers=containers),)))
    made.live(lambda second: replace(seen, at=at(second)), 3.0, every=1.0)
    shown = page(made)
    assert sum(values.get("class") == "plot" for _, values in shown.elements) == 12
    assert shown.text("account-0").startswith("container c19 ")
    assert "8 more parts of this pod are not shown: container c7" in shown.text("after")


@pytest.mark.parametrize(
    ("path", "reported"),
    [
        ("/pods/a/nobody", "nothing was seen of pod a/nobody on node n1: .* `gpu-watchdog history --pod a/nobody` in "),
        ("/gpus/7", "node n1 has no GPU 7; its GPUs: /gpus/0, /gpus/1"),
        ("/gpus/GPU-7", "node n1 has no GPU GPU-7; its GPUs: /gpus/0, /gpus/1"),
        ("/pods/a", "not found; there are /, .*, /pods/NAMESPACE/NAME and /gpus/INDEX"),
        ("/pods/", "not found"),
        ("/pods/a/trainer/", "not found"),
        ("/pods/a/trainer/x", "not found"),
        ("/pods//trainer", "not found"),
        ("/pods/A/trainer", "not found"),
        ("/pods/a.b/trainer", "not found"),
        ("/pods/a/-trainer", "not found"),
        ("/pods/a/tr..ainer", "not found"),
        ("/pods/a/" + "x" * 254, "not found"),
        ("/pods/" + "x" * 64 + "/a", "not found"),
        ("/pods/a/%3Cscript%3E", "not found"),
        ("/pods/a/%", "not found"),
        ("/pods/a/%ff", "not found"),
        ("/pods/a%2Ftrainer", "not found"),
        ("/gpus/", "not found"),
        ("/gpus/0/1/2/3", "not found"),
        ("/gpus/%22onload=", "not found"),
        ("/gpus/" + "9" * 400, "not found"),
        ("/gpu/0", "not found"),
    ],
)
def test_what_is_not_known_is_not_found(path: str, reported: str) -> None:
    """A name that nobody has: what is known, and where to look. What is no name: which pages there are."""
    head, body = watched().get(path)
    assert head.startswith("HTTP/1.1 404 ")
    assert "Content-Type: text/plain" in head
    assert re.match(reported, body), body
    assert "<" not in body


@pytest.mark.parametrize(
    "path", [TRAINER, "/pods/%61/tr%61iner", "/gpus/0", "/gpus/1", "/gpus/GPU-0", "/pods/a/trainer?still=&all&pod=x"]
)
def test_a_name_can_be_written_in_several_ways(path: str) -> None:
    """By index or UUID, and encoded as URLs are; what has no meaning in a query is ignored."""
    head, _ = watched().get(path)
    assert head.startswith("HTTP/1.1 200 ")
    assert ("Refresh: 10" in head) is ("still" not in path)


def test_before_the_first_cycle_there_is_no_page() -> None:
    """A daemon that has just started says so, and the page comes by itself."""
    endpoints = Endpoints(Metrics(), 1.0, Clock())
    head, body = respond(endpoints, b"GET /pods/a/trainer HTTP/1.1\r\nHost: n\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"Refresh: 2" in head
    assert b"no cycle has completed yet" in body


def test_every_link_within_the_daemon_leads_somewhere() -> None:
    """From a pod to its GPUs, from a GPU to its pods, to the status page and to the data."""
    made = killed()
    made.story = replace(made.story, pods=(trainer(),))
    made.live(lambda second: trainer_node(12.4, second), 915, 905)
    for path in (TRAINER, "/gpus/0", "/gpus/1"):
        made.clock.second += 2
        shown = page(made, path)
        links = {urljoin(f"http://n{path}", values["href"]) for tag, values in shown.elements if tag == "a"}
        links = {link.removeprefix("http://n") for link in links}
        assert {"/", f"{path}?still"} < links
        assert links & ({"/gpus/0", "/gpus/1"} if path == TRAINER else {TRAINER})
        for link in links:
            made.clock.second += 2
            assert made.get(link)[0].startswith("HTTP/1.1 200 "), link


def test_links_work_behind_a_proxy() -> None:
    """Under a path of its own for each node, as `page_url` may have it, no link leads out of that path."""
    for path in (TRAINER, "/gpus/0"):
        for query in ("", "?still"):
            made = watched()
            _, values = zip(*(each for each in page(made, path + query).elements if each[0] == "a"), strict=True)
            links = {urljoin(f"https://gpu.example.org/n1{path}", each["href"]) for each in values}
            assert all(link.startswith("https://gpu.example.org/n1/") for link in links), links
            again = f"https://gpu.example.org/n1{path}"
            assert (again if query else f"{again}?still") in links


def test_only_the_style_of_the_page_is_allowed() -> None:
    """The Content-Security-Policy has its hash; no attribute is a style, and no element a script."""
    for path in (TRAINER, "/gpus/0"):
        head, body = watched().get(path)
        (style,) = re.findall(r"<style>(.*?)</style>", body, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"Content-Security-Policy: default-src 'none'; style-src 'sha256-{digest}'; img-src data:" in head
        assert all("style" not in values and tag != "script" for tag, values in Read(body).elements)


def test_the_plot_has_a_text_for_those_who_do_not_see_it() -> None:
    """Its title and description name it, and all of its numbers are in a table; nothing is drawn outside its box."""
    shown = page(killed())
    (figure,) = (values for _, values in shown.elements if values.get("class") == "plot")
    labels = figure["aria-labelledby"].split()
    assert set(labels) <= set(shown.ids)
    assert "From 07:59:50 UTC to 08:10:05 UTC: 12.4Gi used" in shown.text("account-0")
    assert "1 warning, 1 kill." in shown.text("account-0")
    assert "08:05 12.4Gi 12.4Gi 12.4Gi 10.2Gi 1 warning" in shown.text("account-0")
    for _, values in shown.elements:
        for name, text in values.items():
            if name in ("x", "x1", "x2", "y", "y1", "y2", "width", "height") and text.endswith("%"):
                assert 0 <= float(text[:-1]) <= 100
            if name == "d" and values.get("class") in ("band", "last", "limit"):
                assert all(0 <= int(each) <= FULL for each in re.findall(r"-?\d+", text))


def test_a_gap_is_hatched_and_explained() -> None:
    """While the driver does not answer, and while the watchdog did not run."""
    made = watched(300, used=4.0, every=15)
    made.live(lambda second: trainer_node(4.0, second), 900, 600, 15)
    assert "Hatched: not known" in page(made).text("account-0")
    made.live(lambda second: trainer_node(4.0, second, blind=True, gpus=(), uses=(), processes={}), 960, 915, 15)
    made.clock.second += 2
    shown = page(made)
    assert (
        sum(values.get("class") == "gap" for tag, values in shown.elements if tag == "rect") == 3
    )  # one in the legend
    assert "a/trainer: use unknown Blind: NVML has not responded since" in shown.text()
    assert "Whether anything has to be changed is not known." in shown.text("account-0")


def test_a_gpu() -> None:
    """What it is, the parts of its memory, who uses it with the largest first, what has no pod, and what is unknown."""
    small = pod("u2", container("main", "1Gi", of="u2"))
    gaps = (
        Gap(reason=GapReason.CGROUP, what="GPU-0 processes", problem=Problem("it is lost", "reset it"), gpu="GPU-0"),
        Gap(reason=GapReason.CGROUP, what="GPU-1", problem=Problem("another one"), gpu="GPU-1"),
    )
    seen = trainer_node(12.4)
    seen = replace(
        seen,
        uses=(*seen.uses, use(7, Gi // 2)),
        processes={**seen.processes, 7: process(7, "u2/main")},
        gaps=gaps,
    )
    made = Watched(story=Story(pods=(trainer(), small)))
    made.live(lambda second: replace(seen, at=at(second)), 9.0, every=1.0)
    shown = page(made, "/gpus/0")
    assert "GPU 0: 12.9Gi used of 80Gi" in shown.text()
    assert shown.text("facts").startswith("What it is Model Stub UUID GPU-0 Total 80Gi Used 12.9Gi Reserved by the ")
    assert "a/trainer 11.4Gi here; 12.4Gi of 10.2Gi in all over, kill in 1s ns/pod-u2 512Mi of 1.5Gi within" in (
        shown.text("accounts")
    )
    assert shown.text("unattributed") == "Processes without a pod 1Gi Xorg (PID 9): a process of the host."
    assert shown.text("gaps") == "Data gaps GPU 0 processes since 08:00:00 UTC: it is lost What to do: reset it."
    other = page(made, "/gpus/1")
    assert "another one" in other.text("gaps")
    assert other.text("unattributed") == "Processes without a pod None."


def test_how_busy_a_pod_and_its_gpus_are() -> None:
    """On the page of each: the share of the time, or why that is unknown; of what is idle since when, and its cost."""
    made = Watched(utilization=activity(0.0, 7800.0))
    made.live(lambda second: trainer_node(4.0, second), 9.0, every=1.0)
    shown = page(made)
    assert "a/trainer: within, idle for 2h 10m Of Job train." in shown.text()
    assert "That began at 05:50:09 UTC or earlier:" in shown.text("account-0")
    assert "that is 0.11 card-hours." in shown.text("account-0")
    assert "Memory that is held and not used" in shown.text("documents")
    assert "Runbook: GPUMemoryIdle" in shown.text("documents")
    card = page(made, "/gpus/0")
    assert card.text().endswith("GPU 0: 4.5Gi used of 80Gi, 50% busy")
    assert card.text("facts").endswith("Busy 50% of the last ten seconds or so")
    assert card.text("accounts").endswith("within, idle for 2h 10m")
    made.utilization = activity(0.35)
    made.live(lambda second: trainer_node(4.0, second), 10.0, 10.0)
    assert page(made, "/gpus/0").text("accounts").endswith("within, 35% busy")
    assert "Its processes use 35% of the time of its 2 GPUs" in page(made).text("account-0")
    made.utilization = activity(None, card=CardUtilization(gpu="", why="it does not say"))
    made.live(lambda second: trainer_node(4.0, second), 12.0, 12.0)
    assert "How busy it is isn't known: it does not say." in page(made).text("account-0")
    assert "Memory that is held" not in page(made).text("documents")
    card = page(made, "/gpus/0")
    assert card.text("facts").endswith("Busy unknown")
    assert card.text("use").endswith("How busy GPU 0 is isn't known: it does not say.")
    assert card.text("accounts").endswith(" within")


def test_the_hour_of_utilisation_has_a_plot_of_its_own() -> None:
    """Of a pod by container and GPU, of a GPU its own; both with a text for those who do not see them."""
    made = Watched(utilization=activity(0.35))
    made.live(lambda second: trainer_node(4.0, second), 600.0)
    shown, card = page(made), page(made, "/gpus/0")
    own = "main on GPU 0 35% busy; side on GPU 0 35% busy; main on GPU 1 35% busy; side on GPU 1 35% busy."
    for seen, section, words in (
        (shown, "account-0", own),
        (card, "use", "From 07:59:50 UTC to 08:10:00 UTC: 50% busy."),
    ):
        (figure,) = (values for _, values in seen.elements if values.get("class") == "plot busy")
        assert figure["role"] == "img"
        assert set(figure["aria-labelledby"].split()) <= set(seen.ids)
        assert words in seen.text(section)
    lines = [values for tag, values in shown.elements if tag == "path" and values.get("class", "").startswith("busy-")]
    assert [each["class"] for each in lines] == ["busy-0", "busy-1", "busy-2", "busy-3"]
    assert "Busy: main on GPU 0, side on GPU 0, main on GPU 1, side on GPU 1." in shown.text("account-0")
    assert "Busy: the share of the time in which it computed." in card.text("use")
    assert "08:00 4Gi 4Gi 4Gi 10.2Gi 35%" in shown.text("account-0")


def test_without_utilisation_there_is_no_plot_of_it() -> None:
    """No empty box, and no empty column in the table."""
    shown = page(killed())
    assert all("busy" not in values.get("class", "") for _, values in shown.elements)
    assert "Limit Actions" in shown.text("account-0")


def test_a_mig_instance_and_its_marks() -> None:
    """By its short name and by its UUID; its siblings are linked, and an action on it is named beside its letter."""
    cards = [gpu(0, 10 * Gi, uuid=f"MIG-{n}", parent="GPU-9", gi=n, ci=0, profile="1g.10gb") for n in (1, 2)]
    seen = snapshot([replace(use(5, 3 * Gi), gpu="MIG-1")], [process(5, "a/main")], cards)
    made = Watched(story=Story(pods=(pod("a", container("main", "1Gi", of="a")),)))
    made.live(lambda second: replace(seen, at=at(second)), 60.0, every=15)
    made.mark(30, Do.WARN, AccountKey(uid="a"), ("MIG-1",))
    made.act(action(namespace="ns", pod="pod-a", uid="a", do="warn", at=Moment(at(30).wall_s), why="It is warned."))
    shown = page(made, "/gpus/0/1")
    assert "GPU 0, instance 1: 0 used of 10Gi" in shown.text()
    assert "MIG instance of GPU-9" in shown.text("facts")
    assert "Other instances of its card: GPU 0, instance 2." in shown.text("facts")
    assert shown.text("recent").startswith(
        "Actions at the marked times ns/pod-a container main was warned 08:00:30 UTC"
    )
    assert page(made, "/gpus/MIG-1").text("facts") == shown.text("facts")
    made.clock.second += 2
    assert page(made, "/gpus/0/2").text("recent") == "Actions at the marked times None in the last hour."


def on_two_gpus() -> Watched:
    """Pods a/trainer and a/other, each with memory on a GPU of its own, both killed at nearly the same time."""
    other = replace(SUCCESSOR, name="other")
    uses, processes = (use(101, 4 * Gi), use(102, 2 * Gi, 1)), (process(101, "u1/main"), process(102, "u2/main"))
    made = Watched(story=Story(pods=(trainer(), other)))
    made.live(lambda second: snapshot(uses, processes, (gpu(0), gpu(1)), second), 300)
    made.mark(100, Do.KILL, U1, ("GPU-0",))
    made.mark(101, Do.KILL, AccountKey(uid="u2"), ("GPU-1",))
    made.act(action(at=Moment(at(100).wall_s)))
    made.act(action(at=Moment(at(101).wall_s), pod="other", uid="u2"))
    return made


def test_the_actions_of_a_gpu_are_those_of_its_accounts() -> None:
    """Not one on another GPU a second later; of an eviction, which began long before it was done, also that."""
    made = on_two_gpus()
    own, other = (page(made, path).text("recent") for path in ("/gpus/0", "/gpus/1"))
    assert "a/trainer container main was killed" in own
    assert "a/other" not in own
    assert "a/other container main was killed" in other
    assert "a/trainer" not in other
    made.mark(200, Do.EVICT, U1, ("GPU-0",))
    made.act(action(at=Moment(at(120).wall_s), do="evict", container=None, ended_at=Moment(at(200).wall_s)))
    made.act(action(at=Moment(at(210).wall_s), do="evict", container=None, result="failed"))
    made.act(action(at=Moment(at(100).wall_s), result="observed"))
    made.act(action(at=Moment(at(100).wall_s), gpu="GPU-0"))
    made.clock.second += 2
    text = page(made, "/gpus/0").text("recent")
    assert text.count("was evicted") == 1
    assert text.count("was killed") == 1
    assert "eviction failed" not in text
    assert "would have" not in text


def test_an_action_is_listed_although_the_clock_was_set() -> None:
    """What the journal wrote by another wall clock belongs to the mark that is nearest."""
    made = on_two_gpus()
    made.act(action(at=Moment(at(100 - 7200).wall_s)))
    made.recent.pop()  # that by the clock of the cycles
    made.act(action(at=Moment(at(90 - 7200).wall_s), why="It was another one."))
    made.clock.second += 2
    text = page(made, "/gpus/0").text("recent")
    assert text.count("a/trainer container main was killed") == 1
    assert "It was another one." not in text


def test_a_number_that_several_instances_have() -> None:
    """Compute instances share the number of their GPU instance: links go by UUID, and the number names them."""
    share: Any = {"parent": "GPU-0", "gi": 1, "profile": "1c.3g.40gb"}
    cards = [gpu(0, Gi, uuid="MIG-a", ci=0, **share), gpu(0, 5 * Gi, uuid="MIG-b", ci=1, **share)]
    cards.append(gpu(0, Gi, uuid="MIG-c", ci=0, parent="GPU-0", gi=2, profile="1g.10gb"))
    seen = snapshot([replace(use(5, Gi), gpu="MIG-b")], [process(5, "a/main")], cards)
    made = Watched(story=Story(pods=(pod("a", container("main", "1Gi", of="a")),)))
    made.live(lambda second: replace(seen, at=at(second)), 60.0)
    for path in ("/", "/pods/ns/pod-a"):
        links = {values.get("href", "").removeprefix("../../") for _, values in page(made, path).elements}
        assert "gpus/MIG-b" in links
        assert "gpus/0/1" not in links
    head, body = made.get("/gpus/0/1")
    assert head.startswith("HTTP/1.1 404 ")
    assert body.startswith("2 instances on node n1 have the number 0/1: /gpus/MIG-a, /gpus/MIG-b")
    facts = page(made, "/gpus/MIG-b").text("facts")
    assert "Other instances of its card: GPU 0, instance 1 (MIG-a), GPU 0, instance 2." in facts
    head, body = made.get("/api/history?gpu=0/1")
    assert head.startswith("HTTP/1.1 400 ")
    assert body.startswith("2 instances have the number 0/1: write ?gpu= and one of MIG-a, MIG-b")
    assert made.get("/api/history?gpu=0/2")[0].startswith("HTTP/1.1 200 ")


def test_what_is_not_found_on_a_node_that_is_not_seen_may_be_there() -> None:
    """A driver that does not answer is no reason to believe that a pod or a GPU is elsewhere."""
    made = watched(1.0)
    made.live(lambda second: trainer_node(4.0, second, blind=True, gpus=(), uses=(), processes={}), 30, 15)
    for path in ("/pods/a/nobody", "/gpus/7"):
        head, body = made.get(path)
        assert head.startswith("HTTP/1.1 404 ")
        assert "NVML is not responding" in body or "NVML has not responded" in body, body


def test_a_gpu_that_does_not_answer() -> None:
    """That comes first, with its runbook."""
    made = Watched()
    down = replace(trainer_node(4.0), gpus=(gpu(0, up=False), gpu(1)))
    made.live(lambda second: replace(down, at=at(second)), 1.0)
    shown = page(made, "/gpus/0")
    assert "GPU 0: not responding" in shown.text()
    assert "docs/runbooks.md#gpumemorycardlost" in shown.text("documents")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(name: str) -> None:
    """Whatever tenants call things: it gets into a page as text and as nothing else, and no link leads there."""
    main = replace(container("main", of="u1"), name=name)
    holder = trainer(containers=(main,), owner=Owner(kind=name, name=name), annotations={name: name})
    evil = Pod(namespace=name, name=name, uid="e", containers=(container("main", "1Gi", of="e"),))
    under = policy(rule(WARN, KILL, AT_ONCE, name=name), contact=name, declarations=(VERIFF,))
    cards = (gpu(0, name=name),)
    seen = snapshot(
        [use(5, 3 * Gi), use(6, 4 * Gi), use(7, Gi)],
        [process(5, "u1/main", name=name), process(6, "e/main"), process(7, None, name=name)],
        cards,
        gaps=(Gap(reason=GapReason.CGROUP, what="GPU-0", problem=Problem(name, name), gpu="GPU-0"),),
    )
    made = Watched(story=Story(under=under, pods=(holder, evil)))
    made.live(lambda second: replace(seen, at=at(second)), 6.0)
    made.mark(5, Do.KILL, AccountKey(uid="e"), ("GPU-0",))
    made.act(action(namespace=name, pod=name, container=name, why=name, outcome=name, at=Moment(at(5).wall_s)))
    made.act(action(container=name, why=name, outcome=name))
    tame = watched()
    for path in (TRAINER, "/gpus/0"):
        shown = page(made, path)
        kinds = {tag for tag, _ in page(tame, path).elements} | {"li", "ul", "p", "b", "small", "bdi", "rect"}
        for tag, values in shown.elements:
            assert tag in kinds
            assert not {"style", "src", "srcdoc"} & values.keys()
            assert not [key for key in values if key.startswith("on")]
            assert re.match(r"\.\./|\?still$|data:image/svg\+xml,", values.get("href", "../"))
            assert not set(values.get("href", "").partition("?")[0].removeprefix("data:image/svg+xml")) & set(
                "\"'<> \\"
            )
        text = "".join("".join(parts) for parts in shown.sections.values())
        assert text.replace("\n", "").isprintable()
        assert len(max(text.split(" "), key=len)) <= 2010
        text.encode("utf-8")


def test_ten_tabs_can_be_opened_at_once() -> None:
    """After an alert, a page for each pod and its GPU, twice: none is refused. Names that nobody has take no room."""
    pods = tuple(pod(f"u{number}", container("main", "1Gi", of=f"u{number}")) for number in range(10))
    made = Watched(story=Story(pods=pods))
    made.live(lambda second: snapshot(gpus=tuple(map(gpu, range(8))), second=second), 1.0)
    for number in range(100):
        assert made.get(f"/pods/ns/nobody-{number}")[0].startswith("HTTP/1.1 404 ")
    paths = [*(f"/pods/ns/{each.name}" for each in pods), *(f"/gpus/{number}" for number in range(8))]
    for path in (*paths, *paths, *(f"{path}?still" for path in paths)):
        assert made.get(path)[0].startswith("HTTP/1.1 200 "), path
    answers = [made.get(f"/pods/ns/pod-u0?{number}=&still")[0] for number in range(50)]
    assert {answer.split(" ")[1] for answer in answers} == {"200"}, "what has no meaning makes no other page"


def test_a_flood_of_different_pages_takes_a_bounded_part_of_each_second() -> None:
    """Rendering takes turns with the loop: one page too many comes by itself in the next second."""
    pods = tuple(pod(f"u{number}", container("main", "1Gi", of=f"u{number}")) for number in range(50))
    made = Watched(story=Story(pods=pods))
    made.live(lambda second: snapshot(second=second), 1.0)
    answers = [made.get(f"/pods/ns/{each.name}")[0] for each in pods]
    statuses = [answer.split(" ")[1] for answer in answers]
    assert set(statuses) == {"200", "503"}
    assert statuses == sorted(statuses)
    assert "Retry-After: 1" in answers[-1]
    assert "Refresh: 2" in answers[-1]
    made.clock.second += 1.1
    assert made.get("/pods/ns/pod-u49")[0].startswith("HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("urls", "folder"),
    [
        (
            ["Homepage, https://a.org/p", "Documentation, https://a.org/p/blob/v1/docs/index.md"],
            "https://a.org/p/blob/v1/docs/",
        ),
        (["Documentation, https://gpu-memory-watchdog.example/docs/index.md"], ""),
        (["Homepage, https://a.org/p"], ""),
        (["Documentation, index.md"], ""),
        ([], ""),
    ],
)
def test_where_the_documentation_is(urls: list[str], folder: str) -> None:
    """A release links its own version; a checkout, which does not know where it is published, names the file."""
    assert folder_of(urls) == folder
