"""What the names in an expression of the program stand for: variables, constants, functions."""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tests.tools.message_code import Blocks, Function, Module, assigned, gives_text
from tests.tools.message_text import Text


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Where an expression stands: what its names stand for. `functions` are those around it, the innermost last."""

    module: Module
    functions: tuple[Function, ...] = ()
    owner: ast.ClassDef | None = None
    bound: Mapping[str, Text] = field(default_factory=dict)


@dataclass(kw_only=True)
class Piece:
    """A text that is written out in a place of its own, since others have it within them."""

    label: str
    module: str
    text: Text


class Names:
    """Finds what names stand for, in all modules of the program."""

    def __init__(self, modules: Mapping[str, Module]) -> None:
        self.modules = modules
        self._assigned: dict[int, dict[str, list[ast.expr]]] = {}
        self._blocks: dict[int, Blocks] = {}

    def assigned_in(self, function: Function) -> dict[str, list[ast.expr]]:
        """What a function assigns to names."""
        if id(function) not in self._assigned:
            self._assigned[id(function)] = {} if isinstance(function, ast.Lambda) else assigned(function.body)
        return self._assigned[id(function)]

    def blocks_of(self, function: Function) -> Blocks:
        """The branches of a function."""
        if id(function) not in self._blocks:
            self._blocks[id(function)] = Blocks(function)
        return self._blocks[id(function)]

    def constant(self, name: str, module: Module) -> tuple[Module, list[ast.expr]]:
        """The module in which a name at the top of one is assigned, and what is assigned to it there."""
        if name in module.imports:
            source, name = module.imports[name]
            module = self.modules.get(source, module)
        return module, module.constants.get(name, [])

    def function_of(self, node: ast.expr, scope: Scope) -> tuple[Function, Scope] | None:
        """The function of the program that an expression names."""
        if isinstance(node, ast.Lambda):
            return node, replace(scope, functions=(*scope.functions, node))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            method = method_of(scope.owner, node.attr)
            return None if method is None else (method, Scope(module=scope.module, owner=scope.owner))
        if not isinstance(node, ast.Name):
            return None
        for depth in range(len(scope.functions), 0, -1):
            around = scope.functions[depth - 1]
            if isinstance(around, ast.FunctionDef):
                for inner in around.body:
                    if isinstance(inner, ast.FunctionDef) and inner.name == node.id:
                        return inner, replace(scope, functions=scope.functions[:depth])
        module, name = scope.module, node.id
        if name in module.imports:
            source, name = module.imports[name]
            module = self.modules.get(source, module)
        function = module.functions.get(name)
        return None if function is None else (function, Scope(module=module))


def method_of(owner: ast.ClassDef | None, name: str) -> ast.FunctionDef | None:
    """A method or property of a class that gives a text."""
    found = (node for node in (owner.body if owner is not None else ()) if isinstance(node, ast.FunctionDef))
    return next((node for node in found if node.name == name and gives_text(node)), None)


def parameters_of(function: Function) -> list[str]:
    """The names of a function's parameters."""
    arguments = function.args
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def defaults_of(function: Function) -> Iterable[tuple[str, ast.expr]]:
    """The parameters of a function whose default is a text, each with it."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [*zip(reversed(positional), reversed(arguments.defaults), strict=False)]
    pairs += [(arg, value) for arg, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
    return [(arg.arg, value) for arg, value in pairs if isinstance(getattr(value, "value", None), str)]


def fields_of_tuple(owner: ast.ClassDef) -> list[str]:
    """The names of the fields of a tuple with names."""
    fields = (each.target for each in owner.body if isinstance(each, ast.AnnAssign))
    return [field.id for field in fields if isinstance(field, ast.Name)]
