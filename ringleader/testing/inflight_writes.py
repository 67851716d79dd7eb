"""Writes in flight: stops a replica between sending a write and its arrival.

A message that is delayed in the network while its sender is suspended is the hardest test of a fence. Owns the timing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from ringleader.testing.fleet import Fleet
from ringleader.testing.journal import Begin, End
from ringleader.testing.objects import Ref
from ringleader.testing.replica import ReplicaFailedError

_TRIES = 10
_BUSY_WITHIN_S = 10.0
_SENT_WITHIN_S = 1.0
_SENT_SOON_S = 0.3
_SETTLE_S = 0.1


async def catch_writes(fleet: Fleet, member: str) -> frozenset[str]:
    """Freeze *member* while the fault proxy holds writes of its reconciles. Returns the names of their objects.

    A write that the server had received before proves nothing: the replica then goes on, for another try.
    `fleet.release` lets the writes arrive. That has to come before `fleet.wake`: a replica that wakes beyond its
    Lease ends at once, its connections with it, and a server drops the request of a client that is gone. Nor must
    it be late: a server closes connections on which nothing comes for 90 s.
    Raises: ReplicaFailedError if none could be caught.
    """
    for _ in range(_TRIES):
        refs = (await _owned(fleet, member))[: 16 * fleet.spec.workers]
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(fleet.objects.update_all(refs), name=f"work for {member}")
            await _wait_busy(fleet, member, work)
            await fleet.hold(member)
            await _wait_sent(fleet, member)
            fleet.freeze(member)
        await _wait_answered(fleet)
        caught = unanswered(fleet, member)
        if caught and await _held(fleet, member):
            return frozenset(key.rpartition("/")[2] for key in caught)
        fleet.wake(member)
        await fleet.release(member)
        await asyncio.sleep(_SENT_WITHIN_S)
    raise ReplicaFailedError(f"no write of {member} could be caught in flight")


async def _wait_busy(fleet: Fleet, member: str, work: asyncio.Task[None]) -> None:
    """Wait until all its workers are in a reconcile, or *work* is done."""
    until = time.monotonic() + _BUSY_WITHIN_S
    while len(in_progress(fleet, member)) < fleet.spec.workers and not work.done():
        if time.monotonic() > until:
            return
        await asyncio.sleep(0.002)  # its journal grows in another process: there is no event to wait for


async def _wait_sent(fleet: Fleet, member: str) -> None:
    """Wait until its workers have sent their writes: the others wait for answers, which are held, too."""
    began = time.monotonic()
    while (waited_s := time.monotonic() - began) < _SENT_WITHIN_S:
        held = await _held(fleet, member)
        if held >= fleet.spec.workers or (held and waited_s > _SENT_SOON_S):
            return
        await asyncio.sleep(0.01)


async def _held(fleet: Fleet, member: str) -> int:
    """Number of held requests of its workers; one more may be a renewal of its Lease."""
    return max(0, await fleet.held_requests(member) - 1)


async def _wait_answered(fleet: Fleet) -> None:
    """Wait as long again as the server takes for a write: writes received before are in its log by then."""
    asked_at = time.monotonic()
    await fleet.objects.update(fleet.objects.refs[0])
    await asyncio.sleep(time.monotonic() - asked_at + _SETTLE_S)


async def _owned(fleet: Fleet, member: str) -> Sequence[Ref]:
    shard = fleet.life(member)
    owners = await fleet.owners()
    return [ref for ref in fleet.objects.refs if owners.get(ref.name) == shard]


def in_progress(fleet: Fleet, member: str) -> dict[str, Begin]:
    """The reconciles of *member* that have begun and not ended, by key."""
    running: dict[str, Begin] = {}
    for record in fleet.member_records(member):
        if isinstance(record, Begin):
            running[record.key] = record
        elif isinstance(record, End):
            running.pop(record.key, None)
    return running


def unanswered(fleet: Fleet, member: str) -> frozenset[str]:
    """Keys of the reconciles in progress without a write in the server's log: theirs are in flight."""
    running = in_progress(fleet, member)
    arrived = set()
    for write in fleet.plane.writes():
        key = f"{write.namespace}/{write.name}"
        if write.user == member and key in running and write.t >= running[key].t:
            arrived.add(key)
    return frozenset(running.keys() - arrived)
