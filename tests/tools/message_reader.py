"""Reads an expression of the program as the template of the text that it gives."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from tests.tools.message_code import Function, Module, appends, called_name, gives_text, results, within
from tests.tools.message_names import label_of, name_of, pretty
from tests.tools.message_scope import Names, Piece, Scope, defaults_of, fields_of_tuple, method_of, parameters_of
from tests.tools.message_text import (
    EMPTY,
    Alt,
    Hole,
    Lit,
    Many,
    Text,
    after,
    alt,
    count_words,
    has_piece,
    is_small,
    seq,
)

# What gives its first argument back, as far as words go.
_SAME: Final = frozenset({"inert", "clip", "shorten", "capital", "str", "_fit", "_text", "_plain_text"})
_SAME_METHODS: Final = frozenset({"strip", "rstrip", "lstrip", "removesuffix", "removeprefix", "format", "ljust"})
# What writes a value for people; the words that some of them have are those of a unit.
_FORMATS: Final = re.compile(r"format_\w+|span|clock_time|date_time|rfc3339|byte_cell|title|encode|bar|paint")


class Reader(Names):
    """Reads expressions; `pieces` and `spent` grow with it.

    `spent` are the nodes whose text has become a part of another one, so that they need no line of their own, unless
    they are in `kept` too.
    """

    def __init__(self, modules: Mapping[str, Module]) -> None:
        super().__init__(modules)
        self.pieces: dict[int, Piece] = {}
        self.spent: set[int] = set()
        self.kept: set[int] = set()
        self._active: list[int] = []

    def read(self, node: ast.expr, scope: Scope) -> Text:
        """The template of an expression; what has no fixed words in it is a hole with a name."""
        if id(node) in self._active:
            return Hole(name_of(node))
        self._active.append(id(node))
        try:
            return self._read(node, scope)
        finally:
            self._active.pop()

    def _read(self, node: ast.expr, scope: Scope) -> Text:  # noqa: C901, PLR0911, PLR0912 - one for each kind of node
        match node:
            case ast.Constant(value=None):
                return EMPTY
            case ast.Constant(value=value):
                return Lit(str(value))
            case ast.JoinedStr(values=values):
                return seq(self.read(value, scope) for value in values)
            case ast.FormattedValue(value=value):
                return self.read(value, scope)
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                return self._if_worded(seq((self.read(left, scope), self.read(right, scope))), node)
            case ast.IfExp(body=body, orelse=orelse):
                return self._if_worded(alt((self.read(body, scope), self.read(orelse, scope))), node)
            case ast.BoolOp(op=ast.Or(), values=values):
                return self._either([self.read(value, scope) for value in values], node)
            case ast.Name():
                return self._read_name(node, scope)
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute):
                method = method_of(scope.owner, attribute)
                return self._read_function(method, scope, {}) if method is not None else Hole(name_of(node))
            case ast.Attribute():
                return self._if_worded(alt(self._fields(node, scope)), node)
            case ast.Subscript(value=value):
                return self._if_worded(alt(self._values(value, scope)), node)
            case ast.Call():
                return self._read_call(node, scope)
            case _:
                return _folded(node) or Hole(name_of(node))

    def _if_worded(self, text: Text, node: ast.expr) -> Text:
        return text if count_words(text) or has_piece(text) else Hole(name_of(node))

    def _either(self, choices: list[Text], node: ast.expr) -> Text:
        kept: list[Text] = []
        for choice in choices:
            if choice != EMPTY:
                kept.append(choice)
            if isinstance(choice, Lit) and choice != EMPTY:
                break
        return self._if_worded(alt(kept), node) if kept else EMPTY

    def _read_name(self, node: ast.Name, scope: Scope) -> Text:
        name = node.id
        if name in scope.bound:
            return scope.bound[name]
        for depth in range(len(scope.functions), 0, -1):
            function = scope.functions[depth - 1]
            if name in parameters_of(function):
                return Hole(pretty(name))
            values = self.assigned_in(function).get(name)
            if values is not None:
                around = replace(scope, functions=scope.functions[:depth])
                return self._read_variable(name, function, self.blocks_of(function).reaching(values, node), around)
        return self._read_constant(name, scope.module)

    def _read_variable(self, name: str, function: Function, values: list[ast.expr], scope: Scope) -> Text:
        text = alt(self.read(value, scope) for value in values)
        more = self.assigned_in(function).get(f"{name} +=", [])
        text = seq((text, *(alt((self.read(value, scope), EMPTY)) for value in more)))
        if not count_words(text) and not has_piece(text):
            return Hole(pretty(name)) if text != EMPTY else EMPTY
        self.spent.update(id(value) for value in (*values, *more) if id(value) not in self._active)
        return text

    def _read_constant(self, name: str, module: Module) -> Text:
        module, values = self.constant(name, module)
        if not values or name == "__version__":
            return Hole(pretty(name))
        text = self.read(values[-1], Scope(module=module))
        if isinstance(text, Hole):
            return Hole(pretty(name))
        self.spent.add(id(values[-1]))
        return text

    def keep(self, name: str, module: Module) -> None:
        """Note that a constant is shown by itself too, whatever texts it is a part of."""
        self.kept.update(map(id, self.constant(name, module)[1]))

    def _values(self, node: ast.expr, scope: Scope) -> list[Text]:
        """The texts of a dictionary, written out or a constant: any of them may be looked up."""
        if isinstance(node, ast.Name):
            for function in reversed(scope.functions):
                values = self.assigned_in(function).get(node.id)
                if values:
                    return self._values(values[-1], scope)
            return self._values_of_constant(node.id, scope.module)
        if not isinstance(node, ast.Dict):
            return [Hole(name_of(node))]
        self.spent.update(id(value) for value in node.values)
        return [self._result(value, scope) for value in node.values]

    def _fields(self, node: ast.Attribute, scope: Scope) -> Iterator[Text]:
        """One field of each of the tuples with names in a constant dictionary: `TABLE[key].field`."""
        looked_up: ast.expr = node.value
        if isinstance(looked_up, ast.Name) and scope.functions:
            looked_up = self.assigned_in(scope.functions[-1]).get(looked_up.id, [looked_up])[-1]
        if not isinstance(looked_up, ast.Subscript) or not isinstance(looked_up.value, ast.Name):
            return
        module, found = self.constant(looked_up.value.id, scope.module)
        for value in found[-1].values if found and isinstance(found[-1], ast.Dict) else ():
            if isinstance(value, ast.Call) and called_name(value) in module.classes:
                given = dict(zip(fields_of_tuple(module.classes[called_name(value)]), value.args, strict=False))
                if node.attr in given:
                    yield self.read(given[node.attr], Scope(module=module))

    def _values_of_constant(self, name: str, module: Module) -> list[Text]:
        module, found = self.constant(name, module)
        if not found or not isinstance(found[-1], ast.Dict):
            return [Hole(pretty(name))]
        table = found[-1]
        texts = [self._result(value, Scope(module=module)) for value in table.values]
        if not count_words(alt(texts)):
            return [Hole(pretty(name))]
        self.spent.update(id(value) for value in table.values)
        return texts if is_small(alt(texts)) else [self._piece(table, name, module, alt(texts))]

    def _result(self, value: ast.expr, scope: Scope) -> Text:
        """A value of a dictionary; of a function, what it gives."""
        function = self.function_of(value, scope)
        return self.read(value, scope) if function is None else self._read_function(function[0], function[1], {})

    def _read_call(self, node: ast.Call, scope: Scope) -> Text:  # noqa: PLR0911 - one for each kind of call
        name, first = called_name(node), node.args[0] if node.args else None
        if name in _SAME and first is not None:
            return self._if_worded(self._result(first, scope), node)
        if _FORMATS.fullmatch(name):
            return Hole(name_of(node))
        if name == "quote" and first is not None:
            text = self.read(first, scope)
            return seq((Lit('"'), text, Lit('"'))) if isinstance(text, Lit) else Hole(name_of(node))
        if isinstance(node.func, ast.Attribute) and name in _SAME_METHODS:
            return self._if_worded(self.read(node.func.value, scope), node)
        if name == "join" and first is not None:
            return self._if_worded(self._read_join(node, first, scope), node)
        if name == "get" and isinstance(node.func, ast.Attribute) and first is not None:
            default = [self.read(each, scope) for each in node.args[1:]]
            return self._if_worded(alt((*self._values(node.func.value, scope), *default)), node)
        if name == "next" and len(node.args) == 2:
            return self._if_worded(alt((Hole(name_of(node.args[0])), self.read(node.args[1], scope))), node)
        if isinstance(node.func, ast.Subscript):
            return self._if_worded(alt(self._values(node.func.value, scope)), node)
        found = self.function_of(node.func, scope)
        if found is None or not gives_text(found[0]):
            return Hole(name_of(node))
        return self._read_function(*found, self.bind(found[0], node, scope), node)

    def _read_join(self, node: ast.Call, first: ast.expr, scope: Scope) -> Text:
        separator = self.read(node.func.value, scope) if isinstance(node.func, ast.Attribute) else EMPTY
        if isinstance(first, ast.GeneratorExp | ast.ListComp):
            loop = first.generators[0]
            if ast.dump(first.elt) != ast.dump(loop.target).replace("Store()", "Load()"):
                return Many(self.read(first.elt, scope))
            first = loop.iter
        listed, appended = self._listed(first, scope)
        if listed is None:
            return Hole(name_of(first))
        if appended:
            return Many(alt((*listed, *appended)))
        return seq(after(separator, text) if index else text for index, text in enumerate(listed))

    def _listed(self, node: ast.expr, scope: Scope) -> tuple[list[Text] | None, list[Text]]:
        """The items of a list or tuple that is written out, and those that are appended to it."""
        if isinstance(node, ast.List | ast.Tuple):
            self.spent.update(id(each) for each in node.elts)
            return [self.read(each, scope) for each in node.elts], []
        if isinstance(node, ast.Name) and scope.functions:
            function = scope.functions[-1]
            values = self.assigned_in(function).get(node.id)
            if values and isinstance(function, ast.FunctionDef):
                listed, _ = self._listed(values[0], scope)
                added = [call.args[0] for call in within(function.body) if appends(call, node.id)]
                self.spent.update(map(id, added))
                return listed, [self.read(each, scope) for each in added]
        return None, []

    def bind(self, function: Function, call: ast.Call, scope: Scope) -> dict[str, Text]:
        names = parameters_of(function)
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        given = dict(zip(names, call.args, strict=False)) | {each.arg: each.value for each in call.keywords if each.arg}
        bound = {name: self.read(value, scope) for name, value in given.items()}
        if gives_text(function):
            self.spent.update(id(value) for value in given.values() if isinstance(value, ast.Constant))
        bound |= {name: self.read(value, scope) for name, value in defaults_of(function) if name not in bound}
        return {name: text for name, text in bound.items() if text != EMPTY or name not in given}

    def _read_function(
        self, function: Function, scope: Scope, bound: Mapping[str, Text], call: ast.Call | None = None
    ) -> Text:
        if id(function) in self._active:
            return Hole(name_of(call) if call is not None else pretty(getattr(function, "name", "text")))
        self._active.append(id(function))
        inner = replace(scope, functions=(*scope.functions, function))
        try:
            text = alt(self.read(value, replace(inner, bound=bound)) for value in results(function))
            if not count_words(text) and not has_piece(text):
                return Hole(name_of(call) if call is not None else pretty(getattr(function, "name", "text")))
            self.spent.update(map(id, results(function)))
            if is_small(text) or not isinstance(function, ast.FunctionDef):
                return text
            worded = {name: given for name, given in bound.items() if count_words(given) or has_piece(given)}
            whole = alt(self.read(value, replace(inner, bound=worded)) for value in results(function))
            piece = self._piece(function, function.name, scope.module, whole)
            return alt((piece, EMPTY)) if isinstance(whole, Alt) and EMPTY in whole.choices else piece
        finally:
            self._active.pop()

    def _piece(self, node: ast.AST, name: str, module: Module, text: Text) -> Hole:
        known = self.pieces.get(id(node))
        if known is None:
            label = label_of(name, module.name, {piece.label for piece in self.pieces.values()})
            self.pieces[id(node)] = Piece(label=label, module=module.name, text=text)
        else:
            known.text = alt((known.text, text))
        return Hole(self.pieces[id(node)].label, is_piece=True)


def _folded(node: ast.expr) -> Text | None:
    """A number that is worked out of numbers."""
    if all(isinstance(each, ast.Constant | ast.BinOp | ast.operator | ast.expr_context) for each in ast.walk(node)):
        return Lit(str(eval(compile(ast.Expression(node), "", "eval"))))
    return None
