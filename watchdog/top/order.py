"""Which accounts are shown, and in which order: the same for the live table and for `--once`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from watchdog.top.steps import left_s
from watchdog.top.values import Account, View

DEFAULT: Final = "percent"
VERDICTS: Final = ("over", "unknown", "misdeclared", "within", "undeclared")
Key = Callable[[Account], tuple[float, ...] | None]


def _verdict(account: Account) -> tuple[float, ...]:
    place = VERDICTS.index(account.verdict) if account.verdict in VERDICTS else len(VERDICTS)
    return (float(place), -_ratio(account))


def _ratio(account: Account) -> float:
    """What it uses of what it is allowed; where nothing is allowed anything is endlessly much."""
    if account.allowed == 0 and account.used.floor:
        return float("inf")
    return account.share or 0.0


def _percent(account: Account) -> tuple[float, ...] | None:
    return None if account.allowed is None else (-_ratio(account), float(-account.used.floor))


def _time(account: Account) -> tuple[float, ...] | None:
    left = left_s(account, 0.0)
    return None if left is None else (left, -_ratio(account))


def _declared(account: Account) -> tuple[float, ...] | None:
    return None if account.declared is None else (-float(account.declared),)


# None: not known, or it does not apply; such accounts come last, in either direction.
KEYS: Final[dict[str, Key]] = {
    "used": lambda each: (-float(each.used.floor),),
    "percent": _percent,
    "name": lambda _: (0.0,),
    "time": _time,
    "declared": _declared,
    "verdict": _verdict,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is to be shown: `text` stands in the pod's `namespace/name`, the rule or the verdict, in any case."""

    sort: str = DEFAULT
    backwards: bool = False
    text: str = ""
    over: bool = False

    def takes(self, account: Account) -> bool:
        """Whether an account is shown."""
        if self.over and account.verdict != "over":
            return False
        words = self.text.casefold().split()
        told = f"{account.title} {account.rule} {account.verdict}".casefold()
        return all(word in told for word in words)


def chosen(view: View, choice: Choice) -> tuple[Account, ...]:
    """The accounts to show in their order, ties by name; the processes of no pod are the last row."""
    rows = sorted(filter(choice.takes, view.accounts), key=lambda each: (each.title, each.key))
    keyed = [(KEYS[choice.sort](each), each) for each in rows]
    known = sorted(((key, each) for key, each in keyed if key is not None), key=lambda pair: pair[0])
    ordered = [each for _, each in known]
    missing = [each for key, each in keyed if key is None]
    missing.sort(key=lambda each: -each.used.floor)
    last: Iterable[Account] = (view.no_pod,) if view.no_pod is not None and choice.takes(view.no_pod) else ()
    return (*(reversed(ordered) if choice.backwards else ordered), *missing, *last)
