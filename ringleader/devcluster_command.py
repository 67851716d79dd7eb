"""`ringleader devcluster up|load|down|list`: control planes on this machine.

Owns the words and flags; `devcluster.background` owns the processes.
"""

from __future__ import annotations

import re
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kubeio.errors import InputError
from kubeio.program.failures import FAILED
from ringleader.options import Output
from ringleader.output import Form, Table, age, print_document, print_line, print_table

if TYPE_CHECKING:
    from devcluster.background import Record

app = typer.Typer(
    name="devcluster",
    help="A control plane on this machine. In memory, or a real kube-apiserver and etcd.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_MOST_API_SERVERS = 9
_NAME = re.compile(r"\A[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?\Z")

Name = Annotated[str, typer.Option("--name", metavar="NAME", help="Which one, if there are several.")]


@app.command()
def up(
    *,
    real: Annotated[
        bool,
        typer.Option("--real", help="A real kube-apiserver and etcd; built from Go modules the first time."),
    ] = False,
    rbac: Annotated[
        bool,
        typer.Option("--rbac", help="Refuse what no Role allows. A real kube-apiserver always does."),
    ] = False,
    nodes: Annotated[
        int,
        typer.Option(
            "--nodes",
            metavar="N",
            help="With --real: nodes that run pods (kubelet, containerd, kube-proxy). Needs root on Linux.",
        ),
    ] = 0,
    api_servers: Annotated[
        int,
        typer.Option(
            "--api-servers",
            metavar="N",
            help="With --real: kube-apiservers over one etcd. admin.kubeconfig names the first, admin-2.kubeconfig"
            " beside it the second.",
        ),
    ] = 1,
    name: Name = "default",
    output: Output = None,
) -> int:
    """Start a control plane that stays up, and print how to use it."""
    from devcluster.background import BackgroundFailed, start_background

    _check_name(name)
    _check_nodes(nodes, real=real)
    _check_api_servers(api_servers, real=real, nodes=nodes)
    if real and (problem := _build_if_missing(with_nodes=nodes > 0)):
        return _fail(problem)
    try:
        record, was_started = start_background(
            name, "real" if real else "embedded", rbac=rbac, nodes=nodes, api_servers=api_servers
        )
    except BackgroundFailed as failed:
        return _fail(str(failed))
    missing = "and is embedded" if real and record.kind != "real" else "without RBAC"
    if (real and record.kind != "real") or (rbac and not record.rbac):
        return _fail(
            f"{name} is up already {missing}; take it down first (ringleader devcluster down"
            f" --name {name}), or choose another --name"
        )
    other = f"{record.nodes} nodes" if nodes not in (0, record.nodes) else ""
    other = f"{record.api_servers} API servers" if api_servers not in (1, record.api_servers) else other
    if other:
        return _fail(
            f"{name} is up already with {other}; take it down first (ringleader devcluster down"
            f" --name {name}), or choose another --name"
        )
    if output in (Form.JSON, Form.YAML):
        print_document(_described(record), form=output)
        return 0
    said = f"{name} ({record.kind}) {'is up' if was_started else 'is up already'} at {record.url}"
    typer.echo(said, err=True)  # stdout is for the shell: eval "$(ringleader devcluster up)"
    print_line(f"export KUBECONFIG={shlex.quote(record.kubeconfig)}")
    return 0


@app.command()
def load(
    archive: Annotated[
        Path,
        typer.Argument(metavar="ARCHIVE", help="Image as a tar archive: OCI layout, or `podman save`."),
    ],
    *,
    name: Name = "default",
) -> int:
    """Import a container image into every node: there is no registry."""
    from devcluster.background import find_background
    from devcluster.children import PlaneFailed
    from devcluster.nodes import RequirementsMissing, import_into
    from devcluster.real import BinariesMissing

    _check_name(name)
    if not archive.is_file():
        raise InputError(
            "ARCHIVE",
            str(archive),
            "is no file",
            "use an image archive, such as dist/image.tar of `make image`",
        )
    record = find_background(name)
    if record is None or not record.is_up:
        return _fail(f"{name} is not up (ringleader devcluster up --real --nodes 1)")
    try:
        nodes = import_into(Path(record.kubeconfig).parent, archive.resolve())
    except (PlaneFailed, RequirementsMissing, BinariesMissing) as failed:
        return _fail(f"{name}: {failed}")
    print_line(f"{archive.name} is on {', '.join(nodes)}")
    return 0


@app.command()
def down(*, name: Name = "default") -> int:
    """End a control plane; its state is gone."""
    from devcluster.background import BackgroundFailed, stop_background

    _check_name(name)
    try:
        was_up = stop_background(name)
    except BackgroundFailed as failed:
        return _fail(str(failed))
    print_line(f"{name} is {'down' if was_up else 'not up'}")
    return 0


@app.command("list")
def list_(*, output: Output = None) -> int:
    """List the control planes of this machine."""
    from devcluster.background import all_background

    records = all_background()
    if output in (Form.JSON, Form.YAML):
        print_document({"controlPlanes": [_described(record) for record in records]}, form=output)
        return 0
    if output is Form.NAME:
        for record in records:
            print_line(record.name)
        return 0
    if not records:
        print_line("no control plane is up; ringleader devcluster up starts one")
        return 0
    rows = [
        (
            record.name,
            record.kind,
            "up" if record.is_up else "died",
            age(time.time() - record.started_at),
            record.url,
            record.kubeconfig,
        )
        for record in records
    ]
    columns = ("NAME", "KIND", "STATE", "AGE", "SERVER", "KUBECONFIG")
    print_table(Table(columns=columns, rows=rows, wide=("SERVER",)), form=output)
    return 0


def _check_name(name: str) -> None:
    if _NAME.match(name) is None:
        raise InputError(
            "--name", name, "is not a name", "use up to 40 of a-z, 0-9 and - inside, such as dev-2"
        )


def _check_nodes(nodes: int, *, real: bool) -> None:
    from devcluster.nodes.network import MOST_NODES

    if not 0 <= nodes <= MOST_NODES:
        raise InputError("--nodes", nodes, "is no number of nodes", f"use 1 to {MOST_NODES}")
    if nodes and not real:
        raise InputError("--nodes", nodes, "needs a real control plane", "add --real")
    if nodes:
        from devcluster.nodes import RequirementsMissing, check_machine

        try:
            check_machine()
        except RequirementsMissing as missing:
            raise InputError("--nodes", nodes, "is not possible here", str(missing)) from missing


def _check_api_servers(api_servers: int, *, real: bool, nodes: int) -> None:
    if not 1 <= api_servers <= _MOST_API_SERVERS:
        raise InputError(
            "--api-servers", api_servers, "is no number of API servers", f"use 1 to {_MOST_API_SERVERS}"
        )
    if api_servers > 1 and not real:
        raise InputError("--api-servers", api_servers, "needs a real control plane", "add --real")
    if api_servers > 1 and nodes:
        raise InputError("--api-servers", api_servers, "does not go with --nodes", "leave one of them out")


def _build_if_missing(*, with_nodes: bool) -> str:
    """Build the programs that are nowhere; what went wrong, if anything."""
    from devcluster.nodes import ensure_node_binaries
    from devcluster.real import BinariesMissing, ensure_binaries, kubernetes_recipe
    from devcluster.real.binaries import SERVERS
    from devcluster.real.build_progress import ConsoleProgress

    try:
        if with_nodes:
            ensure_node_binaries(progress=ConsoleProgress())
        else:
            ensure_binaries(SERVERS, kubernetes_recipe(), progress=ConsoleProgress())
    except BinariesMissing as missing:
        return f"{missing.reason}; {missing.remedy}"
    return ""


def _described(record: Record) -> dict[str, object]:
    return {
        "name": record.name,
        "kind": record.kind,
        "rbac": record.rbac,
        "nodes": record.nodes,
        "apiServers": record.api_servers,
        "up": record.is_up,
        "startedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.started_at)),
        "server": record.url,
        "kubeconfig": record.kubeconfig,
        "folder": str(Path(record.kubeconfig).parent),
        "pids": record.pids,
    }


def _fail(message: str) -> int:
    sys.stderr.write(f"error: {message}\n")
    return FAILED
