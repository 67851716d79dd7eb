"""The ring's Leases: read for membership, written as membership decides.

Owns the one `Membership` of a ring. Leader and standbys read alike (a watch for promptness, consistent lists for
freshness), so that a new leader knows what the old one knew; only the one that acts writes. Gives the passes
their views and their evidence.
"""

from __future__ import annotations

import asyncio
import math
import random
from itertools import compress
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.backoff import ExponentialBackoff
from kubeio.bucket import TokenBucket
from kubeio.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    HistoryWentBack,
    Invalid,
    KubeError,
    NotFound,
)
from kubeio.leases.lease import Leases, decode_lease
from kubeio.resource import LEASES, ApiResource
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Bookmark, Changed, Gap, ListDone, Listed, ListStarted, Reflector, Removed
from kubeio.watches.versions import is_older, newest
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
from sharder.membership.evidence import Evidence
from sharder.membership.lease_writes import cleared, marked, taken, tombstone
from sharder.membership.membership import Membership
from sharder.membership.orphans import OrphanChecks
from sharder.membership.shards import shows_held

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kubeio.clock import Clock
    from kubeio.models import Lease
    from kubeio.rest.client import Client
    from sharder.membership.hash_rings import RingInputs
    from sharder.membership.view import View
    from sharder.ringspec.scope import Scope
    from sharder.ringspec.spec import RingSpec

log = structlog.get_logger("sharder")

TURNS_PER_S: Final = 10.0
TURNS_AT_ONCE: Final = 5
"""A turn iterates over all members (10 ms for 1,000). A release, a join or a death takes two or three of them."""
TOMBSTONES_PER_S: Final = 5.0
TOMBSTONES_AT_ONCE: Final = 20
"""Anyone with the right to label objects decides how many are wanted."""
WRITES_AT_ONCE: Final = 4
"""And one that is for people only: reads of the Leases have the other connections."""
PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 10.0
"""Longest pause after a write of a Lease that failed; each one is longer than the last."""
STILL_S: Final = 60.0
"""Reads of the Leases that end neither well nor badly for so long stand still."""
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
        self._client = client
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
        self._changed = asyncio.Condition()
        self._under_way: set[str] = set()
        self._making_rings: asyncio.Task[None] | None = None
        self._pauses: dict[str, ExponentialBackoff] = {}
        self._writing = asyncio.Semaphore(WRITES_AT_ONCE)
        self._marking = asyncio.Semaphore(1)
        self._turns = TokenBucket(per_s=TURNS_PER_S, burst=TURNS_AT_ONCE)
        self._tombstones = TokenBucket(per_s=TOMBSTONES_PER_S, burst=TOMBSTONES_AT_ONCE)
        self._newest = ""
        self._read_at: float | None = None
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
    def deferred(self) -> int:
        """Names on objects that wait for care: too many were never a shard's."""
        return self.membership.deferred

    def why_not_alive(self) -> str | None:
        """Problem that a restart would cure; None if there is none. Refusals by the API server do not count."""
        if self._read_at is None:
            return None  # it does not run
        still_s = self._clock.now() - self._read_at
        if still_s <= max(STILL_S, 2 * self.membership.read_interval_s):
            return None
        return f"the Leases of ring {self._spec.name} were last read {still_s:.0f} s ago"

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

    async def may_be_worked(self) -> frozenset[str]:
        """`View.may_be_worked` after a consistent read of the Leases begun after this call. Raises KubeError."""
        await self._read(self._clock.now())
        return self.membership.view(at=self._clock.now()).may_be_worked

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
            self._woken.set()

    def force(self, name: str) -> None:
        """Have *name*'s Lease taken although it may still be worked under (policy `Force`)."""
        self.membership.force(name)
        self._woken.set()

    def act(self, acting: bool) -> None:
        """LeaseWrite what membership decides (the leader), or only read (a standby)."""
        self._acting = acting
        self._woken.set()

    def configure(self, spec: RingSpec, resources: Sequence[ApiResource], *, releasing: bool = False) -> None:
        """Work under a newer spec of the same ring; *releasing*: it is being deleted."""
        self._spec = spec
        self._orphans.resources = resources
        self.membership.configure(spec, releasing_at=self._clock.now() if releasing else None)
        self._woken.set()

    # ---- loops ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read, decide, publish, write; until cancelled. Raises HistoryWentBack, inside a group."""
        self._read_at = self._clock.now()
        self.membership.note_watch(since=math.inf)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch(), name=f"leases watch {self._spec.name}")
                tasks.create_task(self._read_often(), name=f"leases read {self._spec.name}")
                tasks.create_task(self._orphans.run(), name=f"dead names {self._spec.name}")
                while True:
                    await asyncio.sleep(self._turns.wait_s(self._clock.now()))
                    self._turns.take(self._clock.now())
                    await self._turn(tasks)
        finally:
            self._read_at = None

    async def _watch(self) -> None:
        watch = Reflector(
            ListerWatcher(
                self._client, LEASES, namespace=self._spec.lease_namespace, label_selector=self._selector
            ),
            clock=self._clock,
            rng=self._rng,
        )
        list_began_at = math.inf
        async for event in watch.events():
            match event:
                case ListStarted():
                    list_began_at = self._clock.now()
                    self.membership.note_watch(since=math.inf)
                case Listed(objects=objects):
                    for item in objects:
                        self._observe(decode_lease(item.raw))
                case Changed(object=item):
                    self._observe(decode_lease(item.raw))
                case Removed(object=item):
                    self._newest = newest(self._newest, item.meta.resource_version)
                    await self._read_one(item.meta.name)
                case ListDone(resource_version=version):
                    self._newest = newest(self._newest, version)
                    self.membership.note_watch(since=list_began_at)
                    self._woken.set()
                case Bookmark(resource_version=version):
                    self._newest = newest(self._newest, version)
                case Gap(error=error):
                    log.warning("lease watch interrupted", ring=self._spec.name, error=str(error))

    async def _read_one(self, name: str) -> None:
        """Read a Lease that left the watch: it was deleted, or its ring label was edited away."""
        try:
            await self._observe_now(name)
        except KubeError as error:
            log.warning("lease could not be read", lease=name, error=str(error))

    async def _read_often(self) -> None:
        backoff = ExponentialBackoff(base_s=0.2, max_s=5.0, healthy_s=10.0, rng=self._rng)
        while True:
            try:
                await self._read(self._clock.now())
            except KubeError as error:
                delay_s = backoff.failed(self._clock.now())
                log.warning("leases could not be read", ring=self._spec.name, error=str(error))
            else:
                backoff.reset()
                delay_s = self.membership.read_interval_s
                self._woken.set()  # silence reaches as far as the newest read
            self._read_at = self._clock.now()
            await asyncio.sleep(delay_s)

    async def _read(self, begun_at: float) -> list[Lease]:
        seen = self._newest
        leases, version = await self._leases.list(self._selector)
        self._refuse_older("LIST leases", version, seen)
        self._newest = newest(self._newest, version)
        if self.membership.observe_list(
            leases, resource_version=version, begun_at=begun_at, at=self._clock.now()
        ):
            self._woken.set()
        return leases

    def _refuse_older(self, attempted: str, version: str, seen: str) -> None:
        """A consistent read shows at least what was *seen* before it began, unless the history went back."""
        if is_older(version, seen):
            raise HistoryWentBack(f"{attempted} in {self._spec.lease_namespace}", version=version, seen=seen)

    @property
    def _selector(self) -> str:
        return f"{self._keys.ring_label}={self._keys.ring}"

    async def _turn(self, tasks: asyncio.TaskGroup) -> None:
        """One iteration: start the writes that are wanted, publish the view, wait for a change or a deadline."""
        self._woken.clear()
        now = self._clock.now()
        are_left = False
        intents, view, deadline = self.membership.turn(at=now, acting=self._acting)
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
        if name in self._under_way:
            return True
        if isinstance(intent, CreateTombstone) and not self._tombstones.take(now):
            return False
        self._under_way.add(name)
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
            self._under_way.discard(name)
            if not isinstance(intent, MarkState):  # nothing is decided by a label for people
                self._woken.set()

    def _is_timely(self, intent: LeaseWrite) -> bool:
        """Whether the Lease is still what *intent* was decided on: it may have waited for others."""
        if isinstance(intent, CreateTombstone):
            return True
        meta = intent.lease.metadata
        return self.membership.version_of(meta.name) == meta.resource_version

    async def _recover(self, intent: LeaseWrite, name: str, error: KubeError) -> None:
        """Read the Lease that a write conflicted with, and wait: the next answer may be the same."""
        pause = self._pauses.setdefault(
            name, ExponentialBackoff(base_s=PAUSE_S, max_s=LONGEST_PAUSE_S, healthy_s=60.0, rng=self._rng)
        )
        pause_s = pause.failed(self._clock.now(), at_least_s=_asked_s(error))
        if isinstance(error, Conflict | NotFound | AlreadyExists):
            await self._read_one(name)
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
            case DeleteOrphan(lease=lease):
                await self._leases.delete(lease)
                log.info("orphaned lease deleted", lease=lease.metadata.name)
                self.membership.gone(lease.metadata.name, at=self._clock.now())

    async def _shows_held(self, name: str) -> bool:
        lease = await self._observe_now(name)
        return lease is not None and shows_held(lease, keys=self._keys)

    async def _observe_now(self, name: str) -> Lease | None:
        """The Lease *name* by a consistent read; None if there is none."""
        known = self.membership.version_of(name)
        try:
            lease = await self._leases.get(name)
        except NotFound:
            if self.membership.gone(name, at=self._clock.now()):
                self._woken.set()
            return None
        self._refuse_older(f"GET lease {name}", lease.metadata.resource_version, known)
        self._observe(lease)
        return lease

    def _observe(self, lease: Lease) -> None:
        self._newest = newest(self._newest, lease.metadata.resource_version)
        if self.membership.observe_one(lease, at=self._clock.now()):
            self._woken.set()


def _asked_s(error: KubeError) -> float:
    """Pause in seconds that the server asked for; 0 if it asked for none."""
    return (error.retry_after_s or 0.0) if isinstance(error, ApiError) else 0.0
