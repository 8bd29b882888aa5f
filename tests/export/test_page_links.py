"""Links: wherever a page names a pod or a GPU, the name leads to its page."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urljoin

import pytest

from tests.export.lived import Watched
from tests.export.page_reader import Read, action
from tests.report.build import KILL, WARN, Story, policy, trainer
from tests.worlds import VERIFF, Gi, at, claimant, container, gpu, pod, process, rule, snapshot, use
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Snapshot
from watchdog.export.names import GpuName, PodName, with_subjects
from watchdog.report.status import Moment

LONG: Final = (f"{'n' * 30}-{'m' * 30}", f"{'p' * 120}-{'q' * 120}")
# Commands and what is drawn can't be links; a title of the tab and a text for who does not see a plot are none either.
_NO_LINKS: Final = frozenset({"code", "title", "desc", "style"})


def _gap(reason: GapReason, what: str, uuid: str | None = None) -> Gap:
    return Gap(reason=reason, what=what, problem=Problem("it can't be read", "find out why"), gpu=uuid)


def everything() -> Watched:
    """A node with all that a page can say: pods over limits, on a claim, gone; cards that are lost or not listed."""
    cards = (gpu(0, used=30 * Gi), gpu(1, used=9 * Gi), gpu(2, up=False), gpu(3, listed=False))
    pods = (
        trainer(),
        claimant("a", "ns/pod-b", "/".join(LONG)),
        claimant("b", "ns/pod-a"),
        trainer(namespace=LONG[0], name=LONG[1], uid="u2", containers=(container("main", "1Gi", of="u2"),)),
        pod("cut", container("main", "2Gi", of="cut")),
    )
    gaps = (
        _gap(GapReason.PODS, "pod ns/pod-cut"),
        _gap(GapReason.CONTAINER, "container 0123456789ab of pod a/trainer"),
        _gap(GapReason.CLAIMS, "claims of ns/pod-a, ns/pod-b and 2 more"),
        _gap(GapReason.GPU_LOST, "GPU-2", "GPU-2"),
        _gap(GapReason.PROCESSES, "GPU-3 processes", "GPU-3"),
        _gap(GapReason.TRANSFER, "pod a/trainer on GPU-1", "GPU-1"),
    )
    uses = [use(1, 9 * Gi), use(2, 3 * Gi), use(3, 6 * Gi), use(4, 4 * Gi, 1), use(9, Gi, 1), use(1, 2 * Gi, 1)]
    processes = [
        process(1, "u1/main"), process(2, "a/main"), process(3, "b/main"), process(4, "u2/main"), process(9, None),
    ]  # fmt: skip

    def seen(second: float) -> Snapshot:
        return snapshot(uses, processes, cards, second, gaps=gaps)

    under = policy(rule(WARN, KILL, name="all"), declarations=(VERIFF,), schemes=("dra",))
    made = Watched(story=Story(under=under, pods=pods))
    made.live(seen, 20.0, every=1.0)
    why = "Container main of pod {} used 9Gi of GPU memory on GPU-0 for 5s."
    for namespace, name in (("a", "old"), LONG, ("a", "trainer")):
        made.act(
            action(namespace=namespace, pod=name, uid="gone", gpu="GPU-0", why=why.format(f"{namespace}/{name}"),
                   outcome="Its memory on GPU-0 is free.", at=Moment(at(10).wall_s))
        )  # fmt: skip
    return made


def _names(made: Watched) -> dict[str, str]:
    """What pods and GPUs are called, each with the path of its page."""
    titles = [each.title for each in made.report.pods.pods] + ["a/old"]
    pods = {name: f"/pods/{title}" for title in titles for name in PodName.of(title).names}
    return pods | {name: f"/gpus/{number}" for number in range(4) for name in (f"GPU {number}", f"GPU-{number}")}


def _mentions(page: Read, names: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Each name in the text of a page, with its text and the address of its link."""
    any_name = re.compile(
        rf"(?<![\w./-])(?:{'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})(?![\w/-])"
    )
    for text, around, link in page.texts:
        if not _NO_LINKS & {*around}:
            yield from ((found, text, link) for found in any_name.findall(text))


PATHS: Final = (
    "/", "/?all", "/pods/a/trainer", "/pods/ns/pod-a", "/pods/ns/pod-b", f"/pods/{'/'.join(LONG)}", "/pods/a/old",
    "/gpus/0", "/gpus/1", "/gpus/2", "/gpus/3",
)  # fmt: skip


@pytest.mark.parametrize("passed_s", [0.0, 300.0], ids=["current", "hung"])
def test_each_name_of_a_pod_or_gpu_leads_to_its_page(passed_s: float) -> None:
    """On the status page and those of pods and GPUs, in tables, headings and sentences; of a page's own only others."""
    made = everything()
    names, found = _names(made), set[str]()
    for path in PATHS:
        made.clock.second += 1.1 + passed_s
        head, body = made.get(path)
        assert head.startswith("HTTP/1.1 200 "), head + body
        for name, text, link in _mentions(Read(body), names):
            if names[name] != path:
                found.add(names[name])
                assert urljoin(path, link) == names[name], f"{name} on {path}: {text}"
    assert found == {*names.values()}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("It is a/b.", ["It is ", PodName("a", "b"), "."]),
        ("a/b-2 and a/b.c are others, and so is x.a/b", ["a/b-2 and a/b.c are others, and so is x.a/b"]),
        ("a/b, a/b", [PodName("a", "b"), ", ", PodName("a", "b")]),
        ("GPU 1, instance 2 of GPU 1 is GPU-12", ["GPU 1, instance 2", " of ", "GPU 1", " is GPU-12"]),
        ("GPU-1 has 3Gi of a/b, a/bc, b-a/b", ["GPU 1", " has 3Gi of ", PodName("a", "b"), ", a/bc, b-a/b"]),
        ("No Name/x", ["No Name/x"]),
        ("twice and twice", ["twice and twice"]),
        ("", []),
    ],
)
def test_only_whole_names_are_linked(text: str, parts: list[object]) -> None:
    """A name in another is not linked, the longer one is; what has no page, or shares its name, stays text."""
    gpus = [GpuName("GPU 1", "GPU-1", "gpus/1"), GpuName("GPU 1, instance 2", "MIG-2", "gpus/1/2")]
    same = [GpuName("twice", f"MIG-{number}", f"gpus/MIG-{number}") for number in (3, 4)]
    found = with_subjects(text, [PodName("a", "b"), PodName("No Name", "x"), *gpus, *same])
    shown = [each.label if isinstance(each, GpuName) else each for each in found]
    assert shown == parts
