"""One fault as it strikes: its fleet, its random choices, and the places that it has for itself meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp

from devcluster.faults import Fault
from devcluster.real import RealPlane
from kubeio.resource import ApiResource
from ringleader.testing.client import Doc, RequestFailedError
from ringleader.testing.fleet import Fleet
from ringleader.testing.replica import Replica, ReplicaFailedError
from tests.fleet.chaos.log_pipes import LogPipe

MOST_MEMBERS: Final = 7
FEWEST_MEMBERS: Final = 3

NO_ANSWER: Final = (RequestFailedError, aiohttp.ClientError, TimeoutError)


class MissedError(Exception):
    """There is nothing that this fault could strike now."""


MISSED: Final = (*NO_ANSWER, ReplicaFailedError, MissedError)
"""A fault that ends with one of these struck nothing: another one was in its way."""


@dataclass(slots=True, kw_only=True)
class Site:
    """What all faults of a run share."""

    fleet: Fleet
    pipes: dict[str, LogPipe]
    former: Path | None = None
    """Python of a former version of Ringleader."""
    spared: frozenset[str] = frozenset()
    """Members whose processes no fault ends, slows or stops."""
    networks: dict[str, Callable[[bool], None]] = field(default_factory=dict)
    """Cuts (True) and mends the network of a member that has one of its own."""
    taken: set[str] = field(default_factory=set)
    servers: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the fault that ends API servers or etcd."""

    @property
    def real(self) -> RealPlane | None:
        plane = self.fleet.plane
        return plane if isinstance(plane, RealPlane) else None

    def running(self) -> list[str]:
        """Members that run and that no other fault has taken."""
        places = self.fleet.members.items()
        return sorted(name for name, place in places if place.current is not None and name not in self.taken)


class Strike:
    """One fault on *site*; *rng* draws what it strikes and how long."""

    def __init__(self, site: Site, rng: random.Random) -> None:
        self.site = site
        self.fleet = site.fleet
        self.rng = rng
        self.struck: list[str] = []
        """What it struck, for the log."""

    @property
    def lease_s(self) -> int:
        return self.fleet.spec.lease_s

    @property
    def plane(self) -> RealPlane:
        """Raises: MissedError on a plane that is none of real servers."""
        if self.site.real is None:
            raise MissedError("no real servers")
        return self.site.real

    def span_s(self, longest: float = 4.0) -> float:
        """How long it lasts: up to *longest* Lease durations."""
        span_s = self.rng.uniform(0.2, longest * self.lease_s)
        self.struck.append(f"{span_s:.1f} s")
        return span_s

    async def pause(self, longest: float = 4.0) -> None:
        await asyncio.sleep(self.span_s(longest))

    def take_member(self) -> str:
        """A running member, for this fault alone until the wave is over. Raises: MissedError."""
        names = [name for name in self.site.running() if name not in self.site.spared]
        return self.take(self.rng.choice(names) if names else "")

    def take_process(self) -> Replica:
        """The place of a running member or sharder, for this fault alone."""
        sharders = {name: place for name, place in self.fleet.sharders.items() if place.current is not None}
        names = [name for name in self.site.running() if name not in self.site.spared]
        names += [name for name in sorted(sharders) if name not in self.site.taken]
        name = self.take(self.rng.choice(names) if names else "")
        return sharders.get(name) or self.fleet.members[name]

    async def take_leader(self) -> Replica:
        return self.fleet.sharders[self.take(await self.fleet.wait_leader())]

    def take(self, name: str) -> str:
        if not name or name in self.site.taken:
            raise MissedError("all places are taken")
        self.site.taken.add(name)
        self.struck.append(name)
        return name

    def account(self) -> str:
        """The account of a running member or of a sharder; several faults may strike one."""
        names = [name for name, place in self.fleet.members.items() if place.current is not None]
        account = self.rng.choice([*sorted(names), *sorted(self.fleet.sharders)])
        self.struck.append(account)
        return account

    def resource(self) -> str:
        """The resource whose requests are struck; often all."""
        names = ["", "", self.fleet.spec.resource.group_resource, "leases.coordination.k8s.io"]
        names += [kind.group_resource for kind in self.fleet.spec.controlled]
        resource = self.rng.choice(names)
        self.struck.append(resource or "all resources")
        return resource

    def live_shard(self) -> str:
        """A shard that runs. Raises: MissedError."""
        shards = sorted(self.fleet.lives())
        if not shards:
            raise MissedError("no shard runs")
        self.struck.append(shard := self.rng.choice(shards))
        return shard

    async def order(self, *faults: Fault) -> None:
        """Let the proxy strike, until the longest of *faults* is over."""
        for fault in faults:
            await self.fleet.plane.faults.add(fault)
        await asyncio.sleep(max(fault.for_s or 0.0 for fault in faults))

    async def merge(self, resource: ApiResource, name: str, patch: Doc, *, namespace: str = "") -> None:
        await self.fleet.client.merge(resource, name, patch, namespace=namespace)

    async def insist(self, action: Callable[[], Awaitable[object]], *, accepts: tuple[int, ...] = ()) -> None:
        """Try *action* until it is done: what a fault changed it has to change back.

        *accepts*: refusals that show that nothing is left to do.
        """
        async with asyncio.timeout(self.fleet.spec.patience_s * 3):
            while True:
                try:
                    await action()
                except RequestFailedError as error:
                    if error.status in accepts:
                        return
                except (aiohttp.ClientError, TimeoutError):
                    pass
                else:
                    return
                await asyncio.sleep(0.2)
