"""Two controllers on one ring: each works its own kind, and nobody gets objects of the other's (protocol, 3)."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from kubeio.resource import ApiResource
from ringleader.check.command import Wanted, examine
from ringleader.check.findings import Finding, Level
from tests.sharder.io.environment import CONFIGMAPS, RING, ROOT, WEBSITES, SharderEnvironment, wait_until

pytestmark = [pytest.mark.fleet]

SECRETS = ApiResource("", "v1", "secrets", "Secret")
CONTROLLERS = {"site": "website/controller.py:websites", "sum": "checksum/controller.py:checksums"}
CHILDREN = [{"group": "", "resource": "configmaps"}]
MAINS = [
    {"group": "example.com", "resource": "websites", "controlledResources": CHILDREN},
    {"group": "", "resource": "secrets", "controlledResources": CHILDREN},
]


@asynccontextmanager
async def replica(env: SharderEnvironment, member: str) -> AsyncIterator[Process]:
    """A real process of the controller that *member* is called after; stopped in good order at the end."""
    kubeconfig = await env.plane.kubeconfig_for(member)
    program = ROOT / "examples" / CONTROLLERS[member.partition("-")[0]]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "shard_controller", "run", str(program), "--ring", RING, "--member", member),
        *("--lease-duration", "2", "--kubeconfig", str(kubeconfig)),
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0


async def make_objects(env: SharderEnvironment, prefix: str, count: int) -> set[str]:
    """Websites and Secrets; the names of the ConfigMaps that their controllers are to make."""
    for number in range(count):
        name = f"{prefix}-{number}"
        await env.site(name)
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
        await env.client.create(SECRETS, secret, namespace="default", type=bytes)
    names = {f"{prefix}-{number}" for number in range(count)}
    return names | {f"{name}-checksum" for name in names}


async def kinds(env: SharderEnvironment) -> list[Finding]:
    """What the check finds wrong about kinds."""
    wanted = Wanted(ring=RING, accounts={}, managers=frozenset(), again_s=1.0, timeout_s=20)
    report = await examine(env.client, wanted)
    return [each for each in report.findings if (each.check, each.level) == ("kinds", Level.ERROR)]


async def is_ready(env: SharderEnvironment, reason: str) -> bool:
    return (await env.condition("Ready")).get("reason") == reason


async def test_with_two_controllers_on_one_ring_every_object_is_worked_by_its_own(
    env: SharderEnvironment,
) -> None:
    await env.ring(resources=MAINS, maxLeaseDurationSeconds=4)
    async with AsyncExitStack() as sites, env.sharder():
        async with AsyncExitStack() as sums:
            for number in range(2):
                await sites.enter_async_context(replica(env, f"site-{number}"))
                await sums.enter_async_context(replica(env, f"sum-{number}"))
            await wait_until(lambda: is_ready(env, "Working"), within_s=60)
            wanted = await make_objects(env, "first", 10)

            async def all_worked() -> bool:
                return wanted <= (await env.owners(CONFIGMAPS)).keys()

            await wait_until(all_worked, within_s=60)
            assert {owner.partition("-")[0] for owner in (await env.owners(WEBSITES)).values()} == {"site"}
            assert {owner.partition("-")[0] for owner in (await env.owners(SECRETS)).values()} == {"sum"}
        await wait_until(lambda: is_ready(env, "KindUnworked"), within_s=60)
        assert "secrets" in str((await env.condition("Ready"))["message"])
        assert [each.summary for each in await kinds(env)] == [
            f"no member of ring {RING} works secrets: its 10 objects wait"
        ]
        wanted = {name for name in await make_objects(env, "second", 3) if "checksum" not in name}
        await wait_until(all_worked, within_s=60)
        assert {owner for name, owner in (await env.owners(SECRETS)).items() if "second" in name} == {""}
        async with replica(env, "sum-9"):
            wanted = {f"second-{number}-checksum" for number in range(3)}
            await wait_until(all_worked, within_s=60)
            await wait_until(lambda: is_ready(env, "Working"), within_s=60)
            assert await kinds(env) == []
