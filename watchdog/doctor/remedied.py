"""Sentences that bring their own remedy, as gaps and refusals do: what is wrong; what helps."""


def remedied(sentence: str, otherwise: str) -> dict[str, str]:
    """The two parts around the last semicolon; where there is no remedy in it, `otherwise` is one."""
    problem, _, remedy = sentence.rpartition("; ")
    return {"problem": problem, "remedy": remedy} if problem else {"problem": sentence, "remedy": otherwise}
