"""`ringleader top [RING]`: what each replica does now: reconciles a second, queue, memory, from its own metrics.

Owns who is asked, and how: the pods of a ring through the API server, or with `--endpoint` the URLs that are given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

from kubeio.clock import SystemClock
from kubeio.errors import ApiError, Forbidden, KubeError, NotFound, Unreachable
from kubeio.program.failures import failure
from ringleader.cluster.causes import ring_notes
from ringleader.cluster.debug_endpoint import DebugEndpoint, at_url, in_pod
from ringleader.cluster.reader import ClusterReader
from ringleader.cluster.scrape import Load, Scrape, load, read_metrics
from ringleader.options import ConnectionOptions, connected
from ringleader.output import Form, Table, age, print_document, print_line, print_table

if TYPE_CHECKING:
    from kubeio.rest.client import Client

AT_ONCE: Final = 16
_PATIENCE_S: Final = 10.0
_MIB: Final = 1 << 20


class Asked(NamedTuple):
    """Whom to ask, and how far apart the two scrapes are."""

    ring: str | None = None
    endpoints: Sequence[str] = ()
    port: int | None = None
    """Probes port of the pods; None: the chart's."""
    interval_s: float = 2.0


class _Replica(NamedTuple):
    name: str
    shard: str
    endpoint: DebugEndpoint


def run_top(where: ConnectionOptions, asked: Asked, *, form: Form | None) -> int:
    """The command; 1 if no replica could be asked."""
    notes: list[str] = []
    if asked.endpoints:
        loads = asyncio.run(_by_url(asked, timeout_s=min(where.timeout_s, _PATIENCE_S)))
    else:
        loads, notes = connected(where, lambda client, _: _in_pods(client, asked, timeout_s=where.timeout_s))
    match form:
        case Form.JSON | Form.YAML:
            print_document({"replicas": loads}, form=form)
        case Form.NAME:
            for each in loads:
                print_line(each.shard or each.name)
        case _:
            _print(loads, form)
            for note in dict.fromkeys(filter(None, notes)):
                print_line(note)
    return 0 if not loads or any(not each.problem for each in loads) else 1


async def _by_url(asked: Asked, *, timeout_s: float) -> list[Load]:
    async with AsyncExitStack() as stack:
        endpoints = [
            await stack.enter_async_context(at_url(url, timeout_s=timeout_s)) for url in asked.endpoints
        ]
        return await measure(
            [_Replica(endpoint.name, "", endpoint) for endpoint in endpoints], asked.interval_s
        )


async def _in_pods(client: Client, asked: Asked, *, timeout_s: float) -> tuple[list[Load], list[str]]:
    """The load of each active replica, and why rings without one have none."""
    reader = ClusterReader(client, timeout_s=timeout_s)
    snapshot = (await reader.snapshot(asked.ring, reads_namespaces=False)).require("rings", "leases")
    replicas = [
        _Replica(
            shard.member,
            shard.name,
            in_pod(
                client,
                shard.pod,
                port=asked.port or shard.probes_port,
                timeout_s=min(timeout_s, _PATIENCE_S),
            ),
        )
        for ring in snapshot.rings
        for shard in ring.active.values()
    ]
    notes = [ring_notes(snapshot, ring) for ring in snapshot.rings if not ring.active]
    return await measure(replicas, asked.interval_s), notes


async def measure(replicas: Sequence[_Replica], interval_s: float) -> list[Load]:
    """Two scrapes of each of *replicas*, *interval_s* apart, and what they tell; of one that is silent, why."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(replica: _Replica) -> Load:
        try:
            async with slots:
                before = await _scrape(replica.endpoint)
            await asyncio.sleep(interval_s)
            async with slots:
                now = await _scrape(replica.endpoint)
                shard = replica.shard or await replica.endpoint.shard()
        except (KubeError, ValueError) as error:
            return Load(replica.name, replica.shard, problem=_why(error))
        return load(replica.name, shard, before, now)

    return list(await asyncio.gather(*map(one, replicas)))


async def _scrape(endpoint: DebugEndpoint) -> Scrape:
    body = await endpoint.read("/metrics")
    return read_metrics(body.decode(), at=SystemClock().now())


def _why(error: Exception) -> str:
    match error:
        case Unreachable():
            return f"no answer: {error.reason}"
        case NotFound():
            return "no such pod, or nothing listens on --port; name replicas outside a cluster with --endpoint URL"
        case Forbidden():
            return failure(error).message
        case ApiError():
            return f"{error.status}: {error.message or error.reason}"
        case _:
            return f"no metrics of a replica: {error}"


def _print(loads: Sequence[Load], form: Form | None) -> None:
    if not loads:
        print_line("no replica is active")
        return
    rows = [_row(each) for each in loads if not each.problem]
    columns = (
        "REPLICA",
        "SHARD",
        "RECONCILES/S",
        "ERRORS/S",
        "QUEUE",
        "BUSY",
        "LONGEST",
        "OBJECTS",
        "MEMORY",
        "CPU",
    )
    if rows:
        print_table(Table(columns, rows, wide=("SHARD", "LONGEST")), form=form)
    for each in loads:
        if each.problem:
            print_line(f"{each.name}: {each.problem}")


def _row(each: Load) -> list[str]:
    busy = "-" if each.busy_workers is None else f"{each.busy_workers}/{each.workers or '?'}"
    return [
        each.shard if each.shard and "://" in each.name else each.name,
        each.shard or "-",
        _number(each.reconciles_per_second, ".1f"),
        _number(each.errors_per_second, ".1f"),
        _number(each.queue, ","),
        busy,
        age(each.longest_seconds),
        _number(each.objects, ","),
        "-" if each.memory_bytes is None else f"{each.memory_bytes / _MIB:.0f} MB",
        _number(each.cpu_cores, ".0%"),
    ]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
