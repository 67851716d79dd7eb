"""The command line: which commands there are, their flags and their help.

Owns words and flags only. Each command imports what it needs when it runs, so that help and completion are
quick; `ringleader.__main__` turns what they raise into one message.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from ringleader.devcluster_command import app as devcluster
from ringleader.inspect.complete import complete_ring
from ringleader.inspect.flags import change, dashboard, look, simulate
from ringleader.inspect.flags.check import check
from ringleader.migrate.flags import app as migrate
from ringleader.options import (
    ConnectionOptions,
    Output,
    with_connection,
)
from ringleader.output import print_line
from ringleader.overview import Overview
from ringleader.plugins import LOADTEST, load_app

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

app = typer.Typer(
    name="ringleader",
    help="Active-active Kubernetes controllers: every replica works on its share of the objects.",
    cls=Overview,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help, as kubectl's: boxes cost a third of the start-up time
    context_settings=_SETTINGS,
)
app.add_typer(devcluster)
app.add_typer(migrate)
app.command()(simulate.simulate)
app.add_typer(simulate.plot)
app.command()(check)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print_line(f"ringleader {version('ringleader')}")
        raise typer.Exit


@app.callback()
def ringleader(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Active-active Kubernetes controllers: every replica works on its share of the objects."""


@app.command()
def demo(
    *,
    headless: Annotated[bool, typer.Option("--headless", help="Print only the JSON document.")] = False,
    objects: Annotated[
        int | None,
        typer.Option(
            "--objects",
            min=20,
            max=200_000,
            help="Objects to share. [default: 2000; 30 Deployments with --unmodified]",
        ),
    ] = None,
    real: Annotated[
        bool,
        typer.Option(
            "--real", help="On a real kube-apiserver and etcd; built from Go modules the first time."
        ),
    ] = False,
    unmodified: Annotated[
        bool,
        typer.Option(
            "--unmodified",
            help="Three unmodified kube-controller-managers behind proxies share Deployments, on real servers.",
        ),
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the fleet up until Ctrl-C.")] = False,
    no_fence: Annotated[
        bool, typer.Option("--no-fence", help="Switch the fence off: the demo must fail and name an object.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Which objects are updated.", hidden=True)] = 1,
    lease_duration: Annotated[
        str | None,
        typer.Option(
            "--lease-duration",
            metavar="TIME",
            help="Duration of the Leases, 2s to 60s. [default: 3s; 6s with --real; more if busy]",
            hidden=True,
        ),
    ] = None,
    until: Annotated[
        Literal["kill", "freeze", "join", "roll", "leader_kill"] | None,
        typer.Option("--until", help="End after this act; all of them if absent.", hidden=True),
    ] = None,
    output: Output = None,
) -> int:
    """Watch a fleet whose replicas die, freeze, join and roll. Two independent checks judge the run."""
    from ringleader.demo.command import OBJECTS, DemoOptions, read_lease, run_demo

    if unmodified:
        from ringleader.demo.unmodified import NUMBER, UnmodifiedOptions, check_fits, run_unmodified

        number = objects or NUMBER
        check_fits(fenced=not no_fence, until=until, objects=number)
        options = UnmodifiedOptions(
            deployments=number, keep=keep, seed=seed, lease_s=read_lease(lease_duration)
        )
        return run_unmodified(options, is_headless=headless, form=output)
    return run_demo(
        DemoOptions(
            objects=objects or OBJECTS,
            real=real,
            keep=keep,
            fenced=not no_fence,
            seed=seed,
            lease_s=read_lease(lease_duration),
            until=until,
        ),
        is_headless=headless,
        form=output,
    )


_PASSED_ON = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
    "allow_interspersed_args": False,
}
"""Settings of a command whose words belong to another program."""


@app.command(add_help_option=False, context_settings=_PASSED_ON)
def sharder(context: typer.Context) -> None:
    """Run a sharder, as `python -m sharder` does."""
    # In this process's place, without what the command line imported. A script finds no packages in the current folder
    # (-P), and neither does the sharder.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "sharder", *context.args])  # noqa: S606 - no shell is wanted


@app.command(add_help_option=False, context_settings=_PASSED_ON)
def proxy() -> None:
    """Run an unmodified controller as one shard."""
    from ringleader.unmodified import is_render

    if is_render(words := sys.argv[2:]):
        from ringleader.unmodified.command import run_render

        raise typer.Exit(run_render(words))
    # `--` separates the controller's words: typer would swallow it, so they are taken as they came
    os.execv(sys.executable, [sys.executable, "-P", "-m", "proxy", *words])  # noqa: S606 - no shell is wanted


@app.command(add_help_option=False, context_settings=_PASSED_ON)
def run(context: typer.Context) -> None:
    """Run a replica of a controller.

    As `python -m shard_controller run` does.
    """
    os.execv(  # noqa: S606 - no shell is wanted
        sys.executable, [sys.executable, "-P", "-m", "shard_controller", "run", *context.args]
    )


@app.command(add_help_option=False, context_settings=_PASSED_ON)
def loadtest(context: typer.Context) -> int:
    """Load a fleet and judge it. While replicas join, roll and die; with an own fleet or in a cluster."""
    command = typer.main.get_command(load_app(LOADTEST))
    code = command.main(args=context.args, prog_name=context.command_path, standalone_mode=False)
    return code if isinstance(code, int) else 0


app.command()(look.status)
app.command()(look.describe)
app.command("list")(look.list_)
app.command()(look.top)
app.command()(change.cordon)
app.command()(change.uncordon)
app.command()(change.weight)
app.command()(change.pause)
app.command()(change.resume)
app.command()(change.delete)


@app.command()
def init(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the project, such as websites.")],
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="New or empty folder. Default: ./NAME.")
    ] = None,
    group: Annotated[
        str, typer.Option("--group", metavar="DOMAIN", help="API group of the kind.")
    ] = "example.com",
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="Kind of the objects. Default: from NAME.")
    ] = "",
    plural: Annotated[
        str, typer.Option("--plural", metavar="NAME", help="Name of the resource. Default: from the kind.")
    ] = "",
) -> int:
    """Create a project with a controller of your own. With its kind, manifests, chart values and tests that pass."""
    from ringleader.scaffold.command import run_init

    return run_init(name, folder=folder, group=group, kind=kind, plural=plural)


@app.command()
def chart() -> int:
    """Print the path of the Helm chart.

    helm install NAME "$(ringleader chart)" -f values.yaml
    """
    from ringleader.assets import asset

    print_line(str(asset("manifests", "chart")))
    return 0


@app.command()
def crds() -> int:
    """Print the CustomResourceDefinitions.

    ringleader crds | kubectl apply --server-side -f -
    """
    from ringleader.assets import asset

    for path in sorted(asset("manifests", "crds").glob("*.yaml")):
        sys.stdout.write(path.read_text())
    return 0


@app.command()
@with_connection
def fence(
    *,
    where: ConnectionOptions,
    ring: Annotated[str, typer.Argument(help="Name of the ControllerRing.", autocompletion=complete_ring)],
    ring_file: Annotated[
        Path | None,
        typer.Option("--ring-file", metavar="FILE", help="The ring in this file; no server is asked."),
    ] = None,
    identity: Annotated[
        Literal["life", "pod"],
        typer.Option(
            "--identity",
            help="What names the life of a request: an extra of its user, or the pod that its token names.",
        ),
    ] = "life",
    account: Annotated[
        list[str] | None,
        typer.Option(
            "--account",
            metavar="NAMESPACE/NAME",
            help="ServiceAccount of the ring's shards, with --identity pod. Repeatable.",
        ),
    ] = None,
) -> int:
    """Print the policies that keep a life to its own objects.

    ringleader fence RING | kubectl apply --server-side -f -
    """
    from ringleader.fence.command import run_fence
    from ringleader.fence.documents import Identity

    return run_fence(where, ring, ring_file=ring_file, identity=Identity(identity), accounts=account or ())


@app.command()
@with_connection
def version(
    *,
    where: ConnectionOptions,
    client: Annotated[bool, typer.Option("--client", help="Only this program's.")] = False,
    output: Output = None,
) -> int:
    """Print the versions of this program and of the API server."""
    from ringleader.versions import run_version

    return run_version(where, is_client_only=client, form=output)


dashboard.register(app)
