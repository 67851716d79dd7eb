"""Handoffs that are broken off in the middle: no object is lost between two shards, none is had by both.

Traps of the protocol, section 9: 4 (answers to acknowledgements lost), 5 (target dies before the object arrives),
6 (owner dies between drain label and acknowledgement).
"""

from __future__ import annotations

import pytest

from devcluster.faults import Fault
from ringleader.testing.fleet import Fleet
from tests.fleet.judging import judge

pytestmark = [pytest.mark.fleet, pytest.mark.asyncio(loop_scope="module")]
OWNER, TARGET = "replica-1", "replica-4"


@pytest.fixture(scope="module")
def has_faults() -> bool:
    return True


async def caught_in_handoff(fleet: Fleet) -> None:
    """Let the target join while the owner's traffic is held: its handoffs are asked for and not answered."""
    await fleet.add_member(TARGET)
    await fleet.wait_for(lambda: fleet.life(TARGET) is not None, f"{TARGET} to be up")
    await fleet.hold(OWNER)
    keys, owner, target = fleet.spec.keys, fleet.life(OWNER), fleet.life(TARGET)

    async def asked() -> bool:
        labels = (await fleet.objects.labels()).values()
        return any(found.get(keys.shard) == owner and found.get(keys.drain) == target for found in labels)

    await fleet.wait_for(asked, "a handoff to be asked for", within_s=20)


async def test_the_target_of_a_handoff_dies_before_the_object_arrives(fleet: Fleet) -> None:
    await caught_in_handoff(fleet)
    await fleet.kill(TARGET)
    await fleet.release(OWNER)
    evidence = await judge(fleet)
    assert TARGET not in fleet.lives().values()
    assert evidence.reconciles > 0


async def test_the_owner_dies_between_drain_label_and_acknowledgement(fleet: Fleet) -> None:
    await caught_in_handoff(fleet)
    await fleet.kill(OWNER)
    await fleet.release(OWNER)
    await judge(fleet)
    await fleet.add_member(OWNER)
    await judge(fleet)
    await fleet.leave(TARGET)
    await judge(fleet)


async def test_acknowledgements_whose_answers_are_lost_bring_no_object_back(fleet: Fleet) -> None:
    faults = fleet.plane.faults
    for member in list(fleet.lives().values()):
        await faults.add(Fault(what="lose_answer", user=member, verb="patch", count=15))
    await fleet.join(TARGET)
    await faults.clear()
    await judge(fleet)
    await fleet.leave(TARGET)
    await judge(fleet)
