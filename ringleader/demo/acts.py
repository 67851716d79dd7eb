"""The acts of the demo, in their order: each breaks something, waits for the fleet and measures it.

Owns the order and the measurements; `Fleet` breaks processes, `Screen` shows messages.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from devcluster.plane import Write
from ring import object_key
from ring.hashing import hash_key
from ringleader.demo.document import Event, What
from ringleader.demo.sampler import FleetSampler
from ringleader.demo.screen import Screen
from ringleader.testing.commands import Mode
from ringleader.testing.fleet import Fleet
from ringleader.testing.inflight_writes import catch_writes
from ringleader.testing.journal import End
from ringleader.testing.objects import Objects
from ringleader.testing.observer import NotConvergedError
from ringleader.testing.ownership_checks import accepted, members

REPLICAS = 4
LATECOMER = "website-of-the-last-act"
_ALONE_S = 6.0
"""Longest measurement of one leader."""
_OBJECTS_PER_S = 200
"""Objects that it reconciles in a second at most: with fewer objects the measurement is shorter."""
_FREEZES = 3
_LATE_WITHIN_S = 20.0


@dataclass
class Acts:
    """The acts on *fleet*; `events` holds the measurements."""

    fleet: Fleet
    screen: Screen
    sampler: FleetSampler
    events: list[Event] = field(default_factory=list)

    @property
    def objects(self) -> Objects:
        return self.fleet.objects

    async def run(self, *, until: What | None = None) -> None:
        """Run all six acts, or those up to the act *until*."""
        await self.one_then_four()
        acts: dict[What, Callable[[], Awaitable[None]]] = {
            "kill": self.kill,
            "freeze": self.freeze,
            "join": self.join,
            "roll": self.roll,
            "leader_kill": self.kill_leader,
        }
        for what, act in acts.items():
            await act()
            if what == until:
                return

    # -- 1 --------------------------------------------------------------------------------------------------

    async def one_then_four(self) -> None:
        """One leader works and three idle; then the same four processes share the ring."""
        fleet = self.fleet
        self.screen.act("1. One leader works, three idle", "leader election as every controller has it")
        began = fleet.clock.now()
        await asyncio.sleep(min(_ALONE_S, 1.0 + len(self.objects.refs) / _OBJECTS_PER_S))
        alone = self._peak(began)
        self.screen.say(f"one leader: {alone} reconciles/s; three replicas idle")
        self.screen.act("1. Now four work", "a sharder puts every object on a ring of the four replicas")
        await fleet.stop_members()
        fleet.mode = Mode.SHARDED
        await fleet.create_ring()
        for name in list(fleet.members):
            await fleet.add_member(name)
        await fleet.wait_up()
        began = fleet.clock.now()
        took_s = await fleet.wait_converged()
        shared = self._peak(began)
        self.screen.say(
            f"four replicas: {shared} reconciles/s, {shared / max(alone, 1):.1f} times as many; "
            f"all {len(self.objects.refs):,} shared after {took_s:.1f} s",
            weight="good",
        )

    def _peak(self, since: float) -> int:
        """Most reconciles that ended within one second since then."""
        ends = sorted(r.t for r in self.fleet.records() if isinstance(r, End) and r.t >= since)
        return max((bisect_right(ends, t + 1.0) - index for index, t in enumerate(ends)), default=0)

    # -- 2 --------------------------------------------------------------------------------------------------

    async def kill(self) -> None:
        victim = "replica-2"
        self.screen.act("2. kill -9", f"{victim} dies in the middle of its work and is started again")
        async with self._event("kill", ideal=0):
            await self.fleet.kill(victim, again=True)
            self.screen.say(f"{victim} killed", weight="bad")
            await self.fleet.wait_converged()

    # -- 3 --------------------------------------------------------------------------------------------------

    async def freeze(self) -> None:
        """Stop a replica with writes in flight: the server must refuse the late writes."""
        victim = "replica-3"
        self.screen.act(
            "3. Freeze", f"{victim} stops (SIGSTOP) while its writes are on their way through the network"
        )
        for _ in range(_FREEZES):
            if await self._freeze_once(victim):
                return
            self.screen.say("its writes had arrived in time: once more")
        raise NotConvergedError(f"no write of {victim} came late, {_FREEZES} times")

    async def _freeze_once(self, victim: str) -> bool:
        """Whether a write came late."""
        fleet, place = self.fleet, self.fleet.members[victim]
        owned = await self._owned_by(victim)
        measure = _Measure(fleet)
        held = await catch_writes(fleet, victim)
        self.screen.say(f"{victim} frozen, writes to {', '.join(sorted(held))} on their way", weight="bad")
        before = await self._owners_of(held)
        await fleet.wait_for(lambda: self._are_others(before), "others to own the objects of the held writes")
        self.screen.say(f"its Lease was taken, its {len(owned):,} objects go to the others")
        await fleet.release(victim)
        late = await self._wait_late(victim, measure.since)
        if late:
            self._report_late(late[0])
        await fleet.wait_converged()
        measure.end()
        fleet.wake(victim)
        await fleet.wait_for(lambda: place.exits and place.exits[-1].t > measure.since, f"{victim} to end")
        self.screen.say(
            f"{victim} woken: it found its Lease lost and ended itself (exit {place.exits[-1].code});"
            " it is started again"
        )
        await fleet.wait_converged()
        if late:
            self._note("freeze", measure, ideal=len(owned))
        return bool(late)

    async def _owned_by(self, member: str) -> list[str]:
        shard = self.fleet.life(member)
        return [name for name, owner in (await self.fleet.owners()).items() if owner == shard]

    async def _owners_of(self, names: Collection[str]) -> dict[str, str]:
        owners = await self.fleet.owners()
        return {name: owners[name] for name in names}

    async def _are_others(self, before: Mapping[str, str]) -> bool:
        """Whether each of those objects has an owner, and another than *before*."""
        now = await self._owners_of(before)
        return all(now[name] and now[name] != shard for name, shard in before.items())

    async def _wait_late(self, member: str, since: float) -> list[Write]:
        """The writes that came late, as soon as there is one; none if no write was in flight."""
        found: list[Write] = []

        def is_late() -> bool:
            found[:] = self._late(member, since)
            return bool(found)

        with contextlib.suppress(NotConvergedError):
            await self.fleet.wait_for(is_late, f"a late write of {member}", within_s=_LATE_WITHIN_S)
        return found

    def _late(self, member: str, since: float) -> list[Write]:
        """Writes of *member* that met an object which was no longer its own."""
        keys, writes = self.fleet.spec.keys, self.fleet.plane.writes()
        mine = {life for life, name in members(writes, keys=keys).items() if name == member}
        return [
            write
            for write in writes
            if write.t >= since
            and write.user == member
            and write.resource in self.fleet.spec.resources
            and (
                write.code == 422
                or (accepted(write) and (write.labels_before or {}).get(keys.shard) not in mine)
            )
        ]

    def _report_late(self, late: Write) -> None:
        what = f"its {late.verb} of {late.resource} {late.namespace}/{late.name} arrives late"
        if accepted(late):
            self.screen.say(
                f"{what}: ACCEPTED, although it belongs to another: the fence is off", weight="bad"
            )
            return
        self.screen.say(f"{what}: refused with {late.code}", weight="good")
        if owner := (late.labels_before or {}).get(self.fleet.spec.keys.shard):
            self.screen.say(f"because the object bears the name {owner} by now", weight="good")

    # -- 4, 5, 6 --------------------------------------------------------------------------------------------

    async def join(self) -> None:
        members = list(self.fleet.members)
        count = len(members)
        ideal = round(len(self.objects.refs) / (count + 1))
        modulo = self._modulo_would_move(count, count + 1)
        self.screen.act("4. One more joins", f"{count + 1} replicas: a fair share is {ideal:,} objects")
        async with self._event("join", ideal=ideal):
            name = await self.fleet.join()
        moved = self.events[-1].moved
        self.screen.say(
            f"{name}: moved {moved:,}, ideal {ideal:,}, modulo would move {modulo:,}", weight="good"
        )

    def _modulo_would_move(self, before: int, after: int) -> int:
        spec = self.fleet.spec
        hashes = [
            hash_key(object_key(spec.resource.group, spec.namespace, ref.name)) for ref in self.objects.refs
        ]
        return sum(value % before != value % after for value in hashes)

    async def roll(self) -> None:
        self.screen.act("5. Roll all", "every replica is restarted in turn, as for a new version")
        async with self._event("roll", ideal=0):
            await self.fleet.roll()
            await self.fleet.wait_converged()

    async def kill_leader(self) -> None:
        """The leading sharder dies; an object created now must still find its owner."""
        fleet = self.fleet
        self.screen.act(
            "6. Kill the leading sharder", "replicas work on; a new object waits for the next leader"
        )
        async with self._event("leader_kill", ideal=0):
            before = await fleet.kill_leader()
            self.screen.say(f"{before} killed; {LATECOMER} is created", weight="bad")
            ref = await fleet.objects.create(LATECOMER)
            await fleet.wait(ref, condition="Ready")
            await fleet.wait_converged()
        self.sampler.leader = await fleet.wait_leader()
        self.screen.say(f"{self.sampler.leader} leads")

    @asynccontextmanager
    async def _event(self, what: What, *, ideal: int) -> AsyncIterator[None]:
        """Measure one event: its time and what moved meanwhile."""
        measure = _Measure(self.fleet)
        yield
        measure.end()
        self._note(what, measure, ideal=ideal)

    def _note(self, what: What, measure: _Measure, *, ideal: int) -> None:
        fleet = self.fleet
        movement = fleet.evidence().movement(since=measure.since, until=fleet.clock.now())
        took_s = round(measure.until - measure.since, 3)
        event = Event(what, took_s, movement.moved, ideal, movement.renamed)
        self.events.append(event)
        title = what.replace("_", " ")
        self.screen.say(
            f"{title}: {took_s:.1f} s, {event.moved:,} moved, {event.renamed:,} renamed", weight="good"
        )


class _Measure:
    """The time of one event."""

    def __init__(self, fleet: Fleet) -> None:
        self._clock = fleet.clock
        self.since = self._clock.now()
        self.until = 0.0

    def end(self) -> None:
        """End the measurement."""
        self.until = self._clock.now()
