"""From an event to the begin of its reconcile, in an idle controller.

Judged against the stub server, whose events say when they were handed to its socket; reported for the control plane,
from the answer to a PATCH on: there, the server's own way from the write to the watch is part of the time, and an
event may well come before the answer.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from benchmarks.measuring.meter import Meter
from benchmarks.measuring.processes import running
from benchmarks.measuring.rows import Row
from benchmarks.measuring.sightings import wait_for
from benchmarks.runtime.contestants import ours
from benchmarks.runtime.goals import figure
from benchmarks.runtime.ground import Ground
from benchmarks.runtime.program import Program, measured
from benchmarks.runtime.records import Began, Loaded
from benchmarks.runtime.rows import Options
from kubeio.models import HasMeta
from kubeio.patch import MergePatch
from loadtest.quantiles import percentile

STUB_OBJECTS: Final = 100
_PAUSE_S: Final = (0.02, 0.08)
"""Between one PATCH and the next: never in step with anything."""
_SETTLE_S: Final = 1.0
_REAL_ONE_IN: Final = 5
"""A PATCH costs more time than an event of the stub."""


async def measure_events(ground: Ground, meter: Meter, options: Options) -> Row:
    """The stub's events, then changes on the control plane."""
    with meter.counting("events of the stub server", None):
        stub_ms = await _stub_waits_ms(ground, options)
    real_ms = await _real_waits_ms(ground, meter, options)
    p50, p99, how = _told(stub_ms)
    real_p50, real_p99, real_how = _told(real_ms)
    return Row(
        key="event",
        figures=[
            figure("event-p50", p50, how),
            figure("event-p99", p99, how),
            figure("event-real", real_p50, f"p99 {real_p99:.1f} ms; {real_how}"),
        ],
        details={"stub_ms": _rounded(stub_ms), "real_ms": _rounded(real_ms)},
    )


def _told(waits_ms: Sequence[float]) -> tuple[float, float, str]:
    p50, p99 = percentile(waits_ms, 0.5), percentile(waits_ms, 0.99)
    return p50, p99, f"{len(waits_ms)} samples, at most {max(waits_ms):.1f} ms"


def _rounded(waits_ms: Sequence[float]) -> list[float]:
    return [round(wait_ms, 3) for wait_ms in waits_ms]


# -- the stub -----------------------------------------------------------------------------------------------


async def _stub_waits_ms(ground: Ground, options: Options) -> list[float]:
    async with (
        _stub(ground, options.samples) as kubeconfig,
        measured(
            ground,
            "event-stub",
            lambda order: ours(order, "--act", "witness"),
            objects=STUB_OBJECTS,
            kubeconfig=kubeconfig,
        ) as program,
    ):
        began = await program.wait_for_many(Began, options.samples, within_s=120)
    return stub_waits_ms(began)


def stub_waits_ms(began: Sequence[Began]) -> list[float]:
    """Milliseconds from the socket to the reconcile, of those that the stub sent as changes."""
    return [1000 * (one.at - one.sent_at) for one in began if one.sent_at]


@asynccontextmanager
async def _stub(ground: Ground, samples: int) -> AsyncIterator[Path]:
    """A stub server in a process of its own; how to reach it."""
    name = ground.fresh_name("stub")
    ports = ground.directory / f"{name}.port"
    async with running(
        lambda ports: [
            *(sys.executable, "-P", "-m", "benchmarks.runtime.stub", "--port-file", str(ports)),
            *("--namespace", ground.namespace, "--objects", str(STUB_OBJECTS), "--samples", str(samples)),
        ],
        ground.directory,
        name=name,
        environment={},
        clock=ground.clock,
    ):
        await wait_for(ports.exists, "the stub server to listen", within_s=30)
        yield stub_kubeconfig(ground.directory / f"{name}.kubeconfig", int(ports.read_text()))


def stub_kubeconfig(path: Path, port: int) -> Path:
    """How to reach a stub server on *port*, written to *path*."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "stub", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "stub", "context": {"cluster": "stub", "user": "nobody"}}],
        "current-context": "stub",
    }
    path.write_text(json.dumps(document))
    return path


# -- the control plane --------------------------------------------------------------------------------------


async def _real_waits_ms(ground: Ground, meter: Meter, options: Options) -> list[float]:
    """Change objects one after the other while an idle controller has all of them in its cache."""
    samples = max(10, options.samples // _REAL_ONE_IN)
    async with measured(
        ground, "event-real", lambda order: ours(order, "--act", "witness"), objects=options.objects
    ) as program:
        await program.wait_for(Loaded, within_s=options.start_within_s)
        await asyncio.sleep(_SETTLE_S)
        answered_at = await _change_some(ground, meter, samples)
        waits = await _waits_ms(program, answered_at)
    names = sorted({change.name for change in ground.sightings.changes})
    with meter.counting("setting the objects back", len(names)) as tick:
        await ground.set_back(names, tick)
    return waits


async def _change_some(ground: Ground, meter: Meter, samples: int) -> dict[str, float]:
    """When the PATCH that made each version was answered, by CLOCK_MONOTONIC."""
    rng = random.Random(1)  # noqa: S311 - pauses, no secret
    ground.sightings.start_over()
    answered_at: dict[str, float] = {}
    names = rng.sample(ground.stock.names, min(samples, len(ground.stock.names)))
    with meter.counting("changes on the control plane", samples) as tick:
        for number in range(samples):
            patch = MergePatch({"metadata": {"annotations": {"bench": str(number)}}})
            name = names[number % len(names)]
            answer = await ground.client.patch(
                ground.resource, name, patch, namespace=ground.namespace, type=HasMeta
            )
            answered_at[answer.metadata.resource_version] = time.monotonic()
            tick(1)
            await asyncio.sleep(rng.uniform(*_PAUSE_S))
    return answered_at


async def _waits_ms(program: Program, answered_at: Mapping[str, float]) -> list[float]:
    def found() -> list[Began]:
        return [one for one in program.records.of(Began) if one.version in answered_at]

    await wait_for(lambda: len(found()) >= len(answered_at), "every change to be reconciled", within_s=30)
    return real_waits_ms(found(), answered_at)


def real_waits_ms(began: Sequence[Began], answered_at: Mapping[str, float]) -> list[float]:
    """Milliseconds from each answer to the reconcile of that version; below 0 if the event was first."""
    return [1000 * (one.at - answered_at[one.version]) for one in began if one.version in answered_at]
