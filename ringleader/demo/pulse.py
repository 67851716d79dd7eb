"""What a fleet does at one moment, for the screen: shares, rates, memory, what is unassigned or on its way.

Owns the window over which rates are counted. Reads the fleet as an outsider: labels by an independent client,
journals, the process table.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from ringleader.testing.fleet import Fleet
from ringleader.testing.journal import End

_WINDOW_S = 2.0


@dataclass(frozen=True, slots=True)
class MemberPulse:
    name: str
    shard: str
    state: str
    objects: int
    share: float
    rate: float
    in_flight: int
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Pulse:
    """One look at a fleet."""

    members: tuple[MemberPulse, ...] = ()
    sharders: tuple[tuple[str, str, int], ...] = ()
    """Name, state and resident bytes of each."""
    objects: int = 0
    unassigned: int = 0
    in_flight: int = 0
    rate: float = 0.0
    updates: int = 0
    plane_rss_bytes: int = 0


@dataclass
class PulseTaker:
    """Looks again and again; keeps the ends of reconciles of the last seconds."""

    fleet: Fleet
    leader: str = ""
    _ends: deque[tuple[float, str]] = field(default_factory=deque)
    _seen: Counter[str] = field(default_factory=Counter)

    async def take(self) -> Pulse:
        """Look at everything once."""
        fleet, keys = self.fleet, self.fleet.spec.keys
        labels = await fleet.objects.labels()
        owners = Counter(found.get(keys.shard, "") for found in labels.values())
        leaving = Counter(found.get(keys.shard, "") for found in labels.values() if keys.drain in found)
        rates = self._rates()
        rss = fleet.rss_bytes()
        lives = {name: fleet.life(name) or "" for name in fleet.members}
        known = {shard for shard in lives.values() if shard}
        members = tuple(
            MemberPulse(
                name=name,
                shard=shard,
                state=self._state(name),
                objects=owners[shard] if shard else 0,
                share=owners[shard] / len(labels) if labels and shard else 0.0,
                rate=rates[name] / _WINDOW_S,
                in_flight=leaving[shard],
                rss_bytes=rss[name],
            )
            for name, shard in lives.items()
        )
        return Pulse(
            members=members,
            sharders=tuple((name, self._sharder_state(name), rss[name]) for name in fleet.sharders),
            objects=len(labels),
            unassigned=sum(number for shard, number in owners.items() if shard not in known),
            in_flight=leaving.total(),
            rate=sum(rates.values()) / _WINDOW_S,
            updates=fleet.objects.updates,
            plane_rss_bytes=fleet.plane.rss_bytes(),
        )

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
        return "working" if self.fleet.life(name) else "starting"

    def _sharder_state(self, name: str) -> str:
        place = self.fleet.sharders[name]
        if place.current is None:
            return "down"
        return "leading" if name == self.leader else "standby"
