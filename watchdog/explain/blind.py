"""What the daemon can't see of its node, why, and since when: it comes first, since whatever follows is less."""

from collections.abc import Iterator
from typing import Final

from watchdog.export.phrases import clock_time, count, inert
from watchdog.export.status_read import Part, hangs_since

_LONGEST: Final = 600
_MOST_CARDS: Final = 3
_MOST_PODS: Final = 3
_NVML: Final = "NVML"  # what the gap is about that leaves nothing known


def hanging(status: Part) -> Iterator[str]:
    """That the daemon answers while its loop hangs: nothing that it says is of now."""
    since, at = hangs_since(status), status.moment("at")
    if since is None or at is None:
        return
    yield f"The watchdog of this node hangs: no pass has ended since {clock_time(since, at)}."
    yield (
        f"All that follows is as of {clock_time(at, at)}, and until a pass ends again nobody new is killed or evicted. "
        f"{_begun(status)} "
        "Whoever runs the node can look at its driver (`nvidia-smi`, and the kernel log for NVRM and Xid)."
    )


def unseen(status: Part) -> tuple[str, ...]:
    """That NVML does not answer, or which GPUs do not; under maintenance that is meant, and said elsewhere."""
    if status.text("maintenance") is not None:
        return ()
    return tuple(_no_driver(status)) or tuple(_no_cards(status))


def out_of_sight(status: Part) -> tuple[str, ...]:
    """All that keeps the daemon from knowing its node; nothing: what it does not know of is not there."""
    maintenance = status.text("maintenance")
    let_go = f"Its GPUs are under maintenance ({inert(maintenance or '', _LONGEST)}): nothing is known of them."
    found = (*hanging(status), *((let_go,) if maintenance is not None else ()), *unseen(status))
    return found or tuple(_unlisted(status))


def without_told(status: Part) -> Part:
    """The status without the gaps that `unseen` tells."""
    cards = {gpu.text("uuid") for gpu in _silent(status)}
    left = [dict(gap.values) for gap in status.parts("gaps") if gap.text("what") not in {_NVML, *cards}]
    return Part({**status.values, "gaps": left}, status.path, status.doubts)


def _no_driver(status: Part) -> Iterator[str]:
    health = status.part("health")
    blind = health.moment("blind_since") if health is not None else None
    why = _why(status, _NVML)
    if blind is None and not why:
        return
    yield f"NVML {_silent_since(blind, status)}: nothing is known of the GPUs of this node and of who uses them."
    if why:
        yield f"What it said: {why}."
    yield f"Until it answers again nobody new is killed or evicted. {_begun(status)}"


def _begun(status: Part) -> str:
    """That what has begun needs no pass to go on, and of which pods that is known."""
    pods = {
        f"{inert(each.text('namespace') or '')}/{inert(each.text('pod') or '')}"
        for each in (
            *(account for account in status.parts("accounts") if account.part("under_way") is not None),
            *(entry for entry in status.parts("plan") if entry.part("trying") is not None),
        )
    }
    first = sorted(pods)[:_MOST_PODS]
    more = f" and {count(len(pods) - len(first), 'more pod', 'more pods')}" if len(pods) > len(first) else ""
    known = f"; it had begun for {', '.join(first)}{more}" if first else ""
    return f"What has begun may go on all the same, as far as SIGKILL or an eviction that is tried again{known}."


def _no_cards(status: Part) -> Iterator[str]:
    silent = _silent(status)
    for gpu in silent[:_MOST_CARDS]:
        uuid, index = gpu.text("uuid") or "", gpu.whole("index")
        since = next((gap.moment("since") for gap in status.parts("gaps") if gap.text("what") == uuid), None)
        name = f"GPU {index} ({inert(uuid)})" if index is not None else inert(uuid)
        why = _why(status, uuid)
        yield f"{name} {_silent_since(since, status)}: who uses how much of it is not known."
        if why:
            yield f"What NVML said: {why}."
    if len(silent) > _MOST_CARDS:
        yield f"{count(len(silent) - _MOST_CARDS, 'more GPU does', 'more GPUs do')} not answer either."


def _unlisted(status: Part) -> Iterator[str]:
    """Cards that answer, and whose processes are not all told."""
    for gpu in status.parts("gpus"):
        if gpu.flag("up") and "listed" in gpu.values and not gpu.flag("listed"):
            uuid = gpu.text("uuid") or ""
            gap = next((each for each in status.parts("gaps") if (each.text("what") or "").startswith(uuid)), Part({}))
            since, at = gap.moment("since"), status.moment("at")
            lasting = f", since {clock_time(since, at)}" if since is not None and at is not None else ""
            why = inert(gap.text("why") or "the driver does not list them", _LONGEST).rstrip(".")
            yield f"Not all who use {inert(uuid)} are known{lasting}: {why}."


def _silent(status: Part) -> list[Part]:
    return [gpu for gpu in status.parts("gpus") if not gpu.flag("up")]


def _why(status: Part, what: str) -> str:
    """What the driver said of something, with the remedy; empty where it said nothing."""
    said = (gap.text("why") or "" for gap in status.parts("gaps") if gap.text("what") == what)
    return inert(next(said, ""), _LONGEST).rstrip(".")


def _silent_since(since: float | None, status: Part) -> str:
    at = status.moment("at")
    return "does not answer" if since is None or at is None else f"has not answered since {clock_time(since, at)}"
