"""Writes caught on their way: a replica's reconciles are stopped between sending a write and its arrival.

A message that is delayed in the network while its sender is suspended is the hardest thing that a fence has to
stand. Owns the timing; called by the demo and by fleet tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ringleader.testing.fleet import Fleet
from ringleader.testing.journal import Begin, End
from ringleader.testing.objects import Ref
from ringleader.testing.replica import ReplicaFailedError

_TRIES = 8
_BUSY_WITHIN_S = 10.0


async def catch_writes(fleet: Fleet, member: str, *, reconcile_s: float = 0.02) -> int:
    """Hold the traffic of *member* with writes of its reconciles on their way; gives how many were caught.

    *reconcile_s*: how long a reconcile takes at most before its first write. A reconcile whose write or answer
    had passed just before proves nothing: then the traffic is released and it is tried again. Afterwards the
    process may be frozen; `fleet.release` lets the writes arrive.
    Raises: ReplicaFailedError if none could be caught.
    """
    on_the_way_s = reconcile_s + 0.25
    for _ in range(_TRIES):
        async with asyncio.TaskGroup() as tasks:
            refs = (await _owned(fleet, member))[: 16 * fleet.spec.workers]
            tasks.create_task(fleet.objects.update_all(refs), name=f"updates of the objects of {member}")
            await _wait_busy(fleet, member)
            fleet.hold(member)
        await asyncio.sleep(on_the_way_s)
        if caught := unanswered(fleet, member):
            return len(caught)
        fleet.release(member)
        await asyncio.sleep(on_the_way_s)
    raise ReplicaFailedError(f"no write of {member} could be caught on its way")


async def _owned(fleet: Fleet, member: str) -> Sequence[Ref]:
    shard = fleet.life(member)
    owners = await fleet.owners()
    return [ref for ref in fleet.objects.refs if owners.get(ref.name) == shard]


async def _wait_busy(fleet: Fleet, member: str) -> None:
    async with asyncio.timeout(_BUSY_WITHIN_S):
        # its journal grows in another process: there is no event to wait for
        while len(in_progress(fleet, member)) < fleet.spec.workers:  # noqa: ASYNC110
            await asyncio.sleep(0.002)


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
