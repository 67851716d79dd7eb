"""Reads of a ring's Leases: a watch for promptness, consistent lists for freshness. Each version goes to `Membership`.

Owns the newest version seen and the instant of the last read. Writes nothing.
"""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.backoff import ExponentialBackoff
from kubeio.errors import HistoryWentBack, KubeError, NotFound
from kubeio.leases.lease import Leases, decode_lease
from kubeio.resource import LEASES
from kubeio.versions import is_older, newest
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Bookmark, Changed, Gap, ListDone, Listed, ListStarted, Reflector, Removed
from sharder.membership.shards import shows_held

if TYPE_CHECKING:
    from collections.abc import Collection

    from kubeio.clock import Clock
    from kubeio.models import Lease
    from kubeio.rest.client import Client
    from sharder.membership.membership import Membership
    from sharder.ringspec.spec import RingSpec

log = structlog.get_logger("sharder")

STILL_S: Final = 60.0
"""Reads of the Leases that end neither well nor badly for so long stand still."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The names whose Leases a consistent read, begun at *begun_at* of the sharder's clock, showed held.

    Required before a name is written (protocol, 6.3).
    """

    held: frozenset[str]
    begun_at: float


class LeaseReads:
    """Shows *membership* the Leases of the ring of *spec* until cancelled; sets *changed* when that may matter."""

    def __init__(
        self,
        client: Client,
        membership: Membership,
        spec: RingSpec,
        *,
        changed: asyncio.Event,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._leases = Leases(client, spec.lease_namespace)
        self._membership = membership
        self._ring = spec.name
        self._keys = spec.keys
        self._selector = f"{self._keys.ring_label}={self._keys.ring}"
        self._changed = changed
        self._clock = clock
        self._rng = rng
        self._newest = ""
        self._read_at: float | None = None

    def why_not_alive(self) -> str | None:
        """Problem that a restart would cure; None if there is none. Refusals by the API server do not count."""
        if self._read_at is None:
            return None  # it does not run
        still_s = self._clock.now() - self._read_at
        if still_s <= max(STILL_S, 2 * self._membership.read_interval_s):
            return None
        return f"the Leases of ring {self._ring} were last read {still_s:.0f} s ago"

    async def evidence(self) -> Evidence:
        """A consistent read of the Leases begun after this call; feeds membership too. Raises KubeError."""
        begun_at = self._clock.now()
        leases = await self._read(begun_at)
        held = frozenset(lease.metadata.name for lease in leases if shows_held(lease, keys=self._keys))
        return Evidence(held, begun_at)

    async def may_be_worked(self) -> frozenset[str]:
        """`View.may_be_worked` after a consistent read of the Leases begun after this call. Raises KubeError."""
        await self._read(self._clock.now())
        return self._membership.view(at=self._clock.now()).may_be_worked

    async def evidence_of(self, names: Collection[str]) -> Evidence:
        """`evidence` of some *names* only: a GET for each, at once.

        A consistent list waits until the server's cache has caught up, up to 100 ms; a GET is answered by etcd.
        Raises KubeError.
        """
        begun_at, ordered = self._clock.now(), sorted(names)
        shown = await asyncio.gather(*map(self._shows_held, ordered))
        return Evidence(frozenset(compress(ordered, shown)), begun_at)

    async def run(self) -> None:
        """Watch and list until cancelled. Raises HistoryWentBack, inside a group."""
        self._read_at = self._clock.now()
        self._membership.note_watch(since=math.inf)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch(), name=f"leases watch {self._ring}")
                tasks.create_task(self._read_often(), name=f"leases read {self._ring}")
        finally:
            self._read_at = None

    def observe(self, lease: Lease) -> None:
        """One version of a Lease was seen: by a watch, a read, or in the answer to a write."""
        self._newest = newest(self._newest, lease.metadata.resource_version)
        if self._membership.observe_one(lease, at=self._clock.now()):
            self._changed.set()

    async def read_one(self, name: str) -> None:
        """Read one Lease consistently; a failure is logged."""
        try:
            await self._observe_now(name)
        except KubeError as error:
            log.warning("lease could not be read", lease=name, error=str(error))

    async def _watch(self) -> None:
        source = ListerWatcher(
            self._client, LEASES, namespace=self._leases.namespace, label_selector=self._selector
        )
        watch = Reflector(source, clock=self._clock, rng=self._rng)
        list_began_at = math.inf
        async for event in watch.events():
            match event:
                case ListStarted():
                    list_began_at = self._clock.now()
                    self._membership.note_watch(since=math.inf)
                case Listed(objects=objects):
                    for item in objects:
                        self.observe(decode_lease(item.raw))
                case Changed(object=item):
                    self.observe(decode_lease(item.raw))
                case Removed(object=item):
                    self._newest = newest(self._newest, item.meta.resource_version)
                    await self.read_one(item.meta.name)  # deleted, or its ring label was edited away
                case ListDone(resource_version=version):
                    self._newest = newest(self._newest, version)
                    self._membership.note_watch(since=list_began_at)
                    self._changed.set()
                case Bookmark(resource_version=version):
                    self._newest = newest(self._newest, version)
                case Gap(error=error):
                    log.warning("lease watch interrupted", ring=self._ring, error=str(error))

    async def _read_often(self) -> None:
        backoff = ExponentialBackoff(base_s=0.2, max_s=5.0, healthy_s=10.0, rng=self._rng)
        while True:
            try:
                await self._read(self._clock.now())
            except KubeError as error:
                delay_s = backoff.failed(self._clock.now())
                log.warning("leases could not be read", ring=self._ring, error=str(error))
            else:
                backoff.reset()
                delay_s = self._membership.read_interval_s
                self._changed.set()  # silence reaches as far as the newest read
            self._read_at = self._clock.now()
            await asyncio.sleep(delay_s)

    async def _read(self, begun_at: float) -> list[Lease]:
        seen = self._newest
        leases, version = await self._leases.list(self._selector)
        self._refuse_older("LIST leases", version, seen)
        self._newest = newest(self._newest, version)
        if self._membership.observe_list(
            leases, resource_version=version, begun_at=begun_at, at=self._clock.now()
        ):
            self._changed.set()
        return leases

    def _refuse_older(self, attempted: str, version: str, seen: str) -> None:
        """A consistent read shows at least what was *seen* before it began, unless the history went back."""
        if is_older(version, seen):
            raise HistoryWentBack(f"{attempted} in {self._leases.namespace}", version=version, seen=seen)

    async def _shows_held(self, name: str) -> bool:
        lease = await self._observe_now(name)
        return lease is not None and shows_held(lease, keys=self._keys)

    async def _observe_now(self, name: str) -> Lease | None:
        """The Lease *name* by a consistent read; None if there is none."""
        known = self._membership.version_of(name)
        try:
            lease = await self._leases.get(name)
        except NotFound:
            if self._membership.gone(name, at=self._clock.now(), resource_version=known):
                self._changed.set()
            return None
        self._refuse_older(f"GET lease {name}", lease.metadata.resource_version, known)
        self.observe(lease)
        return lease
