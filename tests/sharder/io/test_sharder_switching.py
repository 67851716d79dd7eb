"""The unowned watch is switched while objects come and go: nothing is missed meanwhile (trap 12)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from devcluster.faults import Fault
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock
from kubeio.models import ObjectKey, ObjectRef
from kubeio.rest.client import Client
from sharder.ringspec.scope import EVERYWHERE
from sharder.unowned.access import ObjectAccess
from sharder.unowned.pending import PendingObjects
from sharder.unowned.permissions import MissingPermissions
from sharder.unowned.reflectors import UnownedReflectors
from tests.sharder.io.environment import KEYS, WEBSITES, SharderEnvironment, running, wait_until


def work(name: str) -> ObjectRef:
    return ObjectRef(WEBSITES.group_resource, ObjectKey("default", name))


class Nobody:
    """Hears of pending objects, and does nothing."""

    def enqueue_name(self, name: str) -> None:
        """An object is new or changed."""

    def controlled_listed(self) -> None:
        """Controlled objects are known."""

    def enqueue_all(self) -> None:
        """Every resource was listed."""

    def backlog(self) -> int:
        return 0


@asynccontextmanager
async def watching(env: SharderEnvironment) -> AsyncIterator[tuple[UnownedReflectors, PendingObjects]]:
    """The unowned watch of the account `watcher`, which leaves nobody out yet."""
    pending = PendingObjects()
    user = await env.plane.kubeconfig_for("watcher")
    async with Client(load_cluster(kubeconfig=str(user))) as client:
        permissions = MissingPermissions(now=SystemClock().now, on_change=lambda *_: None)
        unowned = UnownedReflectors(
            ObjectAccess(client, permissions, SystemClock(), random.Random(1)),
            [WEBSITES],
            pending,
            Nobody(),
            keys=KEYS,
            scope=EVERYWHERE,
        )
        async with running(unowned.run()):
            yield unowned, pending


async def test_objects_made_while_the_watch_switches_are_seen_at_once(env: SharderEnvironment) -> None:
    async with watching(env) as (unowned, pending):
        unowned.select({"a-00000001"})
        await wait_until(lambda: unowned.listed_at)
        await env.plane.faults.add(
            Fault(what="latency", user="watcher", resource="websites.example.com", delay_s=4.0, for_s=2.0)
        )
        unowned.select({"a-00000001", "b-00000001"})
        await asyncio.sleep(0.2)
        await env.site("late")
        await wait_until(lambda: pending.get(work("late")), within_s=3)
        assert unowned.listed_at is None, "the switch took no time: the test proves nothing"
        assert pending.get(work("late")) is not None
        await wait_until(lambda: unowned.listed_at)
        assert pending.get(work("late")) is not None


async def test_a_switch_forgets_what_has_an_owner_now_and_finds_what_lost_its_own(
    env: SharderEnvironment,
) -> None:
    await env.site("of-a", labels={KEYS.shard: "a-00000001"})
    await env.site("of-b", labels={KEYS.shard: "b-00000001"})
    async with watching(env) as (unowned, pending):
        unowned.select({"a-00000001"})
        await wait_until(lambda: unowned.listed_at)
        assert [pending.get(work(name)) is not None for name in ("of-a", "of-b")] == [False, True]
        unowned.select({"b-00000001"})
        await wait_until(lambda: unowned.listed_at)
        assert [pending.get(work(name)) is not None for name in ("of-a", "of-b")] == [True, False]
