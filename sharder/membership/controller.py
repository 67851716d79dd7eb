"""Membership of one ring: Leases are read for it, and written as it decides.

Owns the one `Membership` of a ring. Leader and standbys read alike, so that a new leader knows what the old one knew;
only the one that acts writes. `sharder.membership.lease_reads` reads.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.backoff import ExponentialBackoff
from kubeio.bucket import TokenBucket
from kubeio.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, KubeError, NotFound
from kubeio.leases.lease import Leases
from kubeio.resource import ApiResource
from sharder.membership.actions import (
    ClearContested,
    CreateTombstone,
    DeleteOrphan,
    Intent,
    LeaseWrite,
    MarkState,
    NeedOrphanCheck,
    Take,
)
from sharder.membership.lease_reads import LeaseReads
from sharder.membership.lease_writes import cleared, marked, taken, tombstone
from sharder.membership.membership import Membership
from sharder.membership.orphans import OrphanChecks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubeio.clock import Clock
    from kubeio.models import Lease
    from kubeio.rest.client import Client
    from sharder.membership.hash_rings import RingInputs
    from sharder.membership.view import View
    from sharder.ringspec.scope import Scope
    from sharder.ringspec.spec import RingSpec

log = structlog.get_logger("sharder")

ITERATIONS_PER_S: Final = 10.0
ITERATIONS_AT_ONCE: Final = 5
"""An iteration looks at all members (10 ms for 1,000). A release, a join or a death takes two or three of them."""
TOMBSTONES_PER_S: Final = 5.0
TOMBSTONES_AT_ONCE: Final = 20
"""Anyone with the right to label objects decides how many are wanted."""
WRITES_AT_ONCE: Final = 4
"""And one that is for people only: reads of the Leases have the other connections."""
PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 10.0
"""Longest pause after a write of a Lease that failed; each one is longer than the last."""
_MAX_REASON = 200
"""Characters of a refusal that are logged: enough for a policy's name and reason."""


class MembershipController:
    """Membership of one ring: the shards that may own its objects, kept up to date until cancelled."""

    def __init__(
        self,
        client: Client,
        objects: Client,
        spec: RingSpec,
        resources: Sequence[ApiResource],
        *,
        identity: str,
        scope: Scope,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        """*client* reads and writes Leases only; *objects* lists objects."""
        self.membership = Membership(spec, builds_elsewhere=True)
        self._leases = Leases(client, spec.lease_namespace)
        self._spec = spec
        self._keys = spec.keys
        self._orphans = OrphanChecks(
            objects,
            self.membership,
            resources,
            label=spec.keys.shard,
            scope=scope,
            clock=clock,
            rng=rng,
        )
        self._identity = identity
        self._clock = clock
        self._rng = rng
        self._acting = False
        self._woken = asyncio.Event()
        self.reads: Final = LeaseReads(
            client, self.membership, spec, changed=self._woken, clock=clock, rng=rng
        )
        self._changed = asyncio.Condition()
        self._under_way: set[str] = set()
        self._marks: set[str] = set()
        """Leases whose label for people waits to be written, or is: no other write of theirs waits for it."""
        self._making_rings: asyncio.Task[None] | None = None
        self._pauses: dict[str, ExponentialBackoff] = {}
        self._writing = asyncio.Semaphore(WRITES_AT_ONCE)
        self._marking = asyncio.Semaphore(1)
        self._iterations = TokenBucket(per_s=ITERATIONS_PER_S, burst=ITERATIONS_AT_ONCE)
        self._tombstones = TokenBucket(per_s=TOMBSTONES_PER_S, burst=TOMBSTONES_AT_ONCE)
        self._view = self.membership.view(at=clock.now())

    # ---- what others read -------------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """Membership as last published."""
        return self._view

    def held_leases(self) -> list[Lease]:
        """The Leases that their shards hold, as last seen."""
        return self.membership.held_leases()

    @property
    def longest_held_s(self) -> float:
        """Longest duration that a Lease had which its shard holds, as last seen; 0 if none is held."""
        return self.membership.longest_held_s

    @property
    def deferred(self) -> int:
        """Names on objects that wait for care: too many were never a shard's."""
        return self.membership.deferred

    async def wait_newer(self, version: int) -> View:
        """The first view whose version is above *version*."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._view.version > version)
            return self._view

    def unknown_name_seen(self, name: str) -> None:
        """An object carries *name* and no Lease of ours does."""
        if self.membership.unknown_name_seen(name, at=self._clock.now()):
            self._woken.set()

    def force(self, name: str) -> bool:
        """Have *name*'s Lease taken although it may still be worked under (policy `Force`); whether it will be."""
        is_forced = self.membership.force(name)
        self._woken.set()
        return is_forced

    def act(self, acting: bool) -> None:
        """Write what membership decides (the leader), or only read (a standby)."""
        self._acting = acting
        self._woken.set()

    def configure(self, spec: RingSpec, resources: Sequence[ApiResource], *, releasing: bool = False) -> None:
        """Work under a newer spec of the same ring; *releasing*: it is being deleted."""
        self._spec = spec
        self._orphans.resources = resources
        self.membership.configure(spec, releasing_at=self._clock.now() if releasing else None)
        self._woken.set()

    def note_longest_lease(self, seconds: float) -> None:
        """A replica may still work with a Lease of *seconds*: the ring's maximum was as high."""
        if seconds != self.membership.longest_lease_s:
            self.membership.longest_lease_s = seconds
            self._woken.set()

    # ---- loops ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read, decide, publish, write; until cancelled. Raises HistoryWentBack, inside a group."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.reads.run(), name=f"leases {self._spec.name}")
            tasks.create_task(self._orphans.run(), name=f"dead names {self._spec.name}")
            while True:
                await asyncio.sleep(self._iterations.wait_s(self._clock.now()))
                self._iterations.take(self._clock.now())
                await self._iterate(tasks)

    async def _iterate(self, tasks: asyncio.TaskGroup) -> None:
        """One iteration: start the writes that are wanted, publish the view, wait for a change or a deadline."""
        self._woken.clear()
        now = self._clock.now()
        are_left = False
        intents, view, deadline = self.membership.iterate(at=now, acting=self._acting)
        wanted = self.membership.rings.wanted
        if wanted is not None and (self._making_rings is None or self._making_rings.done()):
            self._making_rings = tasks.create_task(self._make_rings(wanted), name="rings")
        for intent in intents:
            are_left |= not self._start(tasks, intent, now)
        if view.version != self._view.version:
            self._log_changes(self._view, view)
            async with self._changed:
                self._view = view
                self._changed.notify_all()
            self._pauses = {name: pause for name, pause in self._pauses.items() if name in view.shards}
        if are_left:
            next_at = now + self._tombstones.wait_s(now)
            deadline = next_at if deadline is None else min(deadline, next_at)
        try:
            async with asyncio.timeout(None if deadline is None else max(0.0, deadline - self._clock.now())):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _make_rings(self, wanted: RingInputs) -> None:
        """Build rings on another thread, so that leadership and reads go on meanwhile."""
        self.membership.rings.note_built(wanted, await asyncio.to_thread(wanted.make))
        self._woken.set()

    def _log_changes(self, old: View, new: View) -> None:
        for name, shard in new.shards.items():
            before = old.shards.get(name)
            if before is None or before.state is not shard.state:
                log.info(
                    "shard changed state",
                    ring=self._spec.name,
                    shard=name,
                    member=shard.member,
                    state=shard.state.value,
                    was=before.state.value if before else None,
                )
        if old.ring_members != new.ring_members:
            log.info("ring changed", ring=self._spec.name, members=sorted(new.ring_members))

    # ---- writing ----------------------------------------------------------------------------------------------

    def _start(self, tasks: asyncio.TaskGroup, intent: Intent, now: float) -> bool:
        """Have *intent* carried out; false if it has to wait for the tombstones' pace."""
        if isinstance(intent, NeedOrphanCheck):
            self._orphans.want(intent.name)
            return True
        name = intent.name if isinstance(intent, CreateTombstone) else intent.lease.metadata.name
        is_mark = isinstance(intent, MarkState)
        if name in self._under_way or (is_mark and name in self._marks):
            return True
        if isinstance(intent, CreateTombstone) and not self._tombstones.take(now):
            return False
        (self._marks if is_mark else self._under_way).add(name)
        tasks.create_task(self._carry_out(intent, name), name=f"{type(intent).__name__} {name}")
        return True

    async def _carry_out(self, intent: LeaseWrite, name: str) -> None:
        """One write and its answer, shown to membership; what failed is decided anew after a pause."""
        try:
            async with self._marking if isinstance(intent, MarkState) else self._writing:
                if self._is_timely(intent):
                    await self._write(intent)
        except KubeError as error:
            await self._recover(intent, name, error)
        else:
            self._pauses.pop(name, None)
        finally:
            if isinstance(intent, MarkState):  # nothing is decided by a label for people
                self._marks.discard(name)
            else:
                self._under_way.discard(name)
                self._woken.set()

    def _is_timely(self, intent: LeaseWrite) -> bool:
        """Whether the Lease is still what *intent* was decided on: it may have waited for others."""
        if isinstance(intent, CreateTombstone):
            return self.membership.begin_tombstone(intent.name)
        meta = intent.lease.metadata
        return self.membership.version_of(meta.name) == meta.resource_version

    async def _recover(self, intent: LeaseWrite, name: str, error: KubeError) -> None:
        """Read the Lease that a write conflicted with, and wait: the next answer may be the same."""
        pause = self._pauses.setdefault(
            name, ExponentialBackoff(base_s=PAUSE_S, max_s=LONGEST_PAUSE_S, healthy_s=60.0, rng=self._rng)
        )
        pause_s = pause.failed(self._clock.now(), at_least_s=_asked_s(error))
        if isinstance(error, Conflict | NotFound | AlreadyExists):
            await self.reads.read_one(name)
            self._woken.set()
        else:
            log.warning("lease could not be written", lease=name, error=str(error))
        if isinstance(intent, CreateTombstone) and isinstance(error, Invalid | Forbidden):
            self.membership.tombstone_refused(name, why=str(error)[:_MAX_REASON])
        await asyncio.sleep(pause_s)

    async def _write(self, intent: LeaseWrite) -> None:
        wall = self._clock.wall()
        match intent:
            case Take(lease=lease, contested=contested, reason=reason):
                log.info("taking lease", lease=lease.metadata.name, contested=contested, reason=reason)
                wanted = taken(
                    lease, identity=self._identity, contested=contested, keys=self._keys, wall=wall
                )
                self.reads.observe(await self._leases.swap(wanted))
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
                self.reads.observe(await self._leases.create(wanted))
            case ClearContested(lease=lease):
                self.reads.observe(await self._leases.swap(cleared(lease, keys=self._keys)))
            case MarkState(lease=lease, state=state):
                self.reads.observe(await self._leases.swap(marked(lease, state=state, keys=self._keys)))
            case DeleteOrphan(lease=lease):
                await self._leases.delete(lease)
                log.info("orphaned lease deleted", lease=lease.metadata.name)
                meta = lease.metadata
                self.membership.gone(meta.name, at=self._clock.now(), resource_version=meta.resource_version)


def _asked_s(error: KubeError) -> float:
    """Pause in seconds that the server asked for; 0 if it asked for none."""
    return (error.retry_after_s or 0.0) if isinstance(error, ApiError) else 0.0
