"""The policy file, read, checked and compiled: every mistake in one report, or the whole policy."""

import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from watchdog.config.checks import find_mistakes, find_warnings
from watchdog.config.fields import quote
from watchdog.config.mistakes import PolicyError, Problem, check_schema, format_path, rule_names, rule_of, sort_key
from watchdog.config.schema import (
    AllowanceTable,
    BrakesTable,
    CapacityTable,
    DeclarationTable,
    MatchTable,
    MpsTable,
    OwnAllowanceTable,
    PolicyTable,
    PressureTable,
    PulseTable,
    RuleTable,
    StepTable,
)
from watchdog.core.policy import (
    NO_ALLOWANCE,
    Allowance,
    Backoff,
    Brakes,
    Breaker,
    Capacity,
    Declaration,
    Do,
    JournalLimits,
    Match,
    MpsControl,
    Policy,
    Protect,
    Pulse,
    Rule,
    Safety,
    Step,
    Unless,
)

MAX_BYTES: Final = 2**20
MAX_LINE: Final = 4096  # tomllib's time grows with the square of a dotted key's length
MAX_DEPTH: Final = 16
_BOM: Final = b"\xef\xbb\xbf"
_PLACE: Final = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)\Z")
# tomllib's words say what its parser could not do; these say what stands in the file.
_REMEDIES: Final = (
    (re.compile(r"Cannot overwrite a value"), "the same key stands twice in one table; leave one of them"),
    (re.compile(r"Cannot declare .* twice"), "the same table stands twice; tables of a list are written [[name]]"),
)


def read_bytes(path: Path) -> bytes:
    """Read a policy file of bearable size; PolicyError says in one line why it cannot be read."""
    source = str(path)
    try:
        # Without blocking: opening a pipe would wait for a writer for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - it is open already
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _refuse(source, "is not a regular file")
            return read_stream(file, source)
    except FileNotFoundError:
        raise _refuse(source, "there is no such file; config/policy.toml of the project is a beginning") from None
    except IsADirectoryError:
        raise _refuse(source, "is a directory; name the policy file in it") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _refuse(source, f"can't be read: {reason}") from None


def read_stream(stream: BinaryIO, source: str) -> bytes:
    """Read a policy of bearable size from a stream that is open; PolicyError where it is larger, OSError."""
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _refuse(source, f"is larger than {MAX_BYTES // 2**20} MiB: that is no policy")
    return data


def parse_document(data: bytes, source: str) -> dict[str, Any]:
    """Parse the bytes of a file as TOML 1.0; PolicyError says in one line, with its place, why that cannot be done."""
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
        raise _refuse(source, 'is empty; a policy that only measures says at least mode = "observe"')
    if not _is_shallow(document):
        raise _refuse(source, "is nested too deeply; a policy has four levels at most")
    return document


def _decode(data: bytes, source: str) -> str:
    if data.startswith(_BOM):
        raise _refuse(source, "begins with a byte order mark; save it as UTF-8 without one", 1)
    if b"\0" in data:
        line = data[: data.index(b"\0")].count(b"\n") + 1
        raise _refuse(source, "holds NUL bytes; save it as plain UTF-8 text, not as UTF-16", line)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _refuse(
            source, f"the byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8", line
        ) from None


def _syntax_error(source: str, text: str, message: str) -> PolicyError:
    place = _PLACE.search(message)
    what = message[: place.start()] if place else message
    for pattern, remedy in _REMEDIES:
        if pattern.match(what):
            what = remedy
    if len(what) > 200:
        what = quote(what)
    if place is None:
        return _refuse(source, f"not TOML: {what}")
    if place["line"] is None:
        return _refuse(source, f"not TOML: {what}, at the end of the file", text.rstrip("\n").count("\n") + 1)
    return _refuse(source, f"not TOML: {what} (column {place['column']})", int(place["line"]))


def _refuse(source: str, what: str, line: int | None = None) -> PolicyError:
    return PolicyError([Problem(source=source, what=what, line=line)])


def _is_shallow(document: dict[str, Any]) -> bool:
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH):
        level = list(_children(level))
        if not level:
            return True
    return False


def _children(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list):
            yield from value


def compile_policy(table: PolicyTable, *, sha256: str, source: str, warnings: tuple[str, ...]) -> Policy:
    """Compile a valid policy."""
    allowance = _compile_allowance(table.allowance)
    protect, journal, safety = table.protect, table.journal, table.safety
    return Policy(
        sha256=sha256,
        source=source,
        mode=table.mode,
        interval_s=table.interval,
        stale_after_s=table.stale_after,
        release_timeout_s=table.release_timeout,
        declarations=tuple(_compile_declaration(declaration, allowance) for declaration in table.declaration),
        allowance=allowance,
        rules=tuple(_compile_rule(rule) for rule in table.rule),
        protect=Protect(
            namespaces=tuple(protect.namespaces),
            pods=tuple(protect.pods),
            priority_at_least=protect.priority_at_least,
            annotation=protect.annotation,
        ),
        brakes=_compile_brakes(table.brakes) if table.brakes is not None else Brakes(),
        free_below=(table.pressure or PressureTable()).free_below,
        journal=JournalLimits(max_age_s=journal.max_age, max_size=journal.max_size),
        safety=Safety(
            foreign_pid_namespace=safety.foreign_pid_namespace,
            signal_without_pidfd=safety.signal_without_pidfd,
            signal_mps_clients=safety.signal_mps_clients,
        ),
        capacity=_compile_capacity(table.capacity, table.declaration) if table.capacity is not None else None,
        events_in_observe=table.events.observe,
        contact=table.events.contact,
        pulse=_compile_pulse(table.pulse) if table.pulse is not None else None,
        mps=_compile_mps(table.mps) if table.mps is not None else None,
        warnings=warnings,
    )


def _compile_allowance(table: AllowanceTable) -> Allowance:
    return Allowance(per_context=table.per_context, max_contexts=table.max_contexts, percent=table.percent)


def _compile_declaration(table: DeclarationTable, allowance: Allowance) -> Declaration:
    kind, key = _name(table)
    return Declaration(
        kind=kind,
        key=key,
        unit=table.unit,
        per=table.per,
        shares=table.shares,
        node_labels=dict(table.node_labels),
        unless=Unless(resource=table.unless.resource, at_least=table.unless.at_least) if table.unless else None,
        limit_annotation=table.limit_annotation,
        allowance=_compile_own_allowance(table, allowance),
    )


def _name(table: DeclarationTable) -> tuple[Literal["resource", "annotation", "label"], str]:
    if table.resource is not None:
        return "resource", table.resource
    if table.annotation is not None:
        return "annotation", table.annotation
    return "label", table.label or ""


def _compile_own_allowance(table: DeclarationTable, allowance: Allowance) -> Allowance | None:
    """A declaration's own allowance; a part of a card as such (`share`, `mig`) has none unless it says so."""
    is_part = table.unit in ("share", "mig")
    own = table.allowance
    if own is None:
        return NO_ALLOWANCE if is_part else None
    base = Allowance(
        per_context=0 if is_part else allowance.per_context,
        max_contexts=allowance.max_contexts,
        percent=NO_ALLOWANCE.percent if is_part else allowance.percent,
    )
    return _override(own, base)


def _override(own: OwnAllowanceTable, base: Allowance) -> Allowance:
    return Allowance(
        per_context=base.per_context if own.per_context is None else own.per_context,
        max_contexts=base.max_contexts if own.max_contexts is None else own.max_contexts,
        percent=base.percent if own.percent is None else own.percent,
    )


def _compile_rule(table: RuleTable) -> Rule:
    return Rule(
        name=table.name,
        match=_compile_match(table.match),
        account=table.account,
        default=table.default,
        mode=table.mode,
        active=table.active,
        steps=tuple(_compile_step(step) for step in table.step),
    )


def _compile_brakes(table: BrakesTable) -> Brakes:
    backoff, breaker = table.owner_backoff, table.breaker
    return Brakes(
        node=table.node,
        namespace=table.namespace,
        owner=table.owner,
        owner_backoff=Backoff(first_s=backoff.first, factor=backoff.factor, max_s=backoff.max) if backoff else None,
        breaker=Breaker(offenders=breaker.offenders, of_at_least=breaker.of_at_least, hold_s=breaker.hold)
        if breaker
        else None,
    )


def _compile_capacity(table: CapacityTable, declarations: list[DeclarationTable]) -> Capacity:
    """What is advertised counts as the declaration counts that reads it: pods ask for both with one number."""
    units = (each.unit for each in declarations if fnmatchcase(table.resource, each.resource or ""))
    unit = next(units, 1)
    return Capacity(
        resource=table.resource,
        amount=None if table.amount == "cards" else table.amount,
        reserve=table.reserve,
        unit=unit if isinstance(unit, int) else 1,
    )


def _compile_pulse(table: PulseTable) -> Pulse:
    return Pulse(every_s=table.every, rise=table.rise, looks=table.looks)


def _compile_mps(table: MpsTable) -> MpsControl:
    return MpsControl(control=table.control, pipe=tuple(table.pipe), timeout_s=table.timeout)


def _compile_match(table: MatchTable) -> Match:
    return Match(
        namespaces=tuple(table.namespaces),
        pods=tuple(table.pods),
        labels=dict(table.labels),
        owner_kinds=tuple(table.owner_kinds),
        namespace_labels=dict(table.namespace_labels),
        node_labels=dict(table.node_labels),
    )


def _compile_step(table: StepTable) -> Step:
    return Step(
        above=table.above,
        for_s=table.for_s,
        do=Do(table.do),
        scope=table.scope,
        grace_s=table.grace,
        repeat_s=table.repeat,
        under_pressure=table.under_pressure,
        unwarned=table.unwarned,
    )


BUILT_IN_FILE: Final = Path(__file__).with_name("built_in.toml")
BUILT_IN_SOURCE: Final = "built-in policy"


def load_policy(path: Path) -> Policy:
    """Read a policy file; PolicyError with all of its mistakes, or with the one reason why it cannot be read."""
    return _compile(read_bytes(path), str(path))


def parse_policy(text: str, source: str) -> Policy:
    """Read a policy from a text; `source` stands for the file's name in the problems of a PolicyError."""
    return _compile(text.encode("utf-8", "surrogatepass"), source)


def read_policy(stream: BinaryIO, source: str) -> Policy:
    """Read a policy from a stream; `source` stands for the file's name in the problems of a PolicyError."""
    return _compile(read_stream(stream, source), source)


def built_in_policy() -> Policy:
    """The policy of `scan` where none is given: it observes, and knows the declarations that have one meaning only."""
    return _compile(read_bytes(BUILT_IN_FILE), BUILT_IN_SOURCE)


def _compile(data: bytes, source: str) -> Policy:
    document = parse_document(data, source)
    names = rule_names(document)
    checked = check_schema(document)
    mistakes = list(checked.mistakes)
    if checked.table is not None:
        mistakes += find_mistakes(checked.table, checked.spoilt)
    if mistakes or checked.table is None:
        raise PolicyError(
            Problem(source=source, path=format_path(mistake.location), what=mistake.what, rule=rule_of(mistake, names))
            for mistake in sorted(mistakes, key=sort_key)
        )
    warnings = tuple(
        f"{format_path(location)}: {what}" if location else what for location, what in find_warnings(checked.table)
    )
    return compile_policy(checked.table, sha256=hashlib.sha256(data).hexdigest(), source=source, warnings=warnings)
