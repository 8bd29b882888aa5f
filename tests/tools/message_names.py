"""Names for what differs in a message, from the expressions of the code that give it."""

import ast
import re
from collections.abc import Collection
from typing import Final

# Better names for texts that are listed by themselves, where a function's name says little to people.
_LABELS: Final = {
    "describe": "what stands there",
    "plain mark": "height",
    "bound": "bound of the policy",
    "plain": "reason without a bound",
    "remedies": "reason against enforcing",
    "nvml errors: remedies": "remedy",
    "deed": "what is done",
    "done": "what was done",
    "observed": "what would have been done",
    "follow": "what follows",
    "held": "why it is held back",
    "withheld": "what is held back",
}
_BLAND: Final = frozenset({"value", "strerror", "text", "name", "title", "path", "what", "reason", "args", "self"})
_NAMES: Final = {
    "error": "cause",
    "len": "number",
    "at": "time",
    "describe": "what is there",
    "base": "kill or evict",
    "doing": "killing or evicting",
    "done": "killed or evicted",
    "verb": "killing or evicting",
}


def name_of(node: ast.expr) -> str:  # noqa: C901, PLR0911 - one for each kind of node
    """A name for what differs, from the expression that gives it."""
    match node:
        case ast.Name(id=name):
            return pretty(name)
        case ast.Attribute(value=value, attr=attr):
            return name_of(value) if attr in _BLAND and not _is_self(value) else pretty(attr)
        case ast.Call(func=ast.Name(id="map"), args=[_, second, *_]):
            return name_of(second)
        case ast.Call(args=[first, *_]) if not isinstance(first, ast.GeneratorExp):
            return name_of(first)
        case ast.Call(func=ast.Attribute(value=value, attr=attr)):
            return pretty(attr) if _is_self(value) else name_of(value)
        case ast.Subscript(slice=ast.Constant(value=str() as key)):
            return pretty(key)
        case ast.Subscript(value=value) | ast.FormattedValue(value=value) | ast.Starred(value=value):
            return name_of(value)
        case ast.IfExp(body=body):
            return name_of(body)
        case ast.BoolOp(values=[first, *_]) | ast.JoinedStr(values=[first, *_]):
            return name_of(first)
        case ast.BinOp():
            return "number"
        case ast.GeneratorExp(generators=[first, *_]) | ast.ListComp(generators=[first, *_]):
            return name_of(first.iter)
        case ast.Call(func=ast.Name(id=name)):
            return pretty(name)
    return "value"


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def pretty(name: str) -> str:
    """A name of the code as words."""
    words = words_of(name)
    return _NAMES.get(words, words)


def words_of(name: str) -> str:
    """A name of the code with blanks, without its unit."""
    return re.sub(r" s$", "", name.strip("_").replace("_", " ").lower())


def label_of(name: str, module: str, taken: Collection[str]) -> str:
    """A name for a text of its own, with a capital, so that it can't be taken for what differs."""
    label = _LABELS.get(words_of(name), words_of(name)).capitalize()
    if label in taken:
        both = f"{words_of(module.rpartition('.')[2])}: {words_of(name)}"
        label = _LABELS.get(both, both).capitalize()
    return label
