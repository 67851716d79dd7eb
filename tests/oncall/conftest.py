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
from ringleader.testing.process import Process, start_process
from ringleader.testing.single_task import single_task
from tests.warm_python import warm_python

OBJECTS = 30


@dataclass
class Night:
    """The fleet that is broken, and what the one on call has: a kubeconfig and the command."""

    fleet: Fleet
    folder: Path
    stack: AsyncExitStack
    processes: list[Process] = field(default_factory=list)

    async def check(self, *flags: str) -> tuple[int, str]:
        """Exit code and output of `ringleader check`."""
        return await self._run("check", "--recheck-after", "3s", *flags)

    async def describe(self, name: str, *flags: str) -> str:
        """The first line of `ringleader describe` about the site *name*."""
        code, out = await self._run("describe", f"website/{name}", "-n", "sites", *flags)
        assert code in (0, 5), out
        return out.splitlines()[0]

    async def described(self, line: str) -> str:
        """The first line of `ringleader describe` about the site that *line* of `check` names."""
        named = re.search(r"website/(\S+)", line)
        assert named is not None, line
        return await self.describe(named[1])

    async def agree(self) -> None:
        """`check`, `describe` and `status` name the same leader, the same silent shards and the same causes."""
        findings = (await self.report())["findings"]
        ring = json.loads((await self._run("describe", "ring", self.fleet.spec.ring, "-o", "json"))[1])
        rings = json.loads((await self._run("status", self.fleet.spec.ring, "-o", "json"))[1])["rings"]
        sharder = next(each for each in findings if each["check"] == "sharder")
        waits = {cause["reason"]: cause["text"] for cause in ring["causes"] if cause["reason"] != "Silent"}
        assert "; ".join(waits.values()) == rings[0]["warning"]
        nobody = waits.get("NoSharder", "")
        assert nobody in sharder["summary"]
        assert bool(nobody) is (sharder["level"] == "error")
        if not nobody:
            assert sharder["summary"].removesuffix(" leads") in ring["sharder"]
        silent = {row["shard"] for row in ring["shards"] if row["isSilent"]}
        assert {each["summary"].split()[1] for each in findings if each["reason"] == "Silent"} == silent
        contested = {row["shard"] for row in ring["shards"] if row["state"] == "contested"}
        assert {row["shard"] for row in rings[0]["members"] if row["silent"]} <= silent | contested
        for each in findings:
            if each["reason"] and each["object"].startswith("website/"):
                target, *flags = each["object"].split()
                out = (await self._run("describe", target, *flags, "-o", "json"))[1]
                cause = json.loads(out)["cause"]
                assert (cause["reason"], cause["isWrong"]) == (each["reason"], True), (cause, each)
                assert each["summary"].startswith(f"{each['object']} {cause['text']}"), (cause, each)

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
        """The first line of `check`; something is wrong."""
        code, out = await self.check()
        assert code == 1, out
        return out.splitlines()[0]

    async def report(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((await self.check("-o", "json"))[1])
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
        plane = await stack.enter_async_context(single_task(embedded_plane(tmp_path / "plane")))
        fleet = await stack.enter_async_context(
            single_task(open_fleet(plane, tmp_path / "fleet", spec=fleet_spec))
        )
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
