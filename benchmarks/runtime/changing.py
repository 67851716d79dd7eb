"""Rows about changes: event to reconcile, status writes beside wrk, the Lease under full load."""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import yaml

from benchmarks.measuring.list_server import anonymous_kubeconfig
from benchmarks.measuring.observations import NotSeen, Renewal, wait_for
from benchmarks.measuring.processes import running
from benchmarks.measuring.report import round_off
from benchmarks.measuring.run import Run
from benchmarks.measuring.sharders import cores_of, within_limit
from benchmarks.measuring.testbed import RING, Testbed
from benchmarks.measuring.wrk import Load, Request, Writes, mean_limit, reach_limit, writes_of
from benchmarks.runtime.programs import START_WITHIN_S, Began, Loaded, Program, measured, ours
from kubeio.models import HasMeta, Meta
from kubeio.patch import JsonPatch, MergePatch
from kubeio.resource import ApiResource
from loadtest.quantiles import percentile
from shard_controller.shard.ownership import ExclusiveOwnership

SERVED: Final = 100
"""Objects of the list server."""
PAUSE_S: Final = (0.02, 0.08)
"""Between one PATCH and the next: never in step with anything."""
REAL_ONE_IN: Final = 5
"""A PATCH costs more time than an event of the list server."""
MANAGER: Final = "websites"
"""Field manager: the name of the program's controller."""
LATE_S: Final = 1.0
MEMBER: Final = "loaded"
ENOUGH_RENEWALS: Final = 3
_SETTLE_S: Final = 1.0
_POLL_S: Final = 0.05


# -- event to reconcile -------------------------------------------------------------------------------------


async def measure_events(testbed: Testbed, run: Run, *, samples: int) -> None:
    """Changes of the list server, which say when they were handed to its socket; then changes on the control plane.

    On the control plane the time begins at the answer to a PATCH: an event may come before the answer.
    """
    with run.console.counting("events of the list server", 0):
        served_ms = await waits_of_list_server(testbed, samples)
    real_ms = await waits_of_plane(testbed, run, max(10, samples // REAL_ONE_IN))
    how = f"{len(served_ms)} samples, at most {max(served_ms):.1f} ms"
    run.figure("event-p50", percentile(served_ms, 0.5), how)
    run.figure("event-p99", percentile(served_ms, 0.99), how)
    how = f"p99 {percentile(real_ms, 0.99):.1f} ms; {len(real_ms)} samples, at most {max(real_ms):.1f} ms"
    run.figure("event-real", percentile(real_ms, 0.5), how)
    run.detail(
        "event",
        stub_ms=[round(wait_ms, 3) for wait_ms in served_ms],
        real_ms=[round(wait_ms, 3) for wait_ms in real_ms],
    )


async def waits_of_list_server(testbed: Testbed, samples: int) -> list[float]:
    """Milliseconds from the socket to the reconcile."""
    async with (
        list_server(testbed, samples) as kubeconfig,
        measured(
            testbed,
            "event-served",
            lambda order: ours(order, "--act", "report"),
            objects=SERVED,
            kubeconfig=kubeconfig,
        ) as program,
    ):
        began = await program.wait_for_many(Began, samples, within_s=120)
    return [1000 * (one.at - one.sent_at) for one in began if one.sent_at]


@asynccontextmanager
async def list_server(testbed: Testbed, changes: int) -> AsyncIterator[Path]:
    """A list server in a process of its own; a kubeconfig for it."""
    ports = testbed.directory / "list-server.port"
    command = [sys.executable, "-P", "-m", "benchmarks.measuring.list_server"]
    command += ["--kubeconfig", str(testbed.plane.kubeconfig), "--namespace", testbed.namespace]
    command += ["--port-file", str(ports), "--objects", str(SERVED), "--changes", str(changes)]
    async with running(lambda _: command, testbed.directory, name="list-server", clock=testbed.clock):
        await wait_for(ports.exists, "the list server to listen", within_s=30)
        url = f"http://127.0.0.1:{ports.read_text().strip()}"
        yield anonymous_kubeconfig(testbed.directory / "list-server.kubeconfig", url)


async def waits_of_plane(testbed: Testbed, run: Run, samples: int) -> list[float]:
    """Change objects one after the other while an idle controller has all of them in its cache; milliseconds."""
    async with measured(testbed, "event-real", lambda order: ours(order, "--act", "report")) as program:
        await program.wait_for(Loaded)
        await asyncio.sleep(_SETTLE_S)
        answered_at = await change_some(testbed, run, samples)

        def found() -> list[Began]:
            return [one for one in program.records.of(Began) if one.version in answered_at]

        await wait_for(lambda: len(found()) >= samples, "every change to be reconciled", within_s=30)
        began = found()
    await set_back(testbed, run)
    return waits_after_answers(began, answered_at)


def waits_after_answers(began: Sequence[Began], answered_at: Mapping[str, float]) -> list[float]:
    """Milliseconds from each answer to the reconcile of that version; below 0 if the event was first."""
    return [1000 * (one.at - answered_at[one.version]) for one in began if one.version in answered_at]


async def change_some(testbed: Testbed, run: Run, samples: int) -> dict[str, float]:
    """The instant at which the PATCH that made each version was answered, by CLOCK_MONOTONIC."""
    rng = random.Random(1)  # noqa: S311 - pauses, no secret
    testbed.observations.start_over()
    answered_at: dict[str, float] = {}
    names = rng.sample(testbed.stock.names, min(samples, len(testbed.stock.names)))
    with run.console.counting("changes on the control plane", samples) as tick:
        for number in range(samples):
            patch = MergePatch({"metadata": {"annotations": {"bench": str(number)}}})
            name = names[number % len(names)]
            answer = await testbed.client.patch(
                testbed.resource, name, patch, namespace=testbed.namespace, type=HasMeta
            )
            answered_at[answer.metadata.resource_version] = time.monotonic()
            tick(1)
            await asyncio.sleep(rng.uniform(*PAUSE_S))
    return answered_at


async def set_back(testbed: Testbed, run: Run) -> None:
    """Let every object that was changed be as it was made."""
    await testbed.stock.catch_up()
    names = sorted({change.name for change in testbed.observations.changes} & set(testbed.stock.names))
    with run.console.counting("setting the objects back", len(names)) as tick:
        await testbed.stock.set_back(names, tick)


# -- status writes ------------------------------------------------------------------------------------------


async def measure_writes(
    testbed: Testbed, run: Run, *, rounds: int, connections: int, limit_s: float
) -> None:
    """Reconciles with one fenced status write each, alternating with wrk, which sends the same patches.

    As many requests are under way, and one watch counts both, from the first write to the last.
    """
    names = within_limit(testbed, limit_s)
    load = Load(headers(testbed.replica.token), connections, limit_s)
    limits: list[Writes] = []
    samples: list[Writes] = []
    for number in range(rounds):
        limits.append(await write_by_wrk(testbed, run, names, load, value=f"wrk-{number}"))
        await set_back(testbed, run)
        samples.append(await write(testbed, run, len(names), load, value=f"round-{number}"))
        await set_back(testbed, run)
    limit = mean_limit(limits)
    reached = statistics.fmean(one.per_s_while_writing for one in samples)
    run.figure("write", 100 * reached / limit, f"{reached:,.0f}/s of {limit:,.0f}/s")
    run.detail(
        "write",
        limit_per_s=round_off(limit),
        ringleader=[one.details() for one in samples],
        wrk=[one.details() for one in limits],
    )


async def write(testbed: Testbed, run: Run, wanted: int, load: Load, *, value: str) -> Writes:
    """Our program writes until *wanted* writes are seen, or for as long as wrk may run."""
    seen = testbed.observations.changes
    flags = ["--act", "write", "--value", value, "--workers", str(load.connections)]
    began_at = testbed.clock.now()
    async with measured(testbed, "write", lambda order: ours(order, *flags)) as program:
        await wait_for(lambda: seen, "the first status write", within_s=START_WITHIN_S)
        cores = cores_of(testbed, "ringleader", program.running.pid)
        with run.console.counting("reconciles with a status write", wanted) as tick:
            shown = 0
            while len(seen) < wanted and testbed.clock.now() - seen[0].at < load.at_most_s:
                tick(len(seen) - shown)
                shown = len(seen)
                await asyncio.sleep(_POLL_S)
        return writes_of(began_at, list(seen), cores)


async def write_by_wrk(testbed: Testbed, run: Run, names: Sequence[str], load: Load, *, value: str) -> Writes:
    """wrk sends for *names* the patches of our program. Raises: WrkFailed, NotSeen."""
    seen = testbed.observations
    seen.start_over()
    return await reach_limit(
        [request(testbed.resource, seen.meta(name, testbed.namespace), value) for name in names],
        load,
        testbed=testbed,
        changes=lambda: seen.changes,
        console=run.console,
    )


def request(resource: ApiResource, meta: Meta, value: str) -> Request:
    """The patch that our program sends to the object of *meta*, if it has no status yet."""
    patch = JsonPatch(ExclusiveOwnership("").fence(meta).operations).add("/status", {"configMap": value})
    path = resource.path(namespace=meta.namespace, name=meta.name, subresource="status")
    return Request(f"{path}?{urlencode({'fieldManager': MANAGER})}", patch.encode())


def headers(token: str) -> dict[str, str]:
    """The headers of our program's patches."""
    return {
        "Authorization": f"Bearer {token}",
        "User-Agent": f"ringleader/{MANAGER}",
        "Accept": "application/json",
        "Content-Type": JsonPatch().content_type,
    }


# -- the Lease under full load ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lateness:
    """Lateness of renewals that are due every so often."""

    renewals: int
    late: int
    worst_s: float


def lateness(renewals: Sequence[Renewal], *, every_s: float, ended_at: float) -> Lateness:
    """Judge *renewals*, in their order, by both clocks; the one that had not come at *ended_at* counts too."""
    gaps_s = [
        max(after.sent_at - before.sent_at, after.seen_at - before.seen_at)
        for before, after in pairwise(renewals)
    ]
    if renewals:
        gaps_s.append(ended_at - renewals[-1].seen_at)
    late_s = [gap_s - every_s for gap_s in gaps_s]
    return Lateness(len(renewals), sum(one > LATE_S for one in late_s), max(0.0, *late_s) if late_s else 0.0)


async def measure_renewals(testbed: Testbed, run: Run, *, minutes: float, lease_s: int, workers: int) -> None:
    """One replica in sharded mode, its ring in a file, owns every object; its Lease is watched.

    Each reconcile asks for the next one at once, and one object in eight has its status written every time: replica,
    server and machine are busy.
    """
    ring_file = testbed.directory / "ring.yaml"
    ring_file.write_text(yaml.safe_dump(testbed.spec.manifest()))
    flags = ["--act", "load", "--workers", str(workers), "--member", MEMBER]
    flags += ["--ring", RING, "--ring-file", str(ring_file), "--lease-s", str(lease_s)]
    async with measured(testbed, "lease", lambda order: ours(order, *flags)) as program:
        holders = testbed.leases.holders

        def shard() -> str:
            return next((name for name in holders if name.startswith(f"{MEMBER}-")), "")

        await wait_for(shard, "the replica to take its Lease", within_s=60)
        with run.console.counting("giving the objects to the replica", len(testbed.stock.names)) as tick:
            await testbed.stock.give(dict.fromkeys(testbed.stock.names, shard()), tick)
        await program.wait_for(Loaded)
        await watch_lease(testbed, run, program, minutes=minutes, every_s=lease_s / 3)


async def watch_lease(
    testbed: Testbed, run: Run, program: Program, *, minutes: float, every_s: float
) -> None:
    testbed.observations.start_over()
    renewals = testbed.leases.renewals
    del renewals[:-1]
    began_at, lasts_s, writes = testbed.clock.now(), minutes * 60, 0
    cores = cores_of(testbed, "replica", program.running.pid)
    with run.console.counting("seconds of full load", int(lasts_s)) as tick:
        while (gone_s := testbed.clock.now() - began_at) < lasts_s:
            program.running.check()
            await asyncio.sleep(min(1.0, lasts_s - gone_s))
            tick(1)
            writes += len(testbed.observations.changes)
            testbed.observations.start_over()
    found = lateness(renewals, every_s=every_s, ended_at=testbed.clock.now())
    if found.renewals < ENOUGH_RENEWALS:
        raise NotSeen(f"only {found.renewals} renewals in {minutes:g} min: give it more --minutes")
    used = {process: one.used() for process, one in cores.items()}
    how = (
        f"of {found.renewals} in {minutes:g} min, the latest by {found.worst_s:.2f} s; "
        f"{writes / lasts_s:,.0f} writes/s, cores: replica {used['replica']:.2f}, server {used['server']:.2f}"
    )
    run.figure("lease", found.late, how)
    run.detail(
        "lease",
        renewals=found.renewals,
        worst_s=round(found.worst_s, 3),
        every_s=every_s,
        writes_per_s=round(writes / lasts_s, 1),
        cores=used,
    )
