"""`gpu-watchdog top --cluster`: the GPUs of every node, the most urgent pods of all, and who does not answer."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from watchdog import clock
from watchdog.cli.cluster_rows import cluster_text
from watchdog.cli.fleet import Fleet
from watchdog.cli.tables import output_width
from watchdog.cli.views import Choice, prepare
from watchdog.kube.failure import DaemonError
from watchdog.kube.prometheus import ask_service, ask_url
from watchdog.report.text import inert

if TYPE_CHECKING:
    from watchdog.cli.cluster_daemons import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChoice:
    """Which cluster is shown, and by whose answers."""

    # The files and the context, as in `ContextChoice`.
    kubeconfig: Path | None = None
    context: str = ""
    # Of the watchdog's pods; empty: all.
    namespace: str = ""
    # The URL of a Prometheus, or `NAMESPACE/SERVICE:PORT`; empty: the daemons are asked.
    prometheus: str = ""
    # Headers for a Prometheus at a URL.
    headers: Mapping[str, str]


@contextmanager
def opened(which: ClusterChoice) -> "Iterator[Cluster | Fleet]":
    """What is asked; click's error if nothing can be."""
    try:
        if "://" in which.prometheus:
            yield Fleet(ask_url(which.prometheus, which.headers))
        else:
            with _through_api(which) as source:
                yield source
    except DaemonError as error:
        raise click.ClickException(inert(str(error), 1000)) from error


@contextmanager
def _through_api(which: ClusterChoice) -> "Iterator[Cluster | Fleet]":
    # A Prometheus at a URL needs none of these, which take longer to load than the rest of the command.
    from watchdog.cli.cluster_daemons import Cluster
    from watchdog.kube.client import PERSONAL_AGENT, Api
    from watchdog.kube.kubeconfig import ContextChoice

    with Api(ContextChoice(file=which.kubeconfig, context=which.context), PERSONAL_AGENT) as api:
        if which.prometheus:
            yield Fleet(ask_service(api, which.prometheus))
        else:
            cluster = Cluster(api, which.namespace)
            cluster.list_daemons()
            yield cluster


def print_cluster(which: ClusterChoice, choice: Choice, *, as_json: bool) -> None:
    """Print every node once."""
    with opened(which) as source:
        if as_json:
            click.echo(json.dumps(source.document(), indent=1))
            if source.problem is not None:
                click.echo(f"Warning: {inert(str(source.problem), 600)}", err=True)
            return
        source.refresh()
        signs, width = prepare(sys.stdout), output_width()
        text = cluster_text(source.answers, choice, clock.now(), problem=source.problem, width=width, signs=signs)
        click.echo(text, nl=False)
