"""Writes deploy/prometheus/prometheusrule.yaml: both rule files as one object for the Prometheus operator.

`python -m tools.prometheusrule` writes it again.
"""

import textwrap
from typing import Final

from tools import ROOT

FOLDER: Final = ROOT / "deploy" / "prometheus"
SOURCES: Final = (FOLDER / "recording.yaml", FOLDER / "alerts.yaml")
OBJECT: Final = FOLDER / "prometheusrule.yaml"
_BEGIN: Final = "groups:\n"
_HEAD: Final = """\
# The rules of recording.yaml and alerts.yaml for the Prometheus operator: what they are is said there. Don't edit this:
# `python -m tools.prometheusrule` writes it. See docs/alerts.md.
#
# What to set before it is applied: the labels that your Prometheus selects rules by (`kubectl get prometheus -A -o
# jsonpath='{.items[*].spec.ruleSelector}'`), for kube-prometheus-stack `release: NAME-OF-THE-RELEASE`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: gpu-watchdog
  namespace: gpu-memory-watchdog
  labels:
    app.kubernetes.io/name: gpu-memory-watchdog
spec:
  groups:
"""


def groups(text: str) -> str:
    """The groups of a rule file as it has them, comments between the rules included."""
    _, begin, rest = text.partition(_BEGIN)
    if not begin:
        raise ValueError(f"the rule file has no line {_BEGIN!r}")
    return rest


def prometheusrule() -> str:
    """The text of the object as it should be."""
    texts = (groups(source.read_text(encoding="utf-8")).rstrip() for source in SOURCES)
    return _HEAD + "\n\n".join(textwrap.indent(text, "  ") for text in texts) + "\n"


def main() -> None:
    """Write it."""
    OBJECT.write_text(prometheusrule(), encoding="utf-8")


if __name__ == "__main__":
    main()
