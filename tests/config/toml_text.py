"""A small writer of TOML: every table in braces, every text in double quotes."""

import json
from collections.abc import Mapping
from typing import Any


def to_toml(document: Mapping[str, Any]) -> str:
    """Write a document as one line a key of the top."""
    return "".join(f"{json.dumps(key)} = {value_to_toml(value)}\n" for key, value in document.items())


def value_to_toml(value: object) -> str:
    """Write one value."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{json.dumps(key)} = {value_to_toml(item)}" for key, item in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_to_toml, value))}]"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        # Beyond the basic plane JSON writes two surrogates, which TOML has not.
        return json.dumps(value) if value.isascii() else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)
