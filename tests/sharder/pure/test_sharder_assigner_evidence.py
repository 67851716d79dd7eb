"""The evidence on which names are written: the protocol's 6.3, on virtual time."""

from __future__ import annotations

import asyncio
import dataclasses
from itertools import pairwise

import msgspec
import pytest

from kubeio.errors import TooManyRequests
from sharder.planning.planner import Terms
from sharder.writing.evidence_reads import APART_S, FEW_WRITES, NEXT_S, VALID_S
from tests.sharder.pure.assigning import OF_A, READ_S, TWO, FakeMembership, at_version, busy, moving, no_slots
from tests.sharder.pure.views import CONFIGMAPS, child_of, make_meta

pytestmark = pytest.mark.looptime


async def test_nothing_is_written_for_a_name_that_evidence_does_not_show_held() -> None:
    """The view lags: what a consistent read shows counts."""
    async with moving(FakeMembership(TWO, "b-1")) as ring:
        ring.shows(ring.objects.put(make_meta(OF_A)))
        await asyncio.sleep(5)
        assert ring.objects.sent == []
        ring.membership.held.add("a-1")
        await asyncio.sleep(2)
        assert ring.owner(OF_A) == "a-1"


async def test_without_evidence_nothing_is_written_until_there_is_some() -> None:
    membership = FakeMembership(TWO, "a-1", "b-1")
    membership.fails = 3
    async with moving(membership) as ring:
        ring.shows(ring.objects.put(make_meta(OF_A)))
        await asyncio.sleep(5)
        assert len(membership.began) == 4
        assert [sent.to for sent in ring.objects.sent] == ["a-1"]


async def test_evidence_begins_after_the_version_was_read_and_is_not_kept() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        for number in range(300):
            ring.shows(ring.objects.put(make_meta(f"first-{number}")))
        shown_at = ring.clock.now()
        await asyncio.sleep(0.15)
        assert len(ring.objects.sent) == 300
        assert [began >= shown_at for began in ring.membership.began] == [True]
        ring.membership.held.clear()
        ring.shows(ring.objects.put(make_meta("second")))
        await asyncio.sleep(1)
        assert ring.owner("second") is None, "what was held before says nothing"


async def test_for_few_objects_only_their_owners_leases_are_read() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        ring.shows(ring.objects.put(make_meta(OF_A)))
        await asyncio.sleep(1)
        assert ring.membership.asked == [{"a-1"}]
        assert ring.owner(OF_A) == "a-1"
        for number in range(FEW_WRITES + 1):
            ring.shows(ring.objects.put(make_meta(f"site-{number}")))
        await asyncio.sleep(1)
        assert len(ring.membership.asked) == 1, "many: all Leases in a list"
        assert len(ring.objects.sent) == FEW_WRITES + 2


async def test_where_a_controller_determines_the_owner_that_owners_lease_is_read() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        ring.objects.put(make_meta(OF_A, shard="b-1"))
        child = ring.objects.put(msgspec.structs.replace(child_of(OF_A).meta, uid="child"))
        ring.shows(child, CONFIGMAPS)
        await asyncio.sleep(0.1)
        assert ring.membership.asked == [{"b-1"}]
        assert [(sent.name, sent.to) for sent in ring.objects.sent] == [(child.name, "b-1")]


async def test_objects_that_come_one_after_the_other_share_reads() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        ring.membership.read_s = 0.001
        for number in range(100):
            ring.shows(ring.objects.put(make_meta(f"site-{number}")))
            await asyncio.sleep(0.004)
        assert len(ring.objects.sent) >= 90
        assert all(later - one >= APART_S - 0.002 for one, later in pairwise(ring.membership.began))


async def test_every_write_begins_within_a_quarter_of_a_second_of_a_read_that_was_answered() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        for at in await busy(ring, 800):
            ages = [at - began for began in ring.membership.began if began + READ_S <= at]
            assert min(ages) <= READ_S + VALID_S


async def test_without_a_younger_read_the_writes_stop() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        ring.objects.takes_s = 0.02
        for number in range(800):
            ring.shows(ring.objects.put(make_meta(f"site-{number}")))
        began = ring.clock.now()
        await asyncio.sleep(0.1)
        ring.membership.read_s = 5.0
        await asyncio.sleep(4)
        assert 0 < len(ring.objects.sent) < 800
        assert max(sent.at for sent in ring.objects.sent) - began <= READ_S + VALID_S


@pytest.mark.parametrize("read_s", [0.5, 4.0])
async def test_a_server_slow_to_show_its_leases_delays_the_writes_and_never_stops_them(read_s: float) -> None:
    membership = FakeMembership(TWO, "a-1", "b-1")
    membership.read_s = read_s
    async with moving(membership) as ring:
        ring.objects.takes_s = read_s
        for number in range(40):
            ring.shows(ring.objects.put(make_meta(f"site-{number}")))
        await asyncio.sleep(40 * read_s)
        assert len(ring.objects.sent) == 40


async def test_evidence_from_before_a_suspension_is_void() -> None:
    membership = FakeMembership(TWO, "a-1", "b-1")
    membership.read_s = 3600.0
    async with moving(membership) as ring:
        ring.shows(ring.objects.put(make_meta(OF_A)))
        await asyncio.sleep(3)
        membership.held.clear()
        membership.read_s = READ_S
        await asyncio.sleep(3700)
        assert ring.objects.sent == []


async def test_the_next_read_runs_while_the_writes_of_the_last_one_go_out() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        instants = await busy(ring, 800)
        gaps = [later - earlier for earlier, later in pairwise(instants)]
        assert max(gaps) <= 0.021, "the writes never wait for evidence"
        assert len(ring.membership.began) <= 2 + (instants[-1] - instants[0]) / NEXT_S


async def test_on_a_slow_server_reads_overlap_and_writes_do_not_pause() -> None:
    membership = FakeMembership(TWO, "a-1", "b-1")
    membership.read_s = 0.6
    async with moving(membership) as ring:
        instants = await busy(ring, 800)
        gaps = [later - earlier for earlier, later in pairwise(instants)]
        assert max(gaps) <= 0.05, "some read is always young enough"
        assert len(ring.membership.began) <= 10 + (instants[-1] - instants[0]) / NEXT_S


async def test_nothing_is_read_while_nothing_is_to_be_written() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        await asyncio.sleep(60)
        assert ring.membership.began == []
        ring.shows(ring.objects.put(make_meta("one")))
        await asyncio.sleep(60)
        assert len(ring.membership.began) == 1


async def test_while_the_server_wants_a_pause_nothing_is_written_and_no_evidence_gathered() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        ring.limiter.failed(0.01, TooManyRequests("PATCH", status=429, retry_after_s=20.0))
        ring.shows(ring.objects.put(make_meta("one")))
        await asyncio.sleep(19)
        assert (ring.membership.began, ring.objects.sent) == ([], [])
        await asyncio.sleep(4)
        assert len(ring.objects.sent) == 1


async def test_a_write_that_met_another_version_is_decided_anew_with_new_evidence() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        ring.shows(make_meta(OF_A))
        ring.objects.put(msgspec.structs.replace(make_meta(OF_A), resource_version="9"))
        await asyncio.sleep(5)
        assert [(sent.version, sent.to) for sent in ring.objects.sent] == [("7", "a-1"), ("9", "a-1")]
        assert len(ring.membership.began) == 2
        assert ring.membership.began[1] >= ring.objects.sent[0].at


async def test_a_version_that_comes_while_the_leases_are_read_needs_another_read() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        meta = ring.objects.put(make_meta(OF_A))
        ring.shows(meta)
        await asyncio.sleep(READ_S / 2)
        changed_at = ring.clock.now()
        ring.shows(ring.objects.put(at_version(9, meta)))
        await asyncio.sleep(5)
        assert [sent.version for sent in ring.objects.sent] == ["9"]
        assert ring.membership.began[-1] >= changed_at


async def test_a_version_that_comes_before_its_write_has_a_slot_needs_another_read() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        meta = ring.objects.put(make_meta(OF_A))
        async with no_slots(ring):
            ring.shows(meta)
            await asyncio.sleep(READ_S * 2)
            changed_at = ring.clock.now()
            ring.shows(ring.objects.put(at_version(9, meta)))
        await asyncio.sleep(5)
        assert [sent.version for sent in ring.objects.sent] == ["9"]
        assert ring.membership.began[-1] >= changed_at


async def test_a_slot_that_comes_late_needs_a_younger_read() -> None:
    async with moving(FakeMembership(TWO, "a-1", "b-1")) as ring:
        async with no_slots(ring):
            ring.shows(ring.objects.put(make_meta(OF_A)))
            await asyncio.sleep(3)
            ring.membership.held.clear()
            await asyncio.sleep(1)
        await asyncio.sleep(1)
        assert ring.objects.sent == []


async def test_forged_names_cost_neither_evidence_nor_slots() -> None:
    """However often an object is relabelled: a new object's owner is still found by one read of one Lease."""
    membership = FakeMembership(TWO, "a-1", "b-1")
    async with moving(membership) as ring:
        forged = [make_meta(f"forged-{number}", shard=f"nobody-{number}") for number in range(1000)]
        for meta in forged:
            ring.shows(ring.objects.put(meta))
        for version in range(100):
            ring.shows(msgspec.structs.replace(forged[0], resource_version=str(100 + version)))
            await asyncio.sleep(0.005)
        ring.queue.enqueue_all()
        assert ring.queue.to_do() == 0
        await asyncio.sleep(5)
        assert membership.began == []
        assert {f"nobody-{number}" for number in range(1000)} == set(membership.unknown)
        ring.shows(ring.objects.put(make_meta(OF_A)))
        await asyncio.sleep(1)
        assert membership.asked == [frozenset({"a-1"})]
        assert ring.owner(OF_A) == "a-1"


async def test_a_name_without_a_lease_keeps_its_object_while_evidence_shows_that_it_has_one() -> None:
    """This sharder stood still: another one has made the ring anew, and a shard was born under the name."""
    membership = FakeMembership(dataclasses.replace(TWO, unknown_are_dead=True), "new-1")
    async with moving(membership) as ring:
        ring.states.set_terms(Terms(releasing=True))
        ring.shows(ring.objects.put(make_meta(OF_A, shard="new-1")))
        await asyncio.sleep(5)
        assert ring.membership.asked
        assert ring.owner(OF_A) == "new-1"
        ring.membership.held.clear()
        await asyncio.sleep(2)
        assert ring.owner(OF_A) is None
