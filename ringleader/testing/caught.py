"""Writes caught on their way: a replica is stopped between sending a write and its arrival.

A message that is delayed in the network while its sender is suspended is the hardest thing that a fence has to
stand. Owns the timing; called by the demo and by fleet tests.
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
    """Freeze *member* with writes of its reconciles on their way, held by its link; gives the names of their objects.

    What the server had received before proves nothing: then the replica goes on, and it is tried again.
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
            fleet.hold(member)
            await _wait_sent(fleet, member)
            fleet.freeze(member)
        await _wait_answered(fleet)
        caught = unanswered(fleet, member)
        if caught and _held(fleet, member):
            return frozenset(key.rpartition("/")[2] for key in caught)
        fleet.wake(member)
        fleet.release(member)
        await asyncio.sleep(_SENT_WITHIN_S)
    raise ReplicaFailedError(f"no write of {member} could be caught on its way")


async def _wait_busy(fleet: Fleet, member: str, work: asyncio.Task[None]) -> None:
    """Wait until all its workers are in a reconcile, or *work* is done."""
    until = time.monotonic() + _BUSY_WITHIN_S
    while len(in_progress(fleet, member)) < fleet.spec.workers and not work.done():
        if time.monotonic() > until:
            return
        await asyncio.sleep(0.002)  # its journal grows in another process: there is no event to wait for


async def _wait_sent(fleet: Fleet, member: str) -> None:
    """Wait until its workers have sent what they will send: the others wait for answers, which are held, too."""
    began = time.monotonic()
    while (waited_s := time.monotonic() - began) < _SENT_WITHIN_S:
        if _held(fleet, member) >= fleet.spec.workers or (_held(fleet, member) and waited_s > _SENT_SOON_S):
            return
        await asyncio.sleep(0.01)


def _held(fleet: Fleet, member: str) -> int:
    """How many of its connections hold something of its workers; one may hold a renewal of its Lease."""
    return max(0, fleet.held_up(member) - 1)


async def _wait_answered(fleet: Fleet) -> None:
    """Wait as long again as the server takes for a write: what it had received before is in its log by then."""
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
    """Keys of the reconciles in progress of which the server has seen no write yet: theirs are on the way."""
    running = in_progress(fleet, member)
    arrived = set()
    for write in fleet.plane.writes():
        key = f"{write.namespace}/{write.name}"
        if write.user == member and key in running and write.t >= running[key].t:
            arrived.add(key)
    return frozenset(running.keys() - arrived)
