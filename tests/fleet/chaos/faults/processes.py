"""Faults of processes and members."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tests.fleet.chaos.faults.table import fault
from tests.fleet.chaos.slowing import slowed
from tests.fleet.chaos.strike import FEWEST_MEMBERS, MOST_MEMBERS, MissedError, Strike


@fault()
async def process_killed(strike: Strike) -> None:
    """SIGKILL; the next process fills the place."""
    place = strike.take_process()
    place.kill()
    await strike.pause(1)


@fault()
async def process_terminated(strike: Strike) -> None:
    """SIGTERM; the place stays empty for a while."""
    place = strike.take_process()
    try:
        await place.stop()
        await strike.pause()
    finally:
        place.want()


@fault()
async def process_restarted(strike: Strike) -> None:
    """SIGTERM; the next process follows at once."""
    await strike.take_process().restart()


@fault()
async def process_frozen(strike: Strike) -> None:
    """SIGSTOP, and SIGCONT later."""
    process = strike.take_process().freeze()
    try:
        await strike.pause()
    finally:
        process.wake()


@fault()
async def process_slowed(strike: Strike) -> None:
    """A process gets 2 to 30 % of a core (a cgroup's quota, else SIGSTOP and SIGCONT in turn)."""
    process = strike.take_process().current
    if process is None:
        raise MissedError("it has just ended")
    share = strike.rng.uniform(0.02, 0.3)
    async with slowed(process, share=share) as means:
        strike.struck.append(f"{100 * share:.0f} % by {means}")
        await strike.pause()


@fault(is_gentle=True)
async def log_blocked(strike: Strike) -> None:
    """The stderr of a replica is a full pipe that is not read."""
    pipe = strike.site.pipes[strike.take_member()]
    pipe.block()
    try:
        await strike.pause(6)
    finally:
        pipe.read()


@fault()
async def leader_killed(strike: Strike) -> None:
    """SIGKILL of the sharder that leads."""
    (await strike.take_leader()).kill()


@fault()
async def leader_frozen(strike: Strike) -> None:
    """SIGSTOP of the sharder that leads, and SIGCONT later."""
    process = (await strike.take_leader()).freeze()
    try:
        await strike.pause()
    finally:
        process.wake()


@fault()
async def member_joined(strike: Strike) -> None:
    """One more replica, under a new name or one that was used before."""
    fleet, places = strike.fleet, strike.fleet.members
    if sum(place.is_wanted for place in places.values()) >= MOST_MEMBERS:
        raise MissedError("the fleet is full")
    gone = [name for name, place in places.items() if not place.is_wanted and name not in strike.site.taken]
    fresh = [name for name in strike.site.pipes if name not in places and name not in strike.site.taken]
    await fleet.add_member(strike.take(strike.rng.choice(sorted([*gone, *fresh[:1]]) or [""])))


@fault()
async def member_left(strike: Strike) -> None:
    """A replica ends for good."""
    if sum(place.is_wanted for place in strike.fleet.members.values()) <= FEWEST_MEMBERS:
        raise MissedError("too few replicas")
    await strike.fleet.leave(strike.take_member())


@fault()
async def version_rolled(strike: Strike) -> None:
    """All replicas are restarted one after the other; to a former version and back if one is at hand."""
    fleet, former = strike.fleet, strike.site.former
    names = [name for name in strike.site.running() if name not in strike.site.spared]
    for name in names:
        strike.site.taken.add(name)
    pythons = [str(former), fleet.spec.shard_python] if former else [fleet.spec.shard_python]
    strike.struck.append("to the former version and back" if former else "one version")
    for python in pythons:
        fleet.spec = replace(fleet.spec, shard_python=python)
        for name in names:
            await fleet.members[name].restart()
            await fleet.wait_for(partial(fleet.life, name), f"{name} to be up again", within_s=120)
