"""Writes deploy/rbac/: each piece of the rights that a policy may need, for putting them together by hand.

`python -m tools.rights` writes it again, from what `gpu-watchdog rights` prints.
"""

from collections.abc import Mapping
from typing import Final

from tools import ROOT
from watchdog.core.policy import Capacity, Do, Match, Policy, Rule, Step, Threshold
from watchdog.kube.kinds import Piece
from watchdog.kube.rights import (
    ALL_RIGHTS,
    NEEDED_BY,
    ServiceAccount,
    markers_of,
    render_admission,
    render_personal,
    render_role,
)

PIECES: Final = ROOT / "deploy" / "rbac"
POLICY: Final = ROOT / "config" / "policy.toml"
ACCOUNT: Final = ServiceAccount()
RESOURCE: Final = "veriff.com/gpu-memory"
# Uses all there is.
EVERYTHING: Final = Policy(
    sha256="",
    source="",
    mode="enforce",
    schemes=("dra",),
    rules=(
        Rule(
            name="all",
            match=Match(namespace_labels={"a": "b"}),
            steps=tuple(Step(above=Threshold(amount=1), for_s=0.0, do=do) for do in Do),
        ),
    ),
    capacity=Capacity(resource=RESOURCE),
)
_HEADS: Final[Mapping[str, str]] = {
    **{piece: text.replace("{resource}", RESOURCE) for piece, text in NEEDED_BY.items()},
    "people": "For people, whatever the policy: each role for those whom you bind it to. docs/rights.md",
    "admission": "Restricts the rights in evict.yaml and capacity.yaml, whatever the names of account and namespace.",
}


def pieces() -> Mapping[str, str]:
    """The files of deploy/rbac/ by their names: each piece separately, to put rights together by hand."""
    markers = markers_of(EVERYTHING)
    texts = {str(piece): render_role(piece, ALL_RIGHTS, ACCOUNT, markers.get(piece, ())) for piece in Piece}
    texts["admission"] = "---\n".join(render_admission(EVERYTHING, ACCOUNT))
    texts["people"] = render_personal(ACCOUNT)
    return {f"{name}.yaml": f"# {_HEADS[name]}\n---\n{text}" for name, text in texts.items()}


def main() -> None:
    """Write all of it."""
    PIECES.mkdir(exist_ok=True)
    for name, text in pieces().items():
        (PIECES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
