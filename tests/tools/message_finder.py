"""Finds the texts of the program that reach people: every text in it, but for those that stand where none is shown."""

import ast
import html
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tests.tools.message_code import Function, Module, called_name, results
from tests.tools.message_reader import Reader
from tests.tools.message_scope import Scope
from tests.tools.message_text import (
    EMPTY,
    Alt,
    Hole,
    Lit,
    Seq,
    Text,
    alt,
    count_words,
    has_blank,
    has_piece,
    seq,
    variants,
)

# Calls whose texts are shown to nobody: patterns, statements of SQL, keys, parts of names that are looked for.
_SILENT: Final = frozenset(
    {
        *("compile", "execute", "executescript", "executemany", "TypeVar", "getattr", "setattr", "Field"),
        *("split", "partition", "rpartition", "startswith", "endswith", "strftime", "Answer", "_frame_head"),
    }
)
_STYLE: Final = re.compile(
    r"_?STYLE|_LIGHT|_DARK|_ICON|PATTERNS|UNFINISHED|POLICY|_SCRIPT|_TEXT|CONTENT_TYPE|OPENMETRICS"
)
_SQL: Final = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|BEGIN|AND|ORDER|WITH|\(SELECT)\b")
_TAG: Final = re.compile(r"<[^<>]*>|^[^<>]*>|<[^<>]*$")
_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, kw_only=True)
class Found:
    """One text: in which module it is, its template, and the remedy that goes with it where that is a text of its own.

    `label` is what it belongs to: an option, a command, a thing that doctor looks at.
    """

    module: str
    text: Text
    node: ast.AST
    label: str = ""
    remedy: Text = EMPTY


def find(reader: Reader, modules: Mapping[str, Module]) -> list[Found]:
    """Every text of the modules that reaches people, in the order of the code."""
    found = [each for module in modules.values() for each in _Walker(reader, module).walk_module()]
    spent = reader.spent - reader.kept
    return [each for each in found if id(each.node) not in spent and (each.label or is_told(each.text))]


def is_told(text: Text) -> bool:
    """Whether a text says anything to people: two words at least, one of them in small letters."""
    if not has_blank(text) and not has_piece(text):
        return False
    return has_piece(text) or (count_words(text) >= 2 and bool(re.search(r"[a-z]{2}", _literals(text))))


def _literals(text: Text) -> str:
    match text:
        case Lit():
            return text.text
        case Hole():
            return " "
        case Seq():
            return "".join(map(_literals, text.parts))
    parts = text.choices if hasattr(text, "choices") else (text.item,)
    return " ".join(map(_literals, parts))


class _Walker:
    def __init__(self, reader: Reader, module: Module) -> None:
        self.reader = reader
        self.module = module

    def walk_module(self) -> Iterator[Found]:
        yield from self._walk_all(self.module.tree.body, Scope(module=self.module))

    def _walk_all(self, body: Iterable[ast.AST], scope: Scope) -> Iterator[Found]:
        for node in body:
            yield from self.walk(node, scope)

    def walk(self, node: ast.AST, scope: Scope) -> Iterator[Found]:  # noqa: C901 - one for each kind of node
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Compare() | ast.arguments():
                return
            case ast.ClassDef():
                yield from self._walk_all(node.body, replace(scope, owner=node))
            case ast.FunctionDef():
                yield from self._walk_function(node, scope)
            case (
                ast.Assign(targets=[target, *_], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value)
            ):
                if not _STYLE.fullmatch(ast.unparse(target)):
                    yield from self.walk(value, scope)
            case ast.Dict(values=values):
                yield from self._walk_all(values, scope)
            case ast.Subscript(value=value):
                yield from self.walk(value, scope)
            case ast.Name(id=name, ctx=ast.Load()):
                self.reader.keep(name, self.module)
            case ast.expr() if _is_text(node):
                yield from self._found(node, scope)
            case ast.Call():
                yield from self._walk_call(node, scope)
            case _:
                yield from self._walk_all(ast.iter_child_nodes(node), scope)

    def _walk_function(self, node: ast.FunctionDef, scope: Scope) -> Iterator[Found]:
        if node.name == "__repr__":
            return
        inner = replace(scope, functions=(*scope.functions, node))
        decorators = [ast.unparse(each) for each in node.decorator_list]
        if any(each.startswith(("main.command", "click.command", "click.group")) for each in decorators):
            doc = " ".join((ast.get_docstring(node) or "").split())
            yield Found(module=self.module.name, text=Lit(doc), node=node, label=node.name)
        yield from self._walk_all((*node.decorator_list, *node.body), inner)

    def _walk_call(self, node: ast.Call, scope: Scope) -> Iterator[Found]:
        name = called_name(node)
        if name in _SILENT:
            return
        if name == "Topic":
            yield from self._topic(node)
        elif name == "Kind" and (words := _keyword(node, "words")) is not None:
            self.reader.spent.add(id(words))
            text = self.reader.read(words, scope)
            text = Hole("the words that may stand there") if isinstance(text, Hole) else text
            yield Found(module=self.module.name, text=text, node=node, label="<words>")
        elif (gap := self._gap(node, scope)) is not None:
            yield Found(module=self.module.name, text=gap, node=node)
        else:
            label = _constant(node.args[0]) if name in ("option", "_path") and node.args else ""
            for found in self._walk_all((node.func, *node.args, *node.keywords), scope):
                yield replace(found, label=label) if label else found

    def _gap(self, node: ast.Call, scope: Scope) -> Text | None:
        """The text of a gap that is made here, or by a function that has no words of its own for it."""
        if called_name(node) == "Gap":
            return self._gap_text(node, scope)
        resolved = self.reader.function_of(node.func, scope)
        if resolved is None or not isinstance(resolved[0], ast.FunctionDef):
            return None
        function, around = resolved
        made = _made_gap(function)
        if made is None:
            return None
        inner = replace(around, functions=(*around.functions, function))
        own = self._gap_text(made, inner)
        if own is None or count_words(own) > 1:
            return None
        return self._gap_text(made, replace(inner, bound=self.reader.bind(function, node, scope)))

    def _gap_text(self, node: ast.Call, scope: Scope) -> Text | None:
        keywords = {each.arg: each.value for each in node.keywords if each.arg}
        if not {"what", "why"} <= keywords.keys():
            return None
        self.reader.spent.update((id(keywords["what"]), id(keywords["why"])))
        read = self.reader.read
        return seq((read(keywords["what"], scope), Lit(": "), read(keywords["why"], scope)))

    def _topic(self, node: ast.Call) -> Iterator[Found]:
        """What doctor can find of one thing: texts with `{names}` for what differs, each with its remedy."""
        keywords = {each.arg: each.value for each in node.keywords if each.arg}
        name = _constant(keywords["name"])
        yield Found(module=self.module.name, text=self.reader.read(keywords["means"], _NOWHERE), node=node, label=name)
        cases = keywords["cases"]
        for case in cases.values if isinstance(cases, ast.Dict) else ():
            if isinstance(case, ast.Call):
                what, remedy = (*(_template(_constant(each)) for each in case.args), EMPTY)[:2]
                label = f"{name} {called_name(case)}"
                yield Found(module=self.module.name, text=what, node=case, label=label, remedy=remedy)

    def _found(self, node: ast.expr, scope: Scope) -> Iterator[Found]:
        before = set(self.reader.spent)
        text = self.reader.read(node, scope)
        written = _literals(text)
        text = _without_tags(text) if "</" in written else text
        told = alt(choice for choice in variants(text) if is_told(choice)) if isinstance(text, Alt) else text
        if (
            _SQL.match(written)
            or "<!doctype" in written
            or "<meter" in written
            or written.count("\n") > 2
            or not is_told(text)
        ):
            self.reader.spent = before
        else:
            yield Found(module=self.module.name, text=told, node=node)


def _is_text(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=str()) | ast.JoinedStr():
            return True
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _is_text(left) or _is_text(right)
        case ast.IfExp(body=body, orelse=orelse):
            return _is_text(body) or _is_text(orelse)
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(map(_is_text, values))
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="join")):
            return True
    return False


def _made_gap(function: Function) -> ast.Call | None:
    made = (each for each in results(function) if isinstance(each, ast.Call) and called_name(each) == "Gap")
    return next(made, None)


def _keyword(node: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in node.keywords if keyword.arg == name), None)


def _constant(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _template(text: str) -> Text:
    """A text for `str.format`."""
    parts = _PLACEHOLDER.split(text)
    return seq(Hole(part.replace("_", " ")) if index % 2 else Lit(part) for index, part in enumerate(parts))


def _without_tags(text: Text) -> Text:
    """What a browser shows of a piece of a page."""
    if isinstance(text, Lit):
        return Lit(html.unescape(_TAG.sub("", text.text)))
    return seq(map(_without_tags, text.parts)) if isinstance(text, Seq) else text


_NOWHERE: Final = Scope(module=Module("", ast.Module(body=[], type_ignores=[])))
