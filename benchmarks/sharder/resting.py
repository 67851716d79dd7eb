"""A sharder with nothing to do: what it keeps in memory, what it costs."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.measuring.meter import Meter
from benchmarks.measuring.rows import Row
from benchmarks.sharder.fleet import sharding
from benchmarks.sharder.goals import figure
from benchmarks.sharder.ground import MEMBERS, Ground
from benchmarks.sharder.list_server import Crowd, ListServer
from benchmarks.sharder.rows import Options, Peaks
from benchmarks.sharder.throughput import own_by_stand_ins
from kubeio.patch import MergePatch
from loadtest.machine import cpu_s, family, rss_mb

_SETTLE_S: Final = 3.0
_ENOUGH: Final = 0.5
"""Of the updates: with fewer the figure would say nothing. With fewer than all it is scaled up, rest and all."""
_ALL: Final = 0.98
"""Of the updates: so many count as all."""
_SENDERS: Final = 32
"""Updates under way at once, at most."""


# -- memory -------------------------------------------------------------------------------------------------


async def measure_rest(ground: Ground, meter: Meter, options: Options, peaks: Peaks) -> Row:
    """The same sharder before each number of objects, all of which have their owners."""
    await ground.stand_ins.join(MEMBERS)
    found: dict[int, float] = {}
    listed: dict[int, int] = {}
    for count in options.rest_sizes:
        with meter.counting(f"at rest with {count:,} objects", None):
            found[count], listed[count] = await _rest_with(ground, peaks, count)
    smallest = min(found.values())
    apart = 100 * (max(found.values()) / smallest - 1)
    how = ", ".join(f"{count:,}: {mb:.1f} MB" for count, mb in found.items())
    return Row(
        key="rest",
        figures=[figure("rest", apart, how)],
        details={
            "rss_mb": {str(count): round(mb, 1) for count, mb in found.items()},
            "objects_listed": {str(count): number for count, number in listed.items()},
        },
    )


async def _rest_with(ground: Ground, peaks: Peaks, count: int) -> tuple[float, int]:
    """Resident memory, and how many objects were listed until the sharder rested."""
    crowd = Crowd(ground.resource, ground.spec.namespace, ground.keys, count, dict(ground.stand_ins.shards))
    tls = ssl.create_default_context(cadata=ground.cluster.trust.ca.decode())
    server = ListServer(crowd, upstream=ground.plane.url, token=ground.sharder.token, tls=tls)
    async with server.serving():
        kubeconfig = _kubeconfig(ground, server.url)
        async with sharding(ground, peaks, row="rest", kubeconfig=kubeconfig) as sharder:
            await sharder.wait_idle(within_s=300)
            await asyncio.sleep(_SETTLE_S)
            return rss_mb(sharder.running.pid), server.objects_listed


def _kubeconfig(ground: Ground, url: str) -> Path:
    """How to reach the list server: it adds the credentials."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "list-server", "cluster": {"server": url}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "list-server", "context": {"cluster": "list-server", "user": "nobody"}}],
        "current-context": "list-server",
    }
    path = ground.directory / "list-server.kubeconfig"
    path.write_text(json.dumps(document))
    return path


# -- CPU ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds per second while others updated objects."""

    sharder: float
    server: float
    updates_per_s: float

    def details(self) -> dict[str, float]:
        return {
            "sharder_cores": round(self.sharder, 4),
            "server_cores": round(self.server, 3),
            "updates_per_s": round(self.updates_per_s, 1),
        }


async def measure_cpu(ground: Ground, meter: Meter, options: Options, peaks: Peaks) -> Row:
    """Others update objects: without a sharder, with one, and without one again."""
    await own_by_stand_ins(ground, meter)
    without = [await _usage(ground, meter, options, [])]
    async with sharding(ground, peaks, row="cpu") as sharder:
        await sharder.wait_idle()
        await asyncio.sleep(_SETTLE_S)
        with_it = await _usage(ground, meter, options, family(sharder.running.pid))
        rss = rss_mb(sharder.running.pid)
    without.append(await _usage(ground, meter, options, []))
    alone = sum(usage.server for usage in without) / len(without)
    extra = 100 * (with_it.server - alone)
    came = min(1.0, with_it.updates_per_s / options.updates_per_s)
    how = f"{with_it.updates_per_s:.0f} updates/s; the server: {100 * alone:.0f} %, with the sharder {extra:+.1f} %"
    if came < _ALL:
        how += f"; scaled from {100 * with_it.sharder:.2f} % to {options.updates_per_s} updates/s"
    value: float | None = 100 * with_it.sharder / came
    if came < _ENOUGH:
        value = None
        how = f"only {with_it.updates_per_s:.0f} of {options.updates_per_s} updates/s came: the machine is too busy"
    return Row(
        key="cpu",
        figures=[figure("cpu", value, how)],
        details={
            "with": with_it.details(),
            "without": [usage.details() for usage in without],
            "rss_mb": round(rss, 1),
        },
    )


async def _usage(ground: Ground, meter: Meter, options: Options, pids: list[int]) -> Usage:
    """What *pids* and the server use while updates come at their rate."""
    clock, servers = ground.clock, ground.plane.pids
    began_at, own, theirs = clock.now(), cpu_s(pids), cpu_s(servers)
    total = int(options.updates_per_s * options.updates_s)
    sent = 0
    what = "updates by others, with a sharder" if pids else "updates by others, without a sharder"
    with meter.counting(what, total) as tick:

        def count() -> None:
            nonlocal sent
            sent += 1
            tick(1)

        async with asyncio.TaskGroup() as tasks:
            for number in range(_SENDERS):
                due = began_at + number / options.updates_per_s
                sender = _update(ground, options, due=due, until=began_at + options.updates_s, count=count)
                tasks.create_task(sender, name=f"update-{number}")
    took_s = clock.now() - began_at
    return Usage((cpu_s(pids) - own) / took_s, (cpu_s(servers) - theirs) / took_s, sent / took_s)


async def _update(
    ground: Ground, options: Options, *, due: float, until: float, count: Callable[[], None]
) -> None:
    """Change the spec of random objects in this sender's turns, as their users do."""
    rng = random.Random(due)  # noqa: S311 - load, no secret
    while due < until and ground.clock.now() < until:  # what the machine was too slow for is not made up for
        await asyncio.sleep(max(0.0, due - ground.clock.now()))
        patch = MergePatch({"spec": {"html": f"<p>{rng.random()}</p>{'x' * 600}"}})
        await ground.client.patch(
            ground.resource,
            rng.choice(ground.stock.names),
            patch,
            namespace=ground.spec.namespace,
            type=bytes,
            field_manager="bench",
        )
        count()
        due += _SENDERS / options.updates_per_s
