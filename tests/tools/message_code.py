"""The code of the program as syntax trees: its modules, and what a name in one of them stands for."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, TypeGuard

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "watchdog"

Function = ast.FunctionDef | ast.Lambda


@dataclass(eq=False)
class Module:
    """One module: its name with dots, and its tree."""

    name: str
    tree: ast.Module
    doc: str = field(init=False)

    def __post_init__(self) -> None:
        self.doc = ast.get_docstring(self.tree) or ""

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef]:
        """The functions at its top."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """The classes at its top."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """Names that come from another module of the program: the module and the name there."""
        return {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("watchdog")
            for alias in node.names
            if node.module
        }

    @cached_property
    def constants(self) -> dict[str, list[ast.expr]]:
        """What is assigned to the names at its top."""
        return assigned(self.tree.body)


def load_modules() -> dict[str, Module]:
    """Every module of the program by its name, in the order of the names."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, ast.parse(path.read_text(encoding="utf-8")))
    return found


def assigned(body: list[ast.stmt]) -> dict[str, list[ast.expr]]:
    """What statements assign to names, in their order; not what nested functions and classes do.

    Under `name +=` stands what is added to a name.
    """
    found: dict[str, list[ast.expr]] = {}
    for node in within(body):
        for name, value in _pairs(node):
            found.setdefault(name, []).append(value)
    return found


def _pairs(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            yield from ((name.id, value) for name, value in zip(names, values, strict=False) if _is_name(name))
        case ast.Assign(targets=targets, value=value):
            yield from ((target.id, value) for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.AugAssign(target=ast.Name(id=name), value=value):
            yield f"{name} +=", value
        case ast.NamedExpr(target=ast.Name(id=name), value=value):
            yield name, value


def _is_name(node: ast.expr) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)


class Blocks:
    """In which branches of a function each of its nodes stands: what is assigned in one may not hold in another."""

    def __init__(self, function: ast.AST) -> None:
        self._paths: dict[int, tuple[tuple[int, str], ...]] = {}
        self._place(function, ())

    def _place(self, node: ast.AST, path: tuple[tuple[int, str], ...]) -> None:
        self._paths[id(node)] = path
        for name, value in ast.iter_fields(node):
            inner = (*path, (id(node), name)) if isinstance(node, _BRANCHING) and isinstance(value, list) else path
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, ast.AST):
                    self._place(child, inner)

    def reaching(self, values: list[ast.expr], use: ast.AST) -> list[ast.expr]:
        """Those of the values assigned to a name, in their order, that it may have where it is used."""
        path, place = self._paths.get(id(use)), _place(use)
        if path is None:
            return values
        kept: list[ast.expr] = []
        for value in values:
            if _place(value) < place:
                at = self._paths[id(value)]
                if path[: len(at)] == at:
                    kept.clear()
                elif any(mine[0] == its[0] and mine != its for mine, its in zip(path, at, strict=False)):
                    continue
                kept.append(value)
        return kept or values


_BRANCHING: Final = (ast.If, ast.Try, ast.For, ast.While, ast.ExceptHandler, ast.Match, ast.match_case)


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def within(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Every node of statements, in their order, without those of nested functions and classes."""
    for statement in body:
        yield from _within(statement)


def _within(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _within(child)


def results(function: Function) -> list[ast.expr]:
    """What a function returns or yields."""
    if isinstance(function, ast.Lambda):
        return [function.body]
    nodes = [node for node in within(function.body) if isinstance(node, ast.Return | ast.Yield)]
    return [node.value for node in nodes if node.value is not None]


def gives_text(function: Function) -> bool:
    """Whether a function gives a text, or yields some, by its annotation."""
    if isinstance(function, ast.Lambda):
        return True
    written = ast.unparse(function.returns) if function.returns is not None else ""
    return written in ("str", "str | None", "Iterator[str]")


def called_name(node: ast.Call) -> str:
    """The last part of the name of what is called: `inert`, `BadParameter`."""
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def appends(node: ast.AST, name: str) -> TypeGuard[ast.Call]:
    """Whether a node appends to the list of this name."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=target), attr="append")):
            return target == name
    return False
