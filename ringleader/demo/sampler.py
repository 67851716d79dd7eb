"""Samples of a fleet for the screen: shares, rates, memory, unassigned objects and objects in flight.

Owns the window over which rates are counted. Reads labels by an independent client, journals and the process table.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from ringleader.testing.commands import Mode
from ringleader.testing.fleet import Fleet
from ringleader.testing.journal import End, Life

_WINDOW_S = 2.0


@dataclass(frozen=True, slots=True)
class MemberSample:
    name: str
    shard: str
    state: str
    objects: int
    share: float
    rate: float
    in_flight: int
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class FleetSample:
    """The state of a fleet at one moment."""

    members: tuple[MemberSample, ...] = ()
    sharders: tuple[tuple[str, str, int], ...] = ()
    """Name, state and resident bytes of each."""
    objects: int = 0
    unassigned: int = 0
    in_flight: int = 0
    rate: float = 0.0
    updates: int = 0
    plane_rss_bytes: int = 0


@dataclass
class FleetSampler:
    """Samples a fleet; keeps the ends of reconciles of the last seconds."""

    fleet: Fleet
    leader: str = ""
    _ends: deque[tuple[float, str]] = field(default_factory=deque)
    _seen: Counter[str] = field(default_factory=Counter)

    async def sample(self) -> FleetSample:
        """Read everything once. An object counts for the member that its label names, dead or alive."""
        fleet, keys = self.fleet, self.fleet.spec.keys
        labels = await fleet.objects.labels()
        rates = self._rates()
        member_of = self._member_of()
        owners = [member_of.get(found.get(keys.shard, ""), "") for found in labels.values()]
        leaving = [
            member_of.get(found.get(keys.shard, ""), "") for found in labels.values() if keys.drain in found
        ]
        rss = fleet.rss_bytes()
        members = tuple(
            MemberSample(
                name=name,
                shard=fleet.life(name) or "",
                state=self._state(name),
                objects=owners.count(name),
                share=owners.count(name) / len(labels) if labels else 0.0,
                rate=rates[name] / _WINDOW_S,
                in_flight=leaving.count(name),
                rss_bytes=rss[name],
            )
            for name in fleet.members
        )
        return FleetSample(
            members=members,
            sharders=tuple((name, self._sharder_state(name), rss[name]) for name in fleet.sharders),
            objects=len(labels),
            unassigned=owners.count(""),
            in_flight=len(leaving),
            rate=sum(rates.values()) / _WINDOW_S,
            updates=fleet.objects.updates,
            plane_rss_bytes=fleet.plane.rss_bytes(),
        )

    def _member_of(self) -> dict[str, str]:
        """The member of every shard that ever wrote a `Life` record."""
        return {
            record.shard: name
            for name in self.fleet.members
            for record in self.fleet.member_records(name)
            if isinstance(record, Life)
        }

    def _rates(self) -> Counter[str]:
        for name in self.fleet.members:
            records = self.fleet.member_records(name)
            self._ends.extend((r.t, name) for r in records[self._seen[name] :] if isinstance(r, End))
            self._seen[name] = len(records)
        horizon = self.fleet.clock.now() - _WINDOW_S
        self._ends = deque((t, name) for t, name in self._ends if t >= horizon)
        return Counter(name for _, name in self._ends)

    def _state(self, name: str) -> str:
        place = self.fleet.members[name]
        if place.current is None:
            return "down" if place.is_wanted else "gone"
        if place.current.is_frozen:
            return "frozen"
        if self.fleet.life(name):
            return "working"
        return "idle" if self.fleet.mode is Mode.LEADER_ELECTED else "starting"

    def _sharder_state(self, name: str) -> str:
        place = self.fleet.sharders[name]
        if place.current is None:
            return "down"
        return "leading" if name == self.leader else "standby"
