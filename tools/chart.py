"""Writes what deploy/chart/ has of other sources: the shipped policy, the rights in pieces, what is for Prometheus.

`python -m tools.chart` writes it again. The pieces are templates: the account and the policy are the release's.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools import ROOT
from tools.rights import POLICY
from watchdog.kube.kinds import Piece
from watchdog.kube.rights import (
    ALL_RIGHTS,
    Restriction,
    ServiceAccount,
    capacity_admission,
    capacity_markers,
    eviction_admission,
    eviction_markers,
    node_admission,
    render_personal,
    render_role,
)

CHART: Final = ROOT / "deploy" / "chart"
_ACCOUNT: Final = ServiceAccount(namespace="{{ .Release.Namespace }}", name='{{ include "watchdog.account" . }}')
_COPIED: Final = ("prometheus/podmonitor.yaml", "prometheus/prometheusrule.yaml", "grafana/gpu-memory-watchdog.json")
_LABELS: Final = "  labels:\n    app.kubernetes.io/name: gpu-memory-watchdog\n"
_TEMPLATED: Final = '  labels:\n    {{- include "watchdog.labels" . | nindent 4 }}\n'
_HOOK: Final = """\
  annotations:
    helm.sh/hook: post-delete
    helm.sh/hook-weight: "0"
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
"""
_MARKERS: Final = {
    Piece.CAPACITY: capacity_markers('{{ (include "watchdog.policy" . | fromJson).capacity.resource }}'),
    Piece.EVICT: eviction_markers(['{{ include "watchdog.spared" . }}']),
}

_IS_REMOVED: Final = """\
    - expression: request.operation == 'UPDATE' && variables.changed.all(k, !(k in variables.after))
      message: this account may only take an entry out of the status.capacity of nodes
      reason: Forbidden
"""


def withdrawal_admission(name: str) -> str:
    """Limit the right to change the status of nodes to removing one resource; YAML documents.

    It covers any node, for the account that cleans up after the daemons (deploy/chart).
    """
    comment = "The account of the uninstallation may only remove this one entry of a node's capacity."
    return node_admission(comment, name, Restriction.WITHDRAWAL, validations=_IS_REMOVED)


def files() -> Mapping[str, str]:
    """The text of each file below deploy/chart/files, by its path there."""
    silent = [right for right in ALL_RIGHTS if right.group == ""]
    texts = {
        "observe": render_role(Piece.OBSERVE, silent, _ACCOUNT),
        "observe-events": render_role(Piece.OBSERVE, ALL_RIGHTS, _ACCOUNT),
        **{
            str(piece): render_role(piece, ALL_RIGHTS, _ACCOUNT, _MARKERS.get(piece, ()))
            for piece in Piece
            if piece is not Piece.OBSERVE
        },
        "capacity-admission": capacity_admission(_ACCOUNT.object_name(Piece.CAPACITY)),
        "withdraw-admission": _as_hook(withdrawal_admission(f"{_ACCOUNT.name}-withdraw")),
        "evict-admission": eviction_admission(_ACCOUNT.object_name(Piece.EVICT)),
        "people": render_personal(_ACCOUNT),
    }
    pieces = {f"rbac/{name}.yaml": text.replace(_LABELS, _TEMPLATED) for name, text in texts.items()}
    # helm reads no file outside of the chart.
    copied = {Path(name).name: (ROOT / "deploy" / name).read_text(encoding="utf-8") for name in _COPIED}
    return {"policy.toml": POLICY.read_text(encoding="utf-8"), **copied, **pieces}


def _as_hook(manifests: str) -> str:
    """Have helm make objects for the time of an uninstallation alone."""
    assert _LABELS in manifests
    return manifests.replace(_LABELS, f"{_LABELS}{_HOOK}")


def main() -> None:
    """Write all of it."""
    for name, text in files().items():
        path: Path = CHART / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
