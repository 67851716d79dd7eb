"""A running fleet on the embedded control plane for each prepared fault, and the commands of somebody on call."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from devcluster.embedded import embedded_plane
from kubeio.clock import SystemClock
from kubeio.protocol import CONTROLLER_RINGS
from ringleader.testing.commands import FleetSpec
from ringleader.testing.fleet import Fleet, open_fleet
from ringleader.testing.held import held
from ringleader.testing.process import Process, start_process
from tests.warm_python import warm_python

OBJECTS = 30


@dataclass
class Night:
    """The fleet that is broken, and what the one on call has: a kubeconfig and the command."""

    fleet: Fleet
    folder: Path
    stack: AsyncExitStack
    processes: list[Process] = field(default_factory=list)

    async def doctor(self, *flags: str) -> tuple[int, str]:
        """Exit code and output of `ringleader doctor`."""
        return await self._run("doctor", "--look-again", "3s", *flags)

    async def explain(self, name: str, *flags: str) -> str:
        """What `ringleader explain` says first of the site *name*."""
        code, out = await self._run("explain", f"website/{name}", "-n", "sites", *flags)
        assert code in (0, 5), out
        return out.splitlines()[0]

    async def explained(self, line: str) -> str:
        """What `ringleader explain` says first of the site that the doctor's *line* names."""
        named = re.search(r"website/(\S+)", line)
        assert named is not None, line
        return await self.explain(named[1])

    async def _run(self, *arguments: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *(warm_python(), "-P", "-m", "ringleader", *arguments),
            *("--kubeconfig", str(self.fleet.plane.kubeconfig)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert err == b"", err.decode()
        return process.returncode or 0, out.decode()

    async def first_line(self) -> str:
        """What the doctor says first; something is wrong."""
        code, out = await self.doctor()
        assert code == 1, out
        return out.splitlines()[0]

    async def report(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((await self.doctor("-o", "json"))[1])
        return document

    async def start(self, name: str, *arguments: str) -> Process:
        """One more process of ours beside the fleet."""
        kubeconfig = await self.fleet.plane.kubeconfig_for(name)
        process = await start_process(
            [sys.executable, "-P", "-m", *arguments, "--kubeconfig", str(kubeconfig)],
            name=name,
            log=self.folder / f"{name}.log",
            environment={},
            clock=SystemClock(),
        )
        waiting = asyncio.create_task(process.wait(), name=name)
        self.stack.push_async_callback(_end, process, waiting)
        return process


async def _end(process: Process, waiting: asyncio.Task[int]) -> None:
    if process.ended_at is None:
        process.kill()
    await waiting


@pytest.fixture
def fleet_spec() -> FleetSpec:
    """What the fleet is made of; faults override it."""
    return FleetSpec(lease_s=2, settle_s=1)


@pytest_asyncio.fixture
async def night(tmp_path: Path, fleet_spec: FleetSpec) -> AsyncIterator[Night]:
    """Three replicas and two sharders with all objects in their places."""
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(held(embedded_plane(tmp_path / "plane")))
        fleet = await stack.enter_async_context(held(open_fleet(plane, tmp_path / "fleet", spec=fleet_spec)))
        await fleet.start(replicas=3)
        await fleet.objects.create_many(OBJECTS)
        await fleet.wait_quiet()
        await fleet.wait_for(lambda: is_ready(fleet), "the ring's status to say that it is Ready")
        yield Night(fleet, tmp_path, stack)


async def is_ready(fleet: Fleet) -> bool:
    """Whether the status, which is written now and then, tells of the state that was waited for."""
    ring = await fleet.client.get(CONTROLLER_RINGS, fleet.spec.ring)
    conditions = ring.get("status", {}).get("conditions", [])
    found = {condition["type"]: condition["status"] for condition in conditions}
    return found.get("Ready") == "True" and found.get("Balanced") == "True"
