"""Writes what deploy/ has of other sources: the shipped policy, and the rights that a policy needs.

`python -m tests.deploy.manifest` writes it anew: config/policy.toml and its rights into deploy/daemonset.yaml, and each
piece of the rights into a file of deploy/rbac/.
"""

import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from watchdog.config.load import load_policy
from watchdog.core.policy import Capacity, Do, Mark, Match, Policy, Rule, Step
from watchdog.kube.access.manifests import ServiceAccount, render, render_admission, render_role
from watchdog.kube.access.rights import Piece, rights_of

ROOT: Final = Path(__file__).parents[2]
MANIFEST: Final = ROOT / "deploy" / "daemonset.yaml"
PIECES: Final = ROOT / "deploy" / "rbac"
POLICY: Final = ROOT / "config" / "policy.toml"
ACCOUNT: Final = ServiceAccount()
RESOURCE: Final = "veriff.com/gpu-memory"
# Uses all there is.
EVERYTHING: Final = Policy(
    sha256="",
    source="",
    mode="enforce",
    rules=(
        Rule(
            name="all",
            match=Match(namespace_labels={"a": "b"}),
            steps=(Step(above=Mark(amount=1), for_s=0.0, do=Do.EVICT),),
        ),
    ),
    capacity=Capacity(resource=RESOURCE),
)
_BEGIN_POLICY: Final = "  policy.toml: |\n"
_BEGIN_RIGHTS: Final = "`python -m tests.deploy.manifest` writes them anew.\n"
_END_POLICY: Final = "\n---\n"
_END_RIGHTS: Final = "---\napiVersion: v1\nkind: ConfigMap\n"
_HEADS: Final = {
    "observe": "What every policy needs, and Events, for one that enforces or has `observe = true` in [events].",
    "node": "What every policy needs: the node says when the driver is to be let go for maintenance.",
    "namespaces": "For a policy with a rule that has `namespace_labels`.",
    "evict": 'For a policy that enforces and has a step with `do = "evict"`; with the second half of admission.yaml.',
    "capacity": "For a policy with [capacity]; with the first half of admission.yaml.",
    "admission": f"What ties evict.yaml and capacity.yaml down. It lets {RESOURCE} be changed: put yours in its place.",
}


def with_policy(manifest: str, policy: str) -> str:
    """The text of the manifest with this policy in its ConfigMap."""
    head, begin, rest = manifest.partition(_BEGIN_POLICY)
    if not begin:
        raise ValueError(f"{MANIFEST.name} has no line {_BEGIN_POLICY!r}")
    _, end, tail = rest.partition(_END_POLICY)
    return f"{head}{begin}{textwrap.indent(policy.rstrip(), '    ')}{end}{tail}"


def with_rights(manifest: str, policy: Policy) -> str:
    """The text of the manifest with the rights that this policy needs once it enforces."""
    head, begin, rest = manifest.partition(_BEGIN_RIGHTS)
    if not begin:
        raise ValueError(f"{MANIFEST.name} has no line that ends in {_BEGIN_RIGHTS!r}")
    _, end, tail = rest.partition(_END_RIGHTS)
    return f"{head}{begin}\n{render(replace(policy, mode='enforce'), ACCOUNT)}{end}{tail}"


def pieces() -> Mapping[str, str]:
    """The files of deploy/rbac/ by their names: each piece by itself, for whoever puts rights together by hand."""
    rights = rights_of(EVERYTHING)
    texts = {f"{piece}": render_role(piece, rights, ACCOUNT) for piece in Piece}
    texts["admission"] = "---\n".join(render_admission(EVERYTHING, ACCOUNT))
    return {f"{name}.yaml": f"# {_HEADS[name]}\n---\n{text}" for name, text in texts.items()}


def manifest() -> str:
    """The text of deploy/daemonset.yaml as it should be."""
    text = with_policy(MANIFEST.read_text(encoding="utf-8"), POLICY.read_text(encoding="utf-8"))
    return with_rights(text, load_policy(POLICY))


def main() -> None:
    """Write all of it."""
    MANIFEST.write_text(manifest(), encoding="utf-8")
    PIECES.mkdir(exist_ok=True)
    for name, text in pieces().items():
        (PIECES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
