"""What a soak fails with."""

from typing import NoReturn


class Violation(AssertionError):  # noqa: N818 - it is no error of the program that runs
    """A law was broken; the text begins with the law."""


def fail(law: str, what: object) -> NoReturn:
    """Fail: `law` was broken, and how."""
    raise Violation(f"{law}: {what}")
