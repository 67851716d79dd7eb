"""The ring's Leases: read for membership, written as membership decides.

Owns the one `Membership` of a ring. Leader and standbys read alike (a watch for promptness, consistent lists for
freshness), so that a new leader knows what the old one knew; only the one that acts writes. Gives the passes
their views and their evidence.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from itertools import compress
from typing import TYPE_CHECKING

import structlog

from kubeio.backoff import Backoff
from kubeio.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, KubeError, NotFound
from kubeio.leases.lease import Leases, decode_lease
from kubeio.resource import LEASES, Resource
from kubeio.watches.watch import Changed, Listed, ListWatch, Removed
from sharder.membership.evidence import Evidence
from sharder.membership.intents import (
    ClearContested,
    CreateTombstone,
    DeleteOrphan,
    Intent,
    MarkState,
    NeedOrphanCheck,
    Take,
)
from sharder.membership.lives import shows_held
from sharder.membership.membership import Membership
from sharder.membership.takes import cleared, marked, taken, tombstone

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kubeio.clock import Clock
    from kubeio.models import Lease
    from kubeio.rest.client import Client
    from sharder.membership.view import View
    from sharder.ringspec.scope import Scope
    from sharder.ringspec.spec import RingSpec

log = structlog.get_logger("sharder")

_TOLD = 200
"""Of what a server says about a refusal: enough for a policy's name and reason."""


class Roster:
    """Who may own objects of one ring, kept up to date until cancelled."""

    def __init__(
        self,
        client: Client,
        spec: RingSpec,
        resources: Sequence[Resource],
        *,
        identity: str,
        scope: Scope,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.membership = Membership(spec)
        self._client = client
        self._leases = Leases(client, spec.lease_namespace)
        self._spec = spec
        self._keys = spec.keys
        self._resources = resources
        self._identity = identity
        self._scope = scope
        self._clock = clock
        self._rng = rng
        self._acting = False
        self._stirred = asyncio.Event()
        self._changed = asyncio.Condition()
        self._under_way: set[str] = set()
        self._view = self.membership.view(at=clock.now())

    # ---- what others read -------------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """Membership as last published."""
        return self._view

    async def wait_newer(self, version: int) -> View:
        """The first view whose version is above *version*."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._view.version > version)
            return self._view

    async def evidence(self) -> Evidence:
        """A consistent read of the Leases begun after this call; feeds membership too. Raises KubeError."""
        begun_at = self._clock.now()
        leases = await self._read(begun_at)
        held = frozenset(lease.metadata.name for lease in leases if shows_held(lease, keys=self._keys))
        return Evidence(held, begun_at)

    async def evidence_of(self, names: Collection[str]) -> Evidence:
        """`evidence` of some *names* only: a GET for each, at once.

        A consistent list waits until the server's cache has caught up, up to 100 ms; a GET is answered by etcd.
        Raises KubeError.
        """
        begun_at = self._clock.now()
        shown = await asyncio.gather(*map(self._shows_held, names))
        return Evidence(frozenset(compress(names, shown)), begun_at)

    def unknown_name_seen(self, name: str) -> None:
        """An object carries *name* and no Lease of ours does."""
        if self.membership.unknown_name_seen(name, at=self._clock.now()):
            self._stirred.set()

    def force(self, name: str) -> None:
        """Have *name*'s Lease taken although it may still be worked under (policy `Force`)."""
        self.membership.force(name)
        self._stirred.set()

    def act(self, acting: bool) -> None:
        """Write what membership decides (the leader), or only read (a standby)."""
        self._acting = acting
        self._stirred.set()

    def configure(self, spec: RingSpec, resources: Sequence[Resource]) -> None:
        """Work under a newer spec of the same ring."""
        self._spec = spec
        self._resources = resources
        self.membership.configure(spec)
        self._stirred.set()

    # ---- loops ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read, decide, publish, write; until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(), name=f"leases watch {self._spec.name}")
            tasks.create_task(self._read_often(), name=f"leases read {self._spec.name}")
            while True:
                await self._turn(tasks)

    async def _watch(self) -> None:
        watch = ListWatch(
            self._client,
            LEASES,
            namespace=self._spec.lease_namespace,
            label_selector=self._selector,
            clock=self._clock,
            rng=self._rng,
        )
        async for event in watch.events():
            now = self._clock.now()
            match event:
                case Listed(objects=objects):
                    for item in objects:
                        self.membership.observe_one(decode_lease(item.raw), at=now)
                case Changed(object=item):
                    self.membership.observe_one(decode_lease(item.raw), at=now)
                case Removed(object=item):
                    await self._look_again(item.meta.name)
                case _:
                    continue
            self._stirred.set()

    async def _look_again(self, name: str) -> None:
        """A Lease left the watch: deleted, or its ring label was edited away. A GET tells which."""
        try:
            await self._observe_now(name)
        except KubeError as error:
            log.warning("lease could not be read", lease=name, error=str(error))

    async def _read_often(self) -> None:
        backoff = Backoff(base_s=0.2, max_s=5.0, healthy_s=10.0, rng=self._rng)
        while True:
            try:
                await self._read(self._clock.now())
            except KubeError as error:
                delay_s = backoff.failed(self._clock.now())
                log.warning("leases could not be read", ring=self._spec.name, error=str(error))
                await asyncio.sleep(delay_s)
            else:
                backoff.reset()
                await asyncio.sleep(self.membership.read_interval_s)

    async def _read(self, begun_at: float) -> list[Lease]:
        leases, version = await self._leases.list(self._selector)
        self.membership.observe_list(
            leases, resource_version=version, begun_at=begun_at, at=self._clock.now()
        )
        self._stirred.set()
        return leases

    @property
    def _selector(self) -> str:
        return f"{self._keys.ring_label}={self._keys.ring}"

    async def _turn(self, tasks: asyncio.TaskGroup) -> None:
        """One round: wait for news or a deadline, publish the view, start the writes it asks for."""
        self._stirred.clear()
        now = self._clock.now()
        if self._acting:
            for intent in self.membership.decide(at=now):
                self._start(tasks, intent)
        view = self.membership.view(at=now)
        if view.version != self._view.version:
            self._tell(self._view, view)
            async with self._changed:
                self._view = view
                self._changed.notify_all()
        deadline = self.membership.next_deadline(at=now)
        try:
            async with asyncio.timeout(None if deadline is None else max(0.0, deadline - self._clock.now())):
                await self._stirred.wait()
        except TimeoutError:
            pass

    def _tell(self, old: View, new: View) -> None:
        for name, life in new.lives.items():
            before = old.lives.get(name)
            if before is None or before.state is not life.state:
                log.info(
                    "shard changed state",
                    ring=self._spec.name,
                    shard=name,
                    member=life.member,
                    state=life.state.value,
                    was=before.state.value if before else None,
                )
        if old.ring_members != new.ring_members:
            log.info("ring changed", ring=self._spec.name, members=sorted(new.ring_members))

    # ---- writing ----------------------------------------------------------------------------------------------

    def _start(self, tasks: asyncio.TaskGroup, intent: Intent) -> None:
        name = (
            intent.name
            if isinstance(intent, CreateTombstone | NeedOrphanCheck)
            else intent.lease.metadata.name
        )
        if name not in self._under_way:
            self._under_way.add(name)
            tasks.create_task(self._carry_out(intent, name), name=f"{type(intent).__name__} {name}")

    async def _carry_out(self, intent: Intent, name: str) -> None:
        """One write and its answer, shown to membership; what failed is decided anew after a moment."""
        try:
            await self._write(intent)
        except (Conflict, NotFound, AlreadyExists):
            await self._recover(name)
        except (Invalid, Forbidden) as error:
            self._refused(intent, error)
            await asyncio.sleep(1.0)
        except KubeError as error:
            log.warning("lease could not be written", lease=name, error=str(error))
            await asyncio.sleep(self._backoff_s(error))
        finally:
            self._under_way.discard(name)
            self._stirred.set()

    async def _recover(self, name: str) -> None:
        try:
            await self._observe_now(name)
        except KubeError as error:
            log.warning("lease could not be read", lease=name, error=str(error))
            await asyncio.sleep(self._backoff_s(error))

    async def _write(self, intent: Intent) -> None:
        wall = self._clock.wall()
        match intent:
            case Take(lease=lease, contested=contested, reason=reason):
                log.info("taking lease", lease=lease.metadata.name, contested=contested, reason=reason)
                wanted = taken(
                    lease, identity=self._identity, contested=contested, keys=self._keys, wall=wall
                )
                self._observe(await self._leases.swap(wanted))
            case CreateTombstone(name=name, member=member, duration_s=duration_s):
                log.warning("name without a lease gets a tombstone", lease=name)
                wanted = tombstone(
                    name,
                    member=member,
                    namespace=self._spec.lease_namespace,
                    duration_s=duration_s,
                    identity=self._identity,
                    keys=self._keys,
                    wall=wall,
                )
                self._observe(await self._leases.create(wanted))
            case ClearContested(lease=lease):
                self._observe(await self._leases.swap(cleared(lease, keys=self._keys)))
            case MarkState(lease=lease, state=state):
                self._observe(await self._leases.swap(marked(lease, state=state, keys=self._keys)))
            case NeedOrphanCheck(name=name):
                await self._check_orphan(name)
            case DeleteOrphan(lease=lease):
                await self._leases.delete(lease)
                log.info("orphaned lease deleted", lease=lease.metadata.name)
                self.membership.gone(lease.metadata.name, at=self._clock.now())

    async def _check_orphan(self, name: str) -> None:
        begun_at = self._clock.now()
        for resource in self._resources:
            named = self._scope.pages(
                self._client, resource, label_selector=f"{self._keys.shard}={name}", limit=1
            )
            async with aclosing(named):
                async for page in named:
                    if page.objects:
                        self.membership.orphan_refuted(name, at=self._clock.now())
                        return
        self.membership.orphan_confirmed(name, begun_at=begun_at)

    async def _shows_held(self, name: str) -> bool:
        try:
            lease = await self._leases.get(name)
        except NotFound:
            self._stirred.set()
            self.membership.gone(name, at=self._clock.now())
            return False
        self._observe(lease)
        self._stirred.set()
        return shows_held(lease, keys=self._keys)

    async def _observe_now(self, name: str) -> None:
        try:
            self._observe(await self._leases.get(name))
        except NotFound:
            self.membership.gone(name, at=self._clock.now())

    def _observe(self, lease: Lease) -> None:
        self.membership.observe_one(lease, at=self._clock.now())

    def _refused(self, intent: Intent, error: Invalid | Forbidden) -> None:
        if isinstance(intent, CreateTombstone):
            self.membership.tombstone_refused(intent.name, why=str(error)[:_TOLD])
        log.warning("lease write refused", intent=type(intent).__name__, error=str(error))

    def _backoff_s(self, error: KubeError) -> float:
        retry_after_s = error.retry_after_s if isinstance(error, ApiError) else None
        return retry_after_s or self._rng.uniform(0.2, 1.0)
