"""Commands about one node that also work from outside: for a NODE, or for a pod, in the daemon's pod of its node."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from watchdog.cli.program import CALLER_WIDTH, NARROWEST
from watchdog.options import DEFAULT_JOURNAL, DEFAULT_LISTEN

# The options of `cluster_options`.
_PERSONAL: Final = ("kubeconfig", "context", "namespace")
_META: Final = "gpu_watchdog.elsewhere"
# What names something on this machine: then it is meant.
_LOCAL: Final = ("url", "listen", "journal", "stop_file")
_GIVEN: Final = (click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.ENVIRONMENT)
_PATIENCE_S: Final = 1.5


def _keep_width(context: click.Context, _parameter: click.Parameter, value: int | None) -> None:
    """Take note of the caller's terminal."""
    context.meta[CALLER_WIDTH] = value


class NodeCommand(click.Command):
    """A command about this node, or about another one, on which it then runs with the same options.

    `pod` names the parameter that has the pod, if there is one: without a NODE, the pod's node is meant if no daemon
    answers here and no journal is here. `keeps` names options for finding the daemon that it also has a use for here,
    and `of_all` those by which it is about all nodes.
    """

    def __init__(
        self, *args: Any, pod: str = "", keeps: Sequence[str] = (), of_all: Sequence[str] = (), **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._pod = pod
        self._of_all = of_all
        self.params.append(click.Argument(["elsewhere"], metavar="[NODE]", required=False))
        # From elsewhere, into no terminal: the width of the caller's.
        width = click.IntRange(min=NARROWEST)
        self.params.append(click.Option(["--width"], type=width, hidden=True, expose_value=False, callback=_keep_width))
        self._keeps = keeps
        self._removed = [name for name in ("elsewhere", *_PERSONAL) if name not in keeps]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments as they were given, to pass them on."""
        ctx.meta[_META] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it here, or on the other node."""
        node, pod = ctx.params.get("elsewhere"), ctx.params.get(self._pod) or ""
        if node is not None and not node.strip():
            raise click.UsageError("NODE is empty: name the node")  # a variable of a script that is not set
        of_all = [name for name in self._of_all if ctx.get_parameter_source(name) is _GIVEN[0]]
        if node and of_all:
            raise click.UsageError(f"--{of_all[0]} is about all nodes: leave NODE out")
        node = node or ""
        is_elsewhere = not node and not self._keeps and self._is_elsewhere(ctx)
        if node or (pod and is_elsewhere):
            ctx.exit(self._run_there(ctx, node, pod))
        if is_elsewhere:
            raise click.UsageError(f"no watchdog is here: name a NODE{' or a pod' if self._pod else ''}")
        for name in self._removed:
            if ctx.params.pop(name, None) and ctx.get_parameter_source(name) is _GIVEN[0]:
                raise click.UsageError(f"--{name} is for another node: name a NODE")
        return super().invoke(ctx)

    def _is_elsewhere(self, ctx: click.Context) -> bool:
        if any(ctx.get_parameter_source(name) in _GIVEN for name in _LOCAL):
            return False
        is_named = any(ctx.get_parameter_source(name) is _GIVEN[0] for name in _PERSONAL)
        return is_named or (not Path(DEFAULT_JOURNAL).exists() and is_outside(ctx.params.get("kubeconfig")))

    def _run_there(self, ctx: click.Context, node: str, pod: str) -> int:
        from watchdog.cli.remote import Where, explain_from_outside, run_on_node
        from watchdog.kube.kubeconfig import ContextChoice

        named = [f"--{name.replace('_', '-')}" for name in _LOCAL if ctx.get_parameter_source(name) is _GIVEN[0]]
        if named and not self._keeps:
            raise click.UsageError(f"{named[0]} is for this node; {node or 'the node of ' + pod} has its own")
        chosen = ContextChoice(file=ctx.params.get("kubeconfig"), context=ctx.params.get("context") or "")
        follows = bool(ctx.params.get("follow"))
        where = Where(chosen=chosen, namespace=ctx.params.get("namespace") or "", node=node, pod=pod, follows=follows)
        command = [self.name or "", *self.passed_on(ctx)]
        if self.name == "explain":
            return explain_from_outside(where, command, as_json=ctx.params["as_json"])
        return run_on_node(where, command)

    def passed_on(self, ctx: click.Context) -> list[str]:
        """The arguments as they were given, without those that led to the other node."""
        values, _, order = self.make_parser(ctx).parse_args(list(ctx.meta[_META]))
        kept: list[str] = []
        positional: list[str] = []
        for parameter in dict.fromkeys(order):
            value = values.get(parameter.name)
            if parameter.name in (*_PERSONAL, "elsewhere") or value is None:
                continue
            if isinstance(parameter, click.Argument):
                positional.append(str(value))
            elif isinstance(parameter, click.Option) and parameter.is_flag:
                kept.append(parameter.opts[0])
            else:
                several: Sequence[Any] = value if isinstance(value, list) else [value]
                kept += [text for each in several for text in (parameter.opts[0], str(each))]
        return [*kept, *(["--", *positional] if positional else [])]


def is_outside(kubeconfig: Path | None = None) -> bool:
    """Whether a person is outside of the nodes: this kubeconfig or a usual one is here, and no daemon answers."""
    from watchdog.cli.client import NoCycleError, QueryError, listen_url, query_status
    from watchdog.kube.kubeconfig import ContextChoice

    if not ContextChoice(file=kubeconfig).name():
        return False
    try:
        query_status(listen_url(DEFAULT_LISTEN), _PATIENCE_S)
    except NoCycleError:
        return False
    except QueryError:
        return True
    return False
