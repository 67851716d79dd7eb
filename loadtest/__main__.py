"""`python -m loadtest`: a fleet (or a cluster that you name), a load from locust, and what an independent watch saw."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from devcluster.embedded import embedded_plane
from kubeio.access.cluster import load_cluster
from kubeio.access.kubeconfig import nearest
from kubeio.clock import SystemClock
from kubeio.errors import InputError
from kubeio.labels import RingKeys
from kubeio.program import runtime
from kubeio.program.command_line import run_command
from kubeio.resource import CONTROLLER_RINGS, NAMESPACES
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from loadtest.observer import Observer, Sample
from loadtest.report import KINDS, draw, requests_of, summary
from ringleader.testing.commands import WEBSITES, FleetSpec
from ringleader.testing.fleet import open_fleet

SETTLE_S: Final = 10.0
LOCUST_LATE_S: Final = 30.0
"""How long locust may take beyond its run time: it starts, it waits for answers under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is asked of a run. *kubeconfig* empty: an embedded control plane and a fleet of *replicas* of its own."""

    kubeconfig: str
    context: str
    namespace: str
    ring: str
    replicas: int
    users: int
    rate: float
    duration_s: int
    out: Path


class LoadFailed(Exception):
    """The load could not be run, or the fleet did not answer all of it."""


def loadtest(
    *,
    kubeconfig: Annotated[
        str, typer.Option(help="Cluster to load. Default: an embedded control plane with a fleet of its own.")
    ] = "",
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Where the Websites are made.")
    ] = "default",
    ring: Annotated[str, typer.Option(help="Ring that distributes them.")] = "websites",
    replicas: Annotated[int, typer.Option(min=1, help="Replicas of the own fleet.")] = 3,
    users: Annotated[int, typer.Option(min=1, help="Users that act at the same time.")] = 8,
    rate: Annotated[float, typer.Option(min=0.1, help="Operations per second of all users together.")] = 40.0,
    duration_s: Annotated[int, typer.Option("--duration-s", min=5, help="Seconds of load.")] = 60,
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("build/loadtest"),
    output: Annotated[str, typer.Option("--output", "-o", help="table or json.")] = "table",
) -> None:
    """Create, update and delete Websites at a rate; measure when each is assigned and when it is Ready.

    Exit codes: 0, 1 if a Website was left behind or a request failed, 2 bad input.
    """
    if output not in ("table", "json"):
        typer.echo(f"error: {InputError('--output', output, 'is not a form', 'use table or json')}", err=True)
        raise typer.Exit(2)
    plan = Plan(
        kubeconfig=kubeconfig,
        context=context,
        namespace=namespace,
        ring=ring,
        replicas=replicas,
        users=users,
        rate=rate,
        duration_s=duration_s,
        out=out,
    )
    runtime.configure_logging(format="auto", level="warning")
    raise typer.Exit(runtime.run(_run(plan, output)))


async def _run(plan: Plan, output: str) -> int:
    say = Console(stderr=True)
    try:
        plan.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot be made ({error.strerror})"
        raise InputError("--out", str(plan.out), problem, "name a folder that can be written to") from None
    try:
        async with _cluster(plan, say) as kubeconfig:
            report, samples = await _measure(plan, kubeconfig, say)
    except LoadFailed as error:
        say.print(f"error: {error}", highlight=False, markup=False)
        return 1
    (plan.out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    draw(samples, plan.out / "report.png", title=f"{plan.rate:g} operations/s on {report['replicas']}")
    if output == "json":
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        _print(report)
    say.print(f"written: {plan.out / 'report.json'}, {plan.out / 'report.png'}", highlight=False)
    failures = sum(row["failures"] for row in report["requests"].values())
    return 1 if failures or report["left_behind"] else 0


@asynccontextmanager
async def _cluster(plan: Plan, say: Console) -> AsyncIterator[str]:
    """The kubeconfig of the cluster to load; with a fleet of its own unless one was named."""
    if plan.kubeconfig:
        yield plan.kubeconfig
        return
    say.print(f"starting an embedded control plane, 2 sharders and {plan.replicas} replicas", highlight=False)
    spec = FleetSpec(ring=plan.ring, namespace=plan.namespace, lease_s=5)
    with tempfile.TemporaryDirectory(prefix="ringleader-load-") as name:
        place = Path(name)
        async with (
            embedded_plane(place / "plane") as plane,
            open_fleet(plane, place / "fleet", spec=spec) as fleet,
        ):
            await fleet.start(replicas=plan.replicas)
            yield str(await plane.kubeconfig_for("load", groups=("system:masters",)))


async def _measure(plan: Plan, kubeconfig: str, say: Console) -> tuple[dict[str, Any], list[Sample]]:
    clock = SystemClock()
    cluster = load_cluster(kubeconfig=kubeconfig, context=plan.context or None)
    async with Client(cluster, user_agent="ringleader-loadtest") as client:
        await _check(client, plan)
        observer = Observer(client, WEBSITES, shard_label=RingKeys(plan.ring).shard, clock=clock)
        watching = asyncio.create_task(observer.run(), name="observer")
        try:
            say.print(
                f"{plan.rate:g} operations/s by {plan.users} users for {plan.duration_s} s", highlight=False
            )
            rows = await _locust(plan, kubeconfig)
            left_behind = await _settle(observer)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    report = {
        "cluster": "named by --kubeconfig" if plan.kubeconfig else "embedded",
        "replicas": "the fleet that was there" if plan.kubeconfig else f"{plan.replicas} replicas",
        "rate_per_s": plan.rate,
        "users": plan.users,
        "duration_s": plan.duration_s,
        "waits": summary(observer.samples),
        "requests": requests_of(rows),
        "left_behind": left_behind,
    }
    return report, observer.samples


async def _check(client: Client, plan: Plan) -> None:
    """Raises KubeError if there is no such server, ring, namespace or kind: before a load runs against nothing."""
    page = await client.list_page(CONTROLLER_RINGS, metadata_only=True)
    names = [ring.meta.name for ring in page.objects]
    if plan.ring not in names:
        problem = f"is not a ring of {client.cluster.server}"
        raise InputError("--ring", plan.ring, problem, f"name another: {nearest(plan.ring, names)}")
    await Discovery(client).resolve(WEBSITES.group_resource)
    await client.get(NAMESPACES, plan.namespace, type=bytes)


async def _first(event: Coroutine[Any, Any, object], watching: asyncio.Task[None]) -> None:
    """Wait for *event*; raises what ended *watching* before."""
    waiting = asyncio.ensure_future(event)
    await asyncio.wait({waiting, watching}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if watching.done():
        watching.result()


async def _settle(observer: Observer) -> int:
    """Give the fleet a moment to finish; how many Websites are still behind then."""
    for _ in range(int(SETTLE_S / 0.25)):
        if not observer.behind():
            break
        await asyncio.sleep(0.25)
    return observer.behind()


async def _locust(plan: Plan, kubeconfig: str) -> list[dict[str, Any]]:
    """Run locust in a process of its own (it patches the standard library); its statistics."""
    environment = {
        **os.environ,
        "KUBECONFIG": kubeconfig,
        "LOADTEST_NAMESPACE": plan.namespace,
        "LOADTEST_RATE": str(plan.rate),
        "LOADTEST_USERS": str(plan.users),
    }
    command = [sys.executable, "-m", "locust", "-f", str(Path(__file__).with_name("websites.py"))]
    command += ["--headless", "--json", "--only-summary", "--loglevel", "ERROR", "--stop-timeout", "5"]
    command += [
        "--users",
        str(plan.users),
        "--spawn-rate",
        str(plan.users),
        "--run-time",
        f"{plan.duration_s}s",
    ]
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(plan.duration_s + LOCUST_LATE_S):
            out, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        raise LoadFailed(f"locust did not end within {plan.duration_s + LOCUST_LATE_S:g} s") from None
    rows = _rows(out)
    if rows is None:
        last = errors.decode(errors="replace").strip().splitlines()[-1:] or ["no reason was given"]
        raise LoadFailed(f"locust ended with {process.returncode}: {last[0]}")
    return rows


def _rows(out: bytes) -> list[dict[str, Any]] | None:
    """Locust's JSON document within what it printed; None if there is none."""
    text = out.decode(errors="replace")
    start = text.find("[")
    if start < 0:
        return None
    rows = json.JSONDecoder().raw_decode(text[start:])[0]
    return rows if isinstance(rows, list) and rows else None


def _print(report: dict[str, Any]) -> None:
    console = Console()
    waits = Table(title="As an independent watch saw it")
    for column in ("wait", "count", "p50", "p99", "max"):
        waits.add_column(column, justify="left" if column == "wait" else "right")
    for kind, row in report["waits"].items():
        waits.add_row(
            KINDS[kind],
            str(row["count"]),
            *(f"{row[f'{name}_s'] * 1000:.0f} ms" for name in ("p50", "p99", "max")),
        )
    console.print(waits)
    requests = Table(title="Requests, as locust counted them")
    for column in ("operation", "requests", "failures", "p50", "p99"):
        requests.add_column(column, justify="left" if column == "operation" else "right")
    for name, row in report["requests"].items():
        requests.add_row(
            name,
            str(row["requests"]),
            str(row["failures"]),
            *(f"{row[f'{share}_s'] * 1000:.0f} ms" for share in ("p50", "p99")),
        )
    console.print(requests)
    console.print(f"left behind: {report['left_behind']}", highlight=False)


def main() -> int:
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command()(loadtest)
    return run_command(app, name="python -m loadtest")


if __name__ == "__main__":
    sys.exit(main())
