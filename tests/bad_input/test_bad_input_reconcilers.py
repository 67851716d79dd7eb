"""A reconciler that misbehaves holds up its own object only, says which and why, and nothing is lost.

Two replicas under a real sharder; leases of 2 s; a reconcile may take 1 s, the event loop may stand still for 4 s.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from devcluster.embedded import embedded_plane
from ringleader.testing.commands import FleetSpec
from ringleader.testing.fleet import Fleet, open_fleet
from ringleader.testing.objects import Ref
from ringleader.testing.single_task import single_task

CONTROLLER = Path(__file__).with_name("controllers") / "misbehaving.py"
HEALTHY = 24
WORDS = {
    "raise": ["reconcile failed", "ValueError: as the page says"],
    "hang": ["reconcile failed", "ReconcileTimeout: not done after timeout_s, 1 s", "shorter timeouts"],
    "recurse": ["reconcile failed", "RecursionError"],
    "nothing": ["reconcile failed", "returned None", "return sc.Done()"],
    "misfit": ["object does not fit the model", r"\$.spec.html", "correct the object"],
}

pytestmark = [pytest.mark.fleet, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    folder = tmp_path_factory.mktemp("misbehaving")
    spec = FleetSpec(
        controller=f"{CONTROLLER}:websites",
        lease_s=2,
        sharders=1,
        shard_flags=("--progress-deadline", "4"),
    )
    async with (
        single_task(embedded_plane(folder / "plane")) as plane,
        single_task(open_fleet(plane, folder / "fleet", spec=spec)) as fleet,
    ):
        await fleet.start(replicas=2)
        await fleet.objects.create_many(HEALTHY)
        await fleet.wait_converged()
        yield fleet


def logs(fleet: Fleet) -> str:
    return "\n".join(replica.log.read_text() for replica in fleet.members.values())


async def others_are_fresh(fleet: Fleet, *bad: Ref) -> None:
    """Every other object is changed, and reconciled soon."""
    await fleet.objects.update_all([ref for ref in fleet.objects.refs if ref not in bad])
    wanted = await fleet.objects.generations()
    for ref in bad:
        wanted.pop(ref.uid)

    async def are_fresh() -> bool:
        return not await fleet.objects.behind(wanted)

    await fleet.wait_for(are_fresh, "the other objects to be reconciled", within_s=30)


async def test_what_a_page_makes_fail_is_told_and_stops_no_other(fleet: Fleet) -> None:
    bad = {word: fleet.objects.refs[index] for index, word in enumerate(WORDS)}
    for word, ref in bad.items():
        await fleet.patch(ref, {"spec": {"html": word}})
    await others_are_fresh(fleet, *bad.values())
    await fleet.wait_for(
        lambda: all(tells(fleet, ref, word) for word, ref in bad.items()), "all of it to be told", within_s=20
    )
    assert [replica.exits for replica in fleet.members.values()] == [[], []]
    for ref in bad.values():
        await fleet.patch(ref, {"spec": {"html": "well again"}})
    await everything_is_in_order(fleet)


def tells(fleet: Fleet, ref: Ref, word: str) -> bool:
    """Whether one line of a log names the object and all that belongs to its fault."""
    about = [line for line in logs(fleet).splitlines() if f"{ref.namespace}/{ref.name} " in f"{line} "]
    return any(all(re.search(pattern, line) for pattern in WORDS[word]) for line in about)


async def test_a_blocked_event_loop_ends_its_process_and_the_others_go_on(fleet: Fleet) -> None:
    ref = fleet.objects.refs[-1]
    exits = fleet.members[await fleet.owner(ref)].exits
    await fleet.patch(ref, {"spec": {"html": "block"}})
    await fleet.wait_for(lambda: bool(exits), "the blocked replica to end", within_s=30)
    assert exits[0].code not in (0, None)
    assert "event loop did not tick" in logs(fleet)
    await fleet.patch(ref, {"spec": {"html": "well again"}})
    await everything_is_in_order(fleet)


async def everything_is_in_order(fleet: Fleet) -> None:
    """Every object has been reconciled in its last version, by one at a time."""
    await fleet.wait_converged(within_s=60)
    evidence = fleet.evidence()
    evidence.require_reconciles(HEALTHY)
    assert not [*evidence.overlaps, *evidence.foreign_writes]
    assert await fleet.objects.stale() == []
