"""Kinds of values that name things of Kubernetes: namespaces, pods, owners, labels, resources and annotations."""

import re
from typing import Final

from watchdog.config.fields import FieldError, Kind, expect_text, quote

CONTAINER: Final = "{container}"
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_KEY_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_KEY_DOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*")
_WILD: Final = re.compile(r"[*?]")


def _is_key(text: str) -> bool:
    domain, slash, name = text.rpartition("/")
    return bool(_KEY_NAME.fullmatch(name)) and (
        not slash or (len(domain) < 254 and bool(_KEY_DOMAIN.fullmatch(domain)))
    )


def pattern(what: str, like: str, *, characters: str = "-a-z0-9.", slash: bool = False) -> Kind[str]:
    """A name of the given characters in which `*` stands for any characters and `?` for one."""
    part = re.compile(rf"[{characters}*?]{{1,253}}")

    def read(value: object) -> str:
        text = expect_text(value, like)
        if all(part.fullmatch(name) for name in (text.split("/", 1) if slash else [text])):
            return text
        raise FieldError(
            f"{quote(text)} can't be {what}, like {quote(like)}; in a name * stands for any characters and ? for one"
        )

    return Kind(words=f"{what}, like {quote(like)}", read=read, write=str)


def key(what: str, *, wild: bool = False, container: bool = False, optional: bool = False) -> Kind[str]:
    """The key of a label or an annotation; where told so, with `*` and `?` or `{container}` in it, or empty."""
    words = [what]
    words += ["`*` and `?` may stand in it"] * wild
    words += [f"`{CONTAINER}` stands for the container's name"] * container
    words += ["empty for none"] * optional

    def read(value: object) -> str:
        text = expect_text(value, "example.com/gpu-memory")
        if not text and optional:
            return text
        if CONTAINER in text and not container:
            raise FieldError(f"{CONTAINER} may stand only in the key of an annotation or a label")
        plain = _WILD.sub("x", text) if wild else text
        if not _is_key(plain.replace(CONTAINER, "x")):
            raise FieldError(f'{quote(text)} is not {what}: NAME or DOMAIN/NAME, like "example.com/gpu-memory"')
        return text

    return Kind(words="; ".join(words), read=read, write=str)


def resource(*, wild: bool = False) -> Kind[str]:
    """The name of an extended resource; those without a domain are Kubernetes' own, and none of them is GPU memory."""
    plain = key("the name of a resource", wild=wild)

    def read(value: object) -> str:
        text = plain.read(value)
        if "/" not in text:
            raise FieldError(f'{quote(text)} has no domain; a GPU resource is named like "example.com/gpu-memory"')
        return text

    return Kind(words=plain.words, read=read, write=str)


def label_value() -> Kind[str]:
    """The value that a label must have."""

    def read(value: object) -> str:
        text = expect_text(value, "dev")
        if text and not _KEY_NAME.fullmatch(_WILD.sub("x", text)):
            raise FieldError(f"{quote(text)} can't be a label's value: at most 63 letters, digits, -, _ and .")
        return text

    return Kind(words="a label's value; `*` and `?` may stand in it", read=read, write=str)
