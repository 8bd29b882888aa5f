"""Who and what has a share of each card: its pods, processes of no pod, the residual, the driver's reserve."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from watchdog.core.assessment import Verdict
from watchdog.core.model import Gpu
from watchdog.core.plan import CycleReport
from watchdog.report.figures import Sum, residual_by_gpu, unattributed_by_gpu

_FILLINGS: Final = 4  # that can be told apart
_MANY_CARDS: Final = 8
_NAMED_OF_MANY: Final = 2
# The others in turn, so that each is seen to end.
REST: Final = ("rest-a", "rest-b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Who or what uses a part of a card, and the filling of that part; `used` None: a part of it is not known."""

    label: str
    used: int | None
    at_least: int
    css: str
    is_over: bool = False
    is_named: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The shares of one card, in the order in which they are drawn."""

    gpu: Gpu
    pods: tuple[Share, ...]
    others: tuple[Share, ...]


def shares(report: CycleReport) -> Sequence[Shares]:
    """The shares of every card of the cycle."""
    titles = {each.account.uid: each.pod.title for each in report.assessments}
    over = frozenset(each.account.uid for each in report.assessments if each.verdict is Verdict.OVER)
    by_gpu: defaultdict[str, defaultdict[str, Sum]] = defaultdict(lambda: defaultdict(Sum))
    for use in report.attribution.attributed:
        by_gpu[use.gpu][use.uid].add(use.used)
    theirs: defaultdict[str, Sum] = defaultdict(Sum)
    for stranger in report.attribution.unattributed:
        theirs[stranger.gpu].add(stranger.used)
    residual, strangers, gpus = residual_by_gpu(report), unattributed_by_gpu(report), report.snapshot.gpus
    named = _FILLINGS if len(gpus) <= _MANY_CARDS else _NAMED_OF_MANY
    return [
        Shares(
            gpu=gpu,
            pods=_pods(by_gpu[gpu.uuid], titles, over, named),
            others=(
                _other("unattributed", strangers[gpu.uuid], "unattributed", theirs[gpu.uuid].at_least),
                *_by_whom(gpu, residual[gpu.uuid], [*by_gpu[gpu.uuid].values(), theirs[gpu.uuid]]),
                _other("residual", residual[gpu.uuid], "residual"),
                _other("reserved by the driver", gpu.reserved, "reserved"),
            ),
        )
        for gpu in gpus
    ]


def _pods(uses: Mapping[str, Sum], titles: Mapping[str, str], over: frozenset[str], named: int) -> tuple[Share, ...]:
    """The pods of a card: those that are over first, then the largest."""
    ordered = sorted(uses.items(), key=lambda each: (each[0] not in over, -each[1].at_least, each[0]))
    return tuple(
        Share(
            label=titles.get(uid, uid),
            used=used.total,
            at_least=used.at_least,
            css="over" if uid in over else f"pod-{number}" if number < named else REST[number % 2],
            is_over=uid in over,
            is_named=number < named,
        )
        for number, (uid, used) in enumerate(ordered)
    )


def _by_whom(gpu: Gpu, residual: int | None, known: Iterable[Sum]) -> Iterator[Share]:
    """What is in use beyond all that is known to be somebody's: it must not look free. None where all is known."""
    if residual is None and gpu.used is not None:
        left = gpu.used - (gpu.reserved or 0) - sum(each.at_least for each in known)
        if left > 0:
            yield _other("in use, by whom is not known", left, "unknown")


def _other(label: str, used: int | None, css: str, known: int = 0) -> Share:
    return Share(label=label, used=used, at_least=known if used is None else used, css=css)
