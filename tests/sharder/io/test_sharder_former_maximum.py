"""A maxLeaseDurationSeconds that was lowered counts until no replica can work with it (protocol, section 4)."""

from __future__ import annotations

import asyncio
import time

from tests.sharder.io.environment import KEYS, SharderEnvironment, eventually

FORMER_S = 3
GONE = "gone-00000001"


async def longest_s(env: SharderEnvironment) -> object:
    return (await env.status()).get("longestLeaseDurationSeconds")


async def lower(env: SharderEnvironment) -> None:
    """A sharder works the ring with the former maximum, which is lowered then."""
    await env.ring(maxLeaseDurationSeconds=FORMER_S)
    async with env.sharder():
        await eventually(lambda: longest_s(env), FORMER_S)
    await env.ring(maxLeaseDurationSeconds=1)


async def test_a_sharder_that_starts_after_it_was_lowered_waits_for_the_former_one(
    env: SharderEnvironment,
) -> None:
    await lower(env)
    await env.shard("a")
    await env.site("one", labels={KEYS.shard: GONE})
    async with env.sharder("sharder-2"):
        began_at = time.monotonic()
        await eventually(env.owners, {"one": "a-00000001"})
        assert time.monotonic() - began_at >= FORMER_S


async def test_it_is_remembered_while_a_shard_has_such_a_lease_and_then_forgotten(
    env: SharderEnvironment,
) -> None:
    await lower(env)
    shard = await env.shard("a", duration_s=FORMER_S)
    async with env.sharder("sharder-2"):
        await asyncio.sleep(FORMER_S + 2)
        assert await longest_s(env) == FORMER_S
        await shard.release()
        released_at = time.monotonic()
        await eventually(lambda: longest_s(env), 1)
        assert time.monotonic() - released_at >= FORMER_S


async def test_a_contest_that_begins_after_it_was_forgotten_is_shorter(env: SharderEnvironment) -> None:
    await lower(env)
    await env.shard("a")
    async with env.sharder("sharder-2"):
        await eventually(lambda: longest_s(env), 1)
        await env.site("one", labels={KEYS.shard: GONE})
        began_at = time.monotonic()
        await eventually(env.owners, {"one": "a-00000001"})
        assert time.monotonic() - began_at < FORMER_S


async def test_a_higher_one_counts_at_once(env: SharderEnvironment) -> None:
    await lower(env)
    async with env.sharder("sharder-2"):
        await env.ring(maxLeaseDurationSeconds=10)
        await eventually(lambda: longest_s(env), 10)


async def test_one_that_was_written_meanwhile_is_not_forgotten(env: SharderEnvironment) -> None:
    """A former leader that goes on under an older spec does not undo what the present one remembers."""
    await lower(env)
    await env.shard("a")
    await env.site("one")
    async with env.sharder("sharder-2"):
        await eventually(env.owners, {"one": "a-00000001"})
        await env.report(longestLeaseDurationSeconds=60)
        await asyncio.sleep(FORMER_S + 3)
        assert await longest_s(env) == 60
