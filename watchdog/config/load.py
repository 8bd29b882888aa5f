"""The policy file: read, parsed, checked and compiled into a policy, or every mistake in one report."""

import hashlib
import os
import pickle
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from watchdog.core.policy import NO_ALLOWANCE, Allowance, Capacity, Declaration, Policy
from watchdog.options import DEFAULT_POLICY

if TYPE_CHECKING:
    from watchdog.config.document import Location, Mistake
    from watchdog.config.known_units import UnitDoubt
    from watchdog.config.scheme import Scheme

MAX_BYTES: Final = 2**20
MAX_LINE: Final = 4096  # tomllib's time grows with the square of a dotted key's length
MAX_DEPTH: Final = 16
_BOM: Final = b"\xef\xbb\xbf"
_PLACE: Final = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)\Z")
# tomllib's messages say what its parser could not do; these say what is wrong in the file.
_REMEDIES: Final = (
    (re.compile(r"Cannot overwrite a value"), "the same key occurs twice in one table; leave one of them"),
    (re.compile(r"Cannot declare .* twice"), "the same table occurs twice; tables of a list are written [[name]]"),
)
# Top-level keys come before the first table, so the first line that sets `schemes` is that of the key.
_SCHEMES: Final = re.compile(r"""^[ \t]*(?:schemes|"schemes"|'schemes')[ \t]*=""", re.MULTILINE)
_ITEM: Final = re.compile(r"""\#[^\n]*|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s,\[\]{}"'\#]+""")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyProblem:
    """One mistake in a file, written as one line: `FILE: rule[1].step[0].for: what is wrong`."""

    # The name of the file.
    source: str
    what: str
    # Where in the file; empty if the file as a whole is wrong.
    path: str = ""
    # Counts from 1; None where it is not known.
    line: int | None = None
    # The name of the rule with the mistake, so that readers need not count to `rule[7]`; None: it is in none.
    rule: str | None = None

    def __str__(self) -> str:
        from watchdog.config.fields import quote

        place = self.source if self.line is None else f"{self.source}:{self.line}"
        within = "" if self.rule is None else f" (rule {quote(self.rule)})"
        return f"{place}: {self.path}: {self.what}{within}" if self.path else f"{place}: {self.what}"


class PolicyError(Exception):
    """A policy that cannot be used; `problems` has every mistake found, in the order of their locations."""

    def __init__(self, problems: Iterable[PolicyProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def refusal(error: PolicyError, path: Path) -> str:
    """What is wrong with a policy, and how to name another one if the default one does not exist."""
    named = "" if path != DEFAULT_POLICY or path.exists() else "\ngive another path with --policy FILE"
    return f"{error}{named}"


def read_bytes(path: Path) -> bytes:
    """Read a policy file of at most `MAX_BYTES`; PolicyError with one line if it cannot be read."""
    source = str(path)
    try:
        # Without blocking: opening a pipe would wait forever for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode):
                raise _refuse(source, "is a directory; name the policy file in it")
            if not stat.S_ISREG(mode):
                raise _refuse(source, "is not a regular file")
            with open(descriptor, "rb", closefd=False) as file:
                return read_stream(file, source)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise _refuse(source, "there is no such file; config/policy.toml of the project is a starting point") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _refuse(source, f"can't be read: {reason}") from None


def read_stream(stream: BinaryIO, source: str) -> bytes:
    """Read a policy of at most `MAX_BYTES` from an open stream; PolicyError if it is larger, OSError."""
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _refuse(source, f"is larger than {MAX_BYTES // 2**20} MiB, too large for a policy")
    return data


def parse_document(data: bytes, source: str) -> dict[str, Any]:
    """Parse the bytes of a file as TOML 1.0; PolicyError with one line, with its line number, if that fails."""
    text = _decode(data, source)
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_LINE:
            raise _refuse(source, f"the line is longer than {MAX_LINE} characters; break it up", number)
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise _refuse(source, "is nested too deeply to be read; a policy has four levels at most") from None
    except ValueError as error:  # TOMLDecodeError, and what Python says of numbers with thousands of digits
        raise _syntax_error(source, text, str(error)) from None
    if not document:
        raise _refuse(source, 'is empty; the smallest valid policy is mode = "observe"')
    if not _is_shallow(document):
        raise _refuse(source, "is nested too deeply; a policy has four levels at most")
    return document


def _decode(data: bytes, source: str) -> str:
    if data.startswith(_BOM):
        raise _refuse(source, "begins with a byte order mark; save it as UTF-8 without one", 1)
    if b"\0" in data:
        line = data[: data.index(b"\0")].count(b"\n") + 1
        raise _refuse(source, "contains NUL bytes; save it as plain UTF-8 text, not as UTF-16", line)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line, byte = data[: error.start].count(b"\n") + 1, data[error.start]
        raise _refuse(source, f"the byte 0x{byte:02x} is not UTF-8; save the file as UTF-8", line) from None


def _syntax_error(source: str, text: str, message: str) -> PolicyError:
    from watchdog.config.fields import quote

    place = _PLACE.search(message)
    what = message[: place.start()] if place else message
    what = next((remedy for pattern, remedy in _REMEDIES if pattern.match(what)), what)
    if len(what) > 200:
        what = quote(what)
    if place is None:
        return _refuse(source, f"not TOML: {what}")
    if place["line"] is None:
        return _refuse(source, f"not TOML: {what}, at the end of the file", text.rstrip("\n").count("\n") + 1)
    return _refuse(source, f"not TOML: {what} (column {place['column']})", int(place["line"]))


def _refuse(source: str, what: str, line: int | None = None) -> PolicyError:
    return PolicyError([PolicyProblem(source=source, what=what, line=line)])


def _is_shallow(value: Any, levels: int = MAX_DEPTH) -> bool:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_shallow(child, levels - 1) for child in children)


BUILT_IN_FILE: Final = Path(__file__).with_name("built_in.toml")
BUILT_IN_SOURCE: Final = "built-in policy"


def load_policy(path: Path) -> Policy:
    """Load a policy file; PolicyError with all of its mistakes, or the one reason why it cannot be read."""
    return _compile(read_bytes(path), str(path))


def load_in_child(path: Path) -> Callable[[], Policy]:
    """Start loading a policy file in a child process; the returned function waits for it, and raises PolicyError.

    Otherwise the validation code would stay in the daemon's memory, 2 MiB that it seldom uses. The child is a fork, so
    call this before starting other threads.
    """
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(receiver)
            with open(sender, "wb") as pipe:  # noqa: PTH123 - it is open already
                pickle.dump(_load_or_problems(path), pipe)
        finally:
            os._exit(0)
    os.close(sender)

    def wait() -> Policy:
        with open(receiver, "rb") as pipe:  # noqa: PTH123 - it is open already
            received = pipe.read()
        with suppress(ChildProcessError):  # SIGCHLD was ignored when the daemon was started
            os.waitpid(child, 0)
        try:
            loaded: Policy | tuple[PolicyProblem, ...] = pickle.loads(received)
        except (EOFError, pickle.UnpicklingError):  # it was killed or crashed: load it here, where the cause shows
            return load_policy(path)
        if isinstance(loaded, tuple):
            raise PolicyError(loaded)
        return loaded

    return wait


def _load_or_problems(path: Path) -> Policy | tuple[PolicyProblem, ...]:
    try:
        return load_policy(path)
    except PolicyError as error:
        return error.problems


def read_policy(stream: BinaryIO, source: str) -> Policy:
    """Load a policy from a stream; `source` is the file's name in the problems of a PolicyError."""
    return _compile(read_stream(stream, source), source)


def built_in_policy() -> Policy:
    """The policy of `scan` if none is given: it observes, with all declarations whose unit is unambiguous."""
    return _compile(read_bytes(BUILT_IN_FILE), BUILT_IN_SOURCE)


def _compile(data: bytes, source: str) -> Policy:
    from watchdog.config.checks import find_mistakes, find_warnings
    from watchdog.config.document import check_document, format_path
    from watchdog.config.known_units import doubt_of, zero_of
    from watchdog.config.scheme import select

    document = parse_document(data, source)
    names = _rule_names(document)
    policy, document, mistakes, rejected = check_document(document)
    if policy is not None:
        mistakes = (*mistakes, *find_mistakes(policy, document, rejected))
    if mistakes or policy is None:
        raise PolicyError(
            PolicyProblem(
                source=source,
                path=format_path(mistake.location),
                what=mistake.what,
                line=_line_of_schemes(data, mistake.location),
                rule=_rule_of(mistake, names),
            )
            for mistake in sorted(mistakes, key=_sort_key)
        )
    given = document.get("declaration", ())
    own = tuple(
        replace(each, wrong_unit=_wrong(doubt_of(each)), zero=each.zero if "zero" in table else zero_of(each))
        for each, table in zip(policy.declarations, given, strict=True)
    )
    policy = replace(policy, declarations=own)
    schemes = select(policy.schemes, has_own=bool(policy.declarations))
    tables = (*document.get("declaration", ()), *(table for each in schemes for table in each.tables))
    policy = _with_schemes(policy, schemes)
    warnings = tuple(
        f"{format_path(location)}: {what}" if location else what for location, what in find_warnings(policy, document)
    )
    return replace(
        policy,
        sha256=hashlib.sha256(data).hexdigest(),
        source=source,
        warnings=warnings,
        declarations=tuple(
            replace(each, allowance=_own_allowance(each, table.get("allowance", ()), policy.allowance))
            for each, table in zip(policy.declarations, tables, strict=True)
        ),
        capacity=policy.capacity and replace(policy.capacity, unit=_unit(policy.capacity, policy.declarations)),
    )


def _wrong(doubt: "UnitDoubt | None") -> str:
    return doubt.what if doubt is not None and doubt.is_smaller else ""


def unit_mistakes(policy: Policy) -> tuple[PolicyProblem, ...]:
    """The tables that apply to no pod because of their unit; `check` fails for them if the policy enforces."""
    return tuple(
        PolicyProblem(source=policy.source, path=f"declaration[{index}].unit", what=each.wrong_unit)
        for index, each in enumerate(policy.declarations)
        if each.wrong_unit
    )


def _with_schemes(policy: Policy, schemes: Sequence["Scheme"]) -> Policy:
    """The policy with the tables of its schemes after its own."""
    from watchdog.config.document import read_declaration

    tables = ((each.name, table) for each in schemes for table in each.tables)
    built_in = (replace(read_declaration(table), scheme=name) for name, table in tables)
    return replace(policy, schemes=tuple(each.name for each in schemes), declarations=(*policy.declarations, *built_in))


def _line_of_schemes(data: bytes, location: "Location") -> int | None:
    """The line of the key `schemes`, or of one of its names; None for any other key, since tomllib reports no lines."""
    if location[:1] != ("schemes",):
        return None
    text = data.decode()
    key = _SCHEMES.search(text)
    if key is None:
        return None
    items = [each.start() for each in _ITEM.finditer(text, key.end()) if each[0][0] != "#"]
    index = location[1] if len(location) > 1 else len(items)
    at = items[index] if isinstance(index, int) and index < len(items) else key.start()
    return text.count("\n", 0, at) + 1


def _rule_names(document: dict[str, Any]) -> dict[int, str]:
    """The names of a document's rules by index, where they have one; nothing else is checked."""
    rules = document.get("rule")
    known = enumerate(rules if isinstance(rules, list) else ())
    return {n: rule["name"] for n, rule in known if isinstance(rule, dict) and isinstance(rule.get("name"), str)}


def _rule_of(mistake: "Mistake", names: dict[int, str]) -> str | None:
    """The name of the rule with a mistake; None if the mistake is in no rule, or in the name itself."""
    match mistake.location:
        case ("rule", int(number), first, *_) if first != "name":
            return names.get(number)
    return None


def _own_allowance(declaration: Declaration, given: Iterable[str], common: Allowance) -> Allowance | None:
    """A declaration's own allowance; parts of cards (`share`, `cards`, `mig`) have none unless it sets one.

    `given` are its keys in the file.
    """
    is_part = declaration.unit in ("share", "cards", "mig")
    if declaration.allowance is None:
        return NO_ALLOWANCE if is_part else None
    own = {key: getattr(declaration.allowance, key) for key in given}
    base = replace(common, per_context=0, percent=NO_ALLOWANCE.percent) if is_part else common
    return replace(base, **own)


def _unit(capacity: Capacity, declarations: Iterable[Declaration]) -> int:
    """The unit of an advertised resource: that of the declaration that reads it, since pods request it in that unit."""
    units = (each.unit for each in declarations if fnmatchcase(capacity.resource, each.resource or ""))
    unit = next(units, 1)
    return unit if isinstance(unit, int) else 1


def _sort_key(mistake: "Mistake") -> list[tuple[int, int, str]]:
    """An order of locations that sorts list items by number and keeps what belongs together."""
    return [(0, part, "") if isinstance(part, int) else (1, 0, part) for part in mistake.location]
