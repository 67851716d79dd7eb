"""Observes a fleet: live shards, owners of objects, waits for a state, and the evidence for the checks.

Owns reads and waits, not the processes: `Fleet` starts and breaks them. Reads by an independent client, from journals
and from the process table.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from devcluster.plane import ControlPlane
from kubeio.clock import Clock
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import LEASES, ApiResource
from ring import HashRing, object_key
from ringleader.testing.availability import Span
from ringleader.testing.client import Doc, IndependentClient, RequestFailedError
from ringleader.testing.commands import FleetSpec, Mode
from ringleader.testing.evidence import Evidence
from ringleader.testing.journal import Journal, Life, Record
from ringleader.testing.objects import Objects, Ref
from ringleader.testing.ownership_checks import Overlap
from ringleader.testing.replica import Replica, ReplicaFailedError

_POLL_S = 0.2
_IDLE = 5
"""The pause after a read, in multiples of the time that it took: reads must not slow the fleet down."""
_CRASHES = 3
_SPELLS = 5
"""Longest wait, in multiples of its patience, even if something always changes."""


class NotConvergedError(AssertionError):
    """The fleet did not reach the expected state."""


class FleetObserver:
    """Observes the fleet on *plane* from outside."""

    def __init__(
        self, plane: ControlPlane, *, spec: FleetSpec, client: IndependentClient, clock: Clock
    ) -> None:
        self.plane = plane
        self.spec = spec
        self.client = client
        self.clock = clock
        self.objects = Objects(client, namespace=spec.namespace, clock=clock, resource=spec.resource)
        self.members: dict[str, Replica] = {}
        self.twins: dict[str, Replica] = {}
        """Second processes under the name of a member."""
        self.sharders: dict[str, Replica] = {}
        self.journals: dict[str, list[Journal]] = {}
        self.mode = Mode.SHARDED
        self.sharded_since = clock.now()
        self.settled_since: float | None = None

    # -- reading --------------------------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """Every record of every journal so far."""
        return [record for name in self.journals for record in self.member_records(name)]

    def fresh_records(self, member: str) -> list[Record]:
        """Records that *member* has written since the last call."""
        return [record for journal in self.journals[member] for record in journal.read()]

    def member_records(self, name: str) -> list[Record]:
        """Every record of *name* so far."""
        self.fresh_records(name)
        return [record for journal in self.journals[name] for record in journal.records]

    def life(self, member: str) -> str | None:
        """The shard of the running process of *member*; None before its first `Life` record."""
        return self.life_of(self.members[member])

    def life_of(self, place: Replica) -> str | None:
        """The shard of the running process of *place*; None before its first `Life` record."""
        if place.current is None or not self.journals[place.name]:
            return None
        journal = self.journals[place.name][-1]
        journal.read()
        marks = [r.shard for r in journal.records if isinstance(r, Life) and r.pid == place.current.pid]
        return marks[-1] if marks else None

    def lives(self) -> dict[str, str]:
        """Member of each shard that runs now and is not frozen."""
        found = {self.life(name): name for name, place in self.members.items() if not place.is_frozen}
        return {shard: name for shard, name in found.items() if shard is not None}

    async def owners(self, *, resource: ApiResource | None = None) -> dict[str, str]:
        """The shard that each object's label names, by the object's name; empty for an unowned one."""
        labels = await self.objects.labels(resource=resource)
        return {name: found.get(self.spec.keys.shard, "") for name, found in labels.items()}

    async def owner(self, ref: Ref) -> str:
        """The member that owns *ref* now; empty if none that runs does."""
        doc = await self.objects.get(ref)
        shard = (doc["metadata"].get("labels") or {}).get(self.spec.keys.shard, "")
        return self.lives().get(shard, "")

    async def wait_leader(self, *, within_s: float | None = None) -> str:
        """The sharder that acts now, as soon as there is one that runs. Raises: NotConvergedError."""
        found: list[str] = []

        async def leads() -> bool:
            with contextlib.suppress(ReplicaFailedError):
                found[:] = [await self.leader()]
            return bool(found) and self.sharders[found[0]].current is not None

        await self.wait_for(leads, "a sharder to lead", within_s=within_s)
        return found[0]

    async def leader(self) -> str:
        """The sharder that acts now: the holder of the election Lease. Raises: ReplicaFailedError."""
        for lease in await self.leases():
            holder = (lease.get("spec") or {}).get("holderIdentity") or ""
            if holder in self.sharders:
                return str(holder)
        raise ReplicaFailedError("no sharder leads")

    async def ring(self) -> Doc:
        """The ControllerRing as the server has it."""
        return await self.client.get(CONTROLLER_RINGS, self.spec.ring)

    async def leases(self) -> list[Doc]:
        return await self.client.list_all(LEASES, namespace=self.spec.lease_namespace)

    def desired(self, members: Iterable[str], names: Iterable[str]) -> dict[str, str]:
        """The member that the ring of *members* gives each of the objects *names*."""
        ring = HashRing(sorted(members))
        group, namespace = self.spec.resource.group, self.spec.namespace
        return {name: ring.owner(object_key(group, namespace, name)) for name in names}

    def rss_bytes(self) -> dict[str, int]:
        """Resident memory of each place's process; 0 where none runs."""
        places = {**self.sharders, **self.members}
        return {
            name: place.current.rss_bytes() if place.current is not None else 0
            for name, place in places.items()
        }

    def logs(self, name: str) -> str:
        """Output of the processes of *name*."""
        return (self.members.get(name) or self.sharders[name]).log.read_text(errors="replace")

    # -- waiting --------------------------------------------------------------------------------------------
    # Without `within_s` a wait lasts for the fleet's patience (`FleetSpec.patience_s`).

    async def wait_up(self, *, within_s: float | None = None) -> None:
        """Wait until every replica that should run has written its first `Life` record.

        Raises: ReplicaFailedError when one ends by itself again and again meanwhile.
        """
        places = [*self.sharders.values(), *self.members.values()]
        before = {place.name: len(place.unasked_exits) for place in places}

        def all_up() -> bool:
            if any(len(place.unasked_exits) - before[place.name] >= _CRASHES for place in places):
                raise ReplicaFailedError(f"the fleet does not come up{self._crashes()}")
            return not self._not_up()

        await self.wait_for(all_up, "every replica to be up", within_s=within_s)

    def _not_up(self) -> list[str]:
        wanted = [name for name, place in self.members.items() if place.is_wanted and not place.is_frozen]
        missing = [name for name in wanted if self.life(name) is None]
        if self.mode is Mode.LEADER_ELECTED and len(missing) < len(wanted):
            return []  # standbys write no record
        return missing

    async def wait_converged(self, *, within_s: float | None = None, fresh: bool = True) -> float:
        """Wait until every object's label names the shard at its place on the ring. Returns the seconds that it took.

        With *fresh*, also until each has been reconciled at the generation that it has now, or later.
        *within_s* counts from the last progress.
        Raises: NotConvergedError with what is missing.
        """
        began = self.clock.now()
        wanted: dict[str, int] = {}

        async def knows_generations() -> bool:
            wanted.update(await self.objects.generations())
            return True

        async def missing() -> str:
            return await self._misplaced() or await self._behind(wanted)

        if fresh:
            await self.wait_for(knows_generations, "the objects to be listed", within_s=within_s)

        await self._wait_until_nothing(missing, within_s=within_s)
        now = self.clock.now()
        self.settled_since = self.settled_since or now
        return now - began

    async def wait_quiet(self, *, within_s: float | None = None) -> None:
        """Wait until every object is at its place and its status shows its latest spec: for fleets without traffic."""

        async def missing() -> str:
            stale = await self.objects.stale()
            return await self._misplaced() or (
                f"{len(stale)} objects are stale, such as {stale[0]}" if stale else ""
            )

        await self._wait_until_nothing(missing, within_s=within_s)

    async def _wait_until_nothing(
        self, missing: Callable[[], Awaitable[str]], *, within_s: float | None
    ) -> None:
        """Wait until nothing is missing, as long as there is progress: a busy machine is no failure."""
        patience_s = within_s or self.spec.patience_s
        began = changed_at = time.monotonic()
        left, found = "", "no read has ended"
        while found:
            asked_at = time.monotonic()
            found = await _read(missing)
            now = time.monotonic()
            if found != left:
                left, changed_at = found, now
            if found and (now - changed_at > patience_s or now - began > _SPELLS * patience_s):
                still_s = f", the last {now - changed_at:.0f} s without a change"
                raise NotConvergedError(f"after {now - began:.0f} s{still_s}: {found}{self._crashes()}")
            await asyncio.sleep(max(_POLL_S, _IDLE * (now - asked_at)) if found else 0)

    async def _misplaced(self) -> str:
        """Why labels and ring differ; empty if they agree."""
        if not_up := self._not_up():
            return f"not up: {', '.join(not_up)}"
        lives = {member: shard for shard, member in self.lives().items()}
        labels = await self.objects.labels()
        keys = self.spec.keys
        wrong = [
            name
            for name, member in self.desired(lives, labels).items()
            if labels[name].get(keys.shard) != lives[member] or keys.drain in labels[name]
        ]
        return f"{len(wrong)} of {len(labels)} objects misplaced, such as {wrong[0]}" if wrong else ""

    async def _behind(self, wanted: Mapping[str, int]) -> str:
        behind = await self.objects.behind(wanted) if wanted else []
        return f"{len(behind)} objects not reconciled, such as {behind[0]}" if behind else ""

    async def wait(self, ref: Ref, *, condition: str, within_s: float | None = None) -> Doc:
        """Wait until *condition* is True at the object's latest generation. Returns the object."""
        doc: Doc = {}

        async def holds() -> bool:
            doc.update(await self.objects.get(ref))
            return _condition(doc, condition)

        await self.wait_for(holds, f"{ref} to be {condition}", within_s=within_s)
        return doc

    async def wait_for(
        self, condition: Callable[[], Any], what: str, *, within_s: float | None = None
    ) -> None:
        """Wait until *condition*, a coroutine function or a plain one, returns a true value.

        While the API server does not answer, the condition counts as false. Raises: NotConvergedError.
        """
        patience_s = within_s or self.spec.patience_s
        began = time.monotonic()
        while True:
            asked_at = time.monotonic()
            if await _ask(condition):
                return
            now = time.monotonic()
            if now - began > patience_s:
                raise NotConvergedError(f"waited {now - began:.0f} s in vain for {what}{self._crashes()}")
            # other processes change the state: there is no event to wait for
            await asyncio.sleep(max(_POLL_S, now - asked_at))

    def _crashes(self) -> str:
        """Processes that ended by themselves, with their last log lines: for error messages."""
        places = [*self.sharders.values(), *self.members.values()]
        ended = [
            f"{place.name} ended by itself (exit {place.unasked_exits[-1].code}): {_last_line(place.log)}"
            for place in places
            if place.unasked_exits
        ]
        return "".join(f"; {line}" for line in ended)

    # -- checks ---------------------------------------------------------------------------------------------

    def evidence(self) -> Evidence:
        """All records so far."""
        places = [*self.members.values(), *self.twins.values()]
        spans: defaultdict[int, list[list[Span]]] = defaultdict(list)
        for process in itertools.chain.from_iterable(place.processes for place in places):
            spans[process.pid].append(process.working())
        return Evidence(
            spec=self.spec,
            records=self.records(),
            writes=self.plane.writes(),
            processes=spans,
            replicas=frozenset(self.members),
            demands=list(self.objects.demands),
            since=self.sharded_since,
            settled_since=self.settled_since or self.clock.now(),
            until=self.clock.now(),
        )

    def overlaps(self) -> list[Overlap]:
        """Result of the overlap check so far: it must be empty."""
        return self.evidence().overlaps


_NO_ANSWER = (aiohttp.ClientError, RequestFailedError, TimeoutError)


async def _ask(condition: Callable[[], Any]) -> bool:
    try:
        answer = condition()
        return bool(await answer if asyncio.iscoroutine(answer) else answer)
    except _NO_ANSWER:
        return False


async def _read(missing: Callable[[], Awaitable[str]]) -> str:
    try:
        return await missing()
    except _NO_ANSWER as error:
        return f"the API server does not answer ({str(error) or type(error).__name__})"


def _condition(doc: Doc, kind: str) -> bool:
    status, meta = doc.get("status") or {}, doc["metadata"]
    return status.get("observedGeneration") == meta.get("generation") and any(
        condition["type"] == kind and condition["status"] == "True"
        for condition in status.get("conditions") or []
    )


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return lines[-1] if lines else "no output"
