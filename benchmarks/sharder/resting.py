"""Rows about a sharder at rest: its memory, and its CPU time while others update objects."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.measuring.list_server import Crowd, ListServer, anonymous_kubeconfig
from benchmarks.measuring.run import Run
from benchmarks.measuring.senders import send_steadily
from benchmarks.measuring.sharders import own_by_stand_ins, sharding
from benchmarks.measuring.testbed import MEMBERS, Testbed
from kubeio.patch import MergePatch
from loadtest.machine import cpu_s, family, rss_mb

_SETTLE_S: Final = 3.0
_UPDATES_PER_S: Final = 500
_UPDATES_S: Final = 20.0
"""Length of each part of the row `cpu`."""
_ENOUGH: Final = 0.5
"""Of the updates: with fewer the figure would say nothing. With fewer than all it is scaled up, rest and all."""
_ALL: Final = 0.98
"""Of the updates: so many count as all."""
_SENDERS: Final = 32
"""Updates under way at once, at most."""


async def measure_rest(testbed: Testbed, run: Run, *, sizes: Sequence[int]) -> None:
    """The same sharder before each number of objects, all of which have their owners."""
    await testbed.stand_ins.join(MEMBERS)
    found: dict[int, float] = {}
    listed: dict[int, int] = {}
    for count in sizes:
        with run.console.counting(f"at rest with {count:,} objects", 0):
            found[count], listed[count] = await rest_with(testbed, count)
    apart = 100 * (max(found.values()) / min(found.values()) - 1)
    run.figure("rest", apart, ", ".join(f"{count:,}: {mb:.1f} MB" for count, mb in found.items()))
    run.detail(
        "rest",
        rss_mb={str(count): round(mb, 1) for count, mb in found.items()},
        objects_listed={str(count): number for count, number in listed.items()},
    )


async def rest_with(testbed: Testbed, count: int) -> tuple[float, int]:
    """Resident memory, and how many objects were listed until the sharder rested."""
    crowd = Crowd(testbed.resource, testbed.namespace, testbed.keys, count, dict(testbed.stand_ins.shards))
    tls = ssl.create_default_context(cadata=testbed.cluster.trust.ca.decode())
    server = ListServer(crowd, upstream=testbed.plane.url, token=testbed.sharder.token, tls=tls)
    async with server.serving():
        kubeconfig = anonymous_kubeconfig(testbed.directory / "list-server.kubeconfig", server.url)
        async with sharding(testbed, row="rest", kubeconfig=kubeconfig) as sharder:
            await sharder.wait_idle(within_s=300)
            await asyncio.sleep(_SETTLE_S)
            return rss_mb(sharder.pid), server.objects_listed


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


async def measure_cpu(testbed: Testbed, run: Run) -> None:
    """Others update objects: without a sharder, with one, and without one again."""
    await own_by_stand_ins(testbed, run)
    without = [await measure_usage(testbed, run, [])]
    async with sharding(testbed, row="cpu") as sharder:
        await sharder.wait_idle()
        await asyncio.sleep(_SETTLE_S)
        with_it = await measure_usage(testbed, run, family(sharder.pid))
        rss = rss_mb(sharder.pid)
    without.append(await measure_usage(testbed, run, []))
    alone = sum(usage.server for usage in without) / len(without)
    extra, came = 100 * (with_it.server - alone), min(1.0, with_it.updates_per_s / _UPDATES_PER_S)
    how = f"{with_it.updates_per_s:.0f} updates/s; the server: {100 * alone:.0f} %, with the sharder {extra:+.1f} %"
    if came < _ALL:
        how += f"; scaled from {100 * with_it.sharder:.2f} % to {_UPDATES_PER_S} updates/s"
    value: float | None = 100 * with_it.sharder / came
    if came < _ENOUGH:
        value = None
        how = f"only {with_it.updates_per_s:.0f} of {_UPDATES_PER_S} updates/s came: the machine is too busy"
    run.figure("cpu", value, how)
    run.detail(
        "cpu",
        **{"with": with_it.details()},
        without=[usage.details() for usage in without],
        rss_mb=round(rss, 1),
    )


async def measure_usage(testbed: Testbed, run: Run, pids: list[int]) -> Usage:
    """CPU of *pids* and of the server while the specs of random objects are changed."""
    clock, servers = testbed.clock, testbed.plane.pids
    rng = random.Random(1)  # noqa: S311 - load, no secret
    sent = 0
    what = f"updates by others, {'with' if pids else 'without'} a sharder"
    with run.console.counting(what, int(_UPDATES_PER_S * _UPDATES_S)) as tick:

        async def update(_: int) -> None:
            nonlocal sent
            patch = MergePatch({"spec": {"html": f"<p>{rng.random()}</p>{'x' * 600}"}})
            await testbed.client.patch(
                testbed.resource,
                rng.choice(testbed.stock.names),
                patch,
                namespace=testbed.namespace,
                type=bytes,
                field_manager="bench",
            )
            sent += 1
            tick(1)

        began_at, own, theirs = clock.now(), cpu_s(pids), cpu_s(servers)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_UPDATES_S):
                await send_steadily(update, per_s=_UPDATES_PER_S, at_once=_SENDERS)
    took_s = clock.now() - began_at
    return Usage((cpu_s(pids) - own) / took_s, (cpu_s(servers) - theirs) / took_s, sent / took_s)
