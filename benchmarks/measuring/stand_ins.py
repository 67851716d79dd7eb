"""Shards that only hold Leases and answer drains: the sharder's counterpart where real replicas do not matter.

They cost next to nothing: the machine belongs to the server and the sharder, as it belonged to wrk. Real replicas
list, watch and reconcile; rows about replicas start real ones.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from typing import Final

import msgspec

from benchmarks.measuring.stock import Collection
from kubeio.clock import Clock, micro_time
from kubeio.errors import Conflict, Invalid, KubeError, NotFound
from kubeio.leases.lease import Leases
from kubeio.models import Lease, Meta
from kubeio.shard.handoff import acknowledgement, decide_handoff
from kubeio.shard.lease_acquisition import LeaseTemplate, fresh_name, release
from kubeio.shard.process_proof import Identity
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Changed, Listed, Reflector

_GRAIN_S: Final = 0.05


class StandIns:
    """Members `stand-in-1` ... of one ring. `run` keeps their Leases and answers their drains."""

    def __init__(self, collection: Collection, *, lease_namespace: str, lease_s: int, clock: Clock) -> None:
        self._collection = collection
        self._keys = collection.keys
        self._leases = Leases(collection.client, lease_namespace)
        self._namespace = lease_namespace
        self._lease_s = lease_s
        self._clock = clock
        self._held: dict[str, Lease] = {}
        self._due: dict[str, float] = {}
        """Instant of each Lease's next renewal: a third of its duration after the last, so creation spreads them."""
        self.shards: dict[str, str] = {}
        """Shard by member, of those that renew."""
        self.is_paused = False
        """Whether no Lease is renewed for now."""

    async def join(self, members: Sequence[str]) -> None:
        """Let each of *members* hold a Lease."""
        for member in members:
            if member in self.shards:
                continue
            template = LeaseTemplate(
                keys=self._keys,
                member=member,
                duration_s=self._lease_s,
                hold=False,
                identity=Identity("", "", 0, 0),
            )
            name = fresh_name(member, random.Random())  # noqa: S311 - a name, no secret
            self._held[name] = await self._leases.create(template.lease(name, self._namespace, self._clock))
            self.shards[member] = name
            await self._renew_one(name)  # with the annotation of full caches

    def kill(self, member: str) -> str:
        """Stop renewing, as a process that was killed; gives the shard's name."""
        name = self.shards.pop(member)
        del self._held[name]
        self._due.pop(name, None)
        return name

    async def leave(self) -> None:
        """Release every Lease."""
        for name in list(self._held):
            lease = self._held.pop(name)
            self._due.pop(name, None)
            try:
                await release(self._leases, lease)
            except Conflict:  # the sharder wrote its label
                await release(self._leases, await self._leases.get(name))
        self.shards.clear()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._renew(tasks), name="stand-in leases")
            tasks.create_task(self._answer_drains(tasks), name="stand-in drains")

    async def _renew(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await asyncio.sleep(_GRAIN_S)
            now = self._clock.now()
            for name in [name for name, at in self._due.items() if at <= now and not self.is_paused]:
                self._due[name] = math.inf
                tasks.create_task(self._renew_one(name), name=f"renew {name}")

    async def _renew_one(self, name: str) -> None:
        """Renew once, with the annotation of full caches, and schedule the next renewal."""
        lease, sent_at = self._held[name], self._clock.now()
        marks = {**lease.metadata.annotations, self._keys.synced: "true"}
        meta = msgspec.structs.replace(lease.metadata, annotations=marks)
        spec = msgspec.structs.replace(lease.spec, renew_time=micro_time(self._clock.wall()))
        due = sent_at + self._lease_s / 3
        try:
            try:
                lease = await self._leases.swap(msgspec.structs.replace(lease, metadata=meta, spec=spec))
            except Conflict:  # the sharder wrote its label
                lease, due = await self._leases.get(name), sent_at
        except KubeError:
            due = self._clock.now() + self._lease_s / 15
        if name in self._held:
            self._held[name], self._due[name] = lease, due

    async def _answer_drains(self, tasks: asyncio.TaskGroup) -> None:
        watch = Reflector(
            ListerWatcher(
                self._collection.client,
                self._collection.resource,
                label_selector=self._keys.drain,
                metadata_only=True,
            ),
            clock=self._clock,
            rng=random.Random(0),  # noqa: S311 - jitter
        )
        async for event in watch.events():
            match event:
                case Listed(objects=objects):
                    for item in objects:
                        tasks.create_task(self._answer(item.meta), name="stand-in answer")
                case Changed(object=item):
                    tasks.create_task(self._answer(item.meta), name="stand-in answer")
                case _:
                    pass

    async def _answer(self, meta: Meta) -> None:
        owner = meta.labels.get(self._keys.shard, "")
        if owner not in self._held:
            return
        handoff = decide_handoff(meta.labels[self._keys.drain], shard=owner)
        patch = acknowledgement(meta, handoff, self._keys)
        try:
            await self._collection.client.patch(
                self._collection.resource,
                meta.name,
                patch,
                namespace=meta.namespace,
                type=bytes,
                metadata_only=True,
            )
        except (Conflict, Invalid, NotFound):
            return  # it changed: the watch shows it again
