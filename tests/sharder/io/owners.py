"""Owners that do their part in a handoff: what the tests' hand-made shards leave to be done."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubeio.clock import SystemClock
from kubeio.errors import Conflict, Invalid, KubeError, NotFound
from kubeio.labels import json_pointer
from kubeio.models import Meta
from kubeio.patch import JsonPatch
from kubeio.protocol import is_shard_name
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Changed, Listed, Reflector
from tests.sharder.io.environment import KEYS, WEBSITES, SharderEnvironment, running

SHARD = json_pointer("metadata", "labels", KEYS.shard)
DRAIN = json_pointer("metadata", "labels", KEYS.drain)
RETRY_S = 0.2


class Owners:
    """Acknowledge every drain label as the object's owner would (protocol, section 5.4)."""

    def __init__(self, env: SharderEnvironment) -> None:
        self._env = env
        self._slots = asyncio.Semaphore(16)

    async def run(self) -> None:
        drains = Reflector(
            ListerWatcher(self._env.client, WEBSITES, label_selector=KEYS.drain, metadata_only=True),
            clock=SystemClock(),
            rng=random.Random(3),
        )
        async with asyncio.TaskGroup() as tasks:
            async for event in drains.events():
                match event:
                    case Listed(objects=objects):
                        for item in objects:
                            tasks.create_task(self._acknowledge(item.meta))
                    case Changed(object=item):
                        tasks.create_task(self._acknowledge(item.meta))
                    case _:
                        pass

    async def _acknowledge(self, meta: Meta) -> None:
        """Until it is written, or another version of the object makes it somebody else's question."""
        async with self._slots:
            while True:
                try:
                    patch = await self._answer(meta)
                    await self._env.client.patch(
                        WEBSITES, meta.name, patch, namespace=meta.namespace, type=bytes, metadata_only=True
                    )
                except (Invalid, Conflict, NotFound):
                    return
                except KubeError:
                    await asyncio.sleep(RETRY_S)
                else:
                    return

    async def _answer(self, meta: Meta) -> JsonPatch:
        owner, target = meta.labels.get(KEYS.shard), meta.labels[KEYS.drain]
        patch = JsonPatch().test(json_pointer("metadata", "resourceVersion"), meta.resource_version)
        if owner is None or target == owner:
            return patch.remove(DRAIN)
        if target and await self._is_held(target):
            return patch.replace(SHARD, target).remove(DRAIN)
        return patch.remove(SHARD).remove(DRAIN)

    async def _is_held(self, name: str) -> bool:
        if not is_shard_name(name):
            return False
        try:
            return (await self._env.leases.get(name)).spec.holder_identity == name
        except NotFound:
            return False


@asynccontextmanager
async def owners_that_pass_on(env: SharderEnvironment) -> AsyncIterator[None]:
    """All owners answer all drain labels until the block ends."""
    async with running(Owners(env).run()):
        yield
