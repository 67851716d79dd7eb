"""Faults of a fleet of unmodified controllers: each strikes, waits until it is over, and undoes what it did."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Awaitable, Callable
from typing import Final

from ringleader.testing.replica import Replica, ReplicaFailedError
from ringleader.testing.unmodified.fleet import ProxyFleet

FEWEST_MEMBERS: Final = 2
MOST_MEMBERS: Final = 6


class MissedError(Exception):
    """There is nothing that this fault could strike now."""


MISSED: Final = (MissedError, ReplicaFailedError)


class Strike:
    """One fault on *fleet*; *rng* draws what it strikes and how long. *taken*: members of another fault."""

    def __init__(self, fleet: ProxyFleet, rng: random.Random, *, taken: set[str]) -> None:
        self.fleet: Final = fleet
        self.rng: Final = rng
        self.struck: Final[list[str]] = []
        """What it struck, for the log."""
        self._taken: Final = taken

    def take_member(self, *, is_spare: bool = False) -> str:
        """A running member, for this fault alone until the wave is over. Raises: MissedError.

        With *is_spare* one that the ring can do without.
        """
        fleet = self.fleet
        names = sorted(
            name
            for name, place in fleet.places.items()
            if place.current is not None
            and name not in self._taken
            and (not is_spare or len(fleet.wanted()) > FEWEST_MEMBERS)
        )
        if not names:
            raise MissedError
        name = self.rng.choice(names)
        self._taken.add(name)
        self.struck.append(name)
        return name

    def take_process(self) -> Replica:
        """The place of a running member."""
        return self.fleet.places[self.take_member()]

    def take_controller(self) -> int:
        """Process id of the controller of a running member. Raises: MissedError if it has none now."""
        pid = self.fleet.controller(self.take_member())
        if pid is None:
            raise MissedError
        return pid

    async def pause(self, shortest: float = 0.2, longest: float = 4.0) -> None:
        """Last from *shortest* to *longest* Lease durations."""
        span_s = self.rng.uniform(shortest, longest) * self.fleet.spec.lease_s
        self.struck.append(f"{span_s:.1f} s")
        await asyncio.sleep(span_s)


Fault = Callable[[Strike], Awaitable[None]]


async def proxy_killed(strike: Strike) -> None:
    """SIGKILL of a proxy: its controller ends with it, the next process fills the place."""
    strike.take_process().kill()
    await strike.pause(longest=1)


async def controller_killed(strike: Strike) -> None:
    """SIGKILL of a controller: its proxy starts it again."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(strike.take_controller(), signal.SIGKILL)
    await strike.pause(longest=1)


async def proxy_frozen(strike: Strike) -> None:
    """SIGSTOP of a proxy while its controller runs on, and SIGCONT later; often its Lease is taken meanwhile."""
    process = strike.take_process().freeze()
    try:
        await strike.pause()
    finally:
        process.wake()


async def controller_frozen(strike: Strike) -> None:
    """SIGSTOP of a controller while its proxy runs on, and SIGCONT later."""
    pid = strike.take_controller()
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        try:
            await strike.pause()
        finally:
            os.kill(pid, signal.SIGCONT)


async def both_frozen(strike: Strike) -> None:
    """SIGSTOP of a proxy and its controller, as of a machine, and SIGCONT later."""
    place = strike.take_process()
    pid = strike.fleet.controller(place.name)
    process = place.freeze()
    with contextlib.suppress(ProcessLookupError):
        try:
            if pid is not None:
                os.kill(pid, signal.SIGSTOP)
            await strike.pause(longest=3)
        finally:
            process.wake()
            if pid is not None:
                os.kill(pid, signal.SIGCONT)


async def member_joined(strike: Strike) -> None:
    """One more proxy, under a new name or one that was used before."""
    fleet = strike.fleet
    if len(fleet.wanted()) >= MOST_MEMBERS:
        raise MissedError
    strike.struck.append(await fleet.add())


async def member_left(strike: Strike) -> None:
    """A proxy ends for good by SIGTERM."""
    await strike.fleet.places[strike.take_member(is_spare=True)].stop(grace_s=40)


async def member_lost(strike: Strike) -> None:
    """A proxy is gone for good by SIGKILL."""
    strike.fleet.kill(strike.take_member(is_spare=True))
    await strike.pause(longest=3)


async def sharder_killed(strike: Strike) -> None:
    """SIGKILL of the sharder; the next process fills its place."""
    if strike.fleet.sharder is not None:
        strike.fleet.sharder.kill()
    await strike.pause(longest=1)


async def server_restarted(strike: Strike) -> None:
    """SIGTERM of all API servers, which are away for a while."""
    away_s = strike.rng.uniform(0, 1.5) * strike.fleet.spec.lease_s
    strike.struck.append(f"{away_s:.1f} s")
    await strike.fleet.plane.restart(away_s=away_s)


async def server_killed(strike: Strike) -> None:
    """SIGKILL of an API server, which comes back at once; the others go on."""
    number = strike.rng.choice((1, 2))
    strike.struck.append(str(number))
    await strike.fleet.plane.kill_apiserver(number)
    await strike.fleet.plane.start_apiserver(number)


FAULTS: Final[dict[str, Fault]] = {
    fault.__name__: fault
    for fault in (
        proxy_killed,
        controller_killed,
        proxy_frozen,
        controller_frozen,
        both_frozen,
        member_joined,
        member_left,
        member_lost,
        sharder_killed,
        server_restarted,
        server_killed,
    )
}
SERVERS: Final = frozenset({"server_restarted", "server_killed"})
"""Faults of which a wave has one at most."""
