"""What those who use the API on threads of their own have to say to an operator."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What an operator should know, in a sentence."""

    text: str
    is_problem: bool = False
