"""Objects that may have been passed on to a wrong owner: read and requested by themselves, or left to a pass."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kubeio.models import Meta, ObjectKey, ObjectRef
from kubeio.resource import ApiResource
from sharder.membership.shards import ShardState
from sharder.moving.scan import LONGEST_RETRY_S
from sharder.planning.keys import ControllerName
from sharder.planning.planner import ControllerSeen
from sharder.writing.object_writer import WriteOutcome
from tests.sharder.pure.test_sharder_scan import OF_A, OF_B, TWO, Ring, passing
from tests.sharder.pure.views import CONFIGMAPS, KEYS, WEBSITES, make_view, name_for

pytestmark = pytest.mark.looptime


def ref(name: str, resource: ApiResource = WEBSITES) -> ObjectRef:
    return ObjectRef(resource.group_resource, ObjectKey("ns", name))


async def test_an_object_that_was_missent_is_corrected_by_itself_without_a_pass() -> None:
    ring = Ring(TWO)
    ring.server.own(OF_A, "a-1")
    async with passing(ring):
        await asyncio.sleep(10)
        assert ring.server.circles == 1
        for _ in range(100):
            ring.server.own(OF_A, "b-1")
            ring.missent.add(ref(OF_A))
            await asyncio.sleep(0.1)
            if ring.server.objects[OF_A].labels.get(KEYS.drain):
                ring.acknowledge(OF_A)
        assert 10 <= len(ring.server.asked) <= 21, "twice a second at most"
        assert set(ring.server.asked) == {(OF_A, "a-1")}
        assert ring.server.circles == 1


def passed_on_wrongly(ring: Ring) -> None:
    """What belongs to a-1 is b-1's, and only `MissentObjects` knows it."""
    ring.server.own(OF_A, "b-1")
    ring.missent.add(ref(OF_A))


@pytest.mark.parametrize("outcome", [WriteOutcome.LATER, WriteOutcome.DENIED, WriteOutcome.REFUSED])
async def test_a_missent_object_whose_request_was_not_written_is_requested_by_a_pass(
    outcome: WriteOutcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = Ring(TWO)
    ring.server.own(OF_A, "a-1")

    async def not_now(*_: object) -> WriteOutcome:
        monkeypatch.undo()
        return outcome

    async with passing(ring):
        await asyncio.sleep(10)
        monkeypatch.setattr(ring.server, "write", not_now)
        passed_on_wrongly(ring)
        await asyncio.sleep(5)
        assert ring.server.asked == [(OF_A, "a-1")]
        ring.acknowledge(OF_A)
        await asyncio.sleep(60)
        assert ring.has_converged()


async def test_a_missent_object_that_waits_for_a_silent_owner_is_requested_by_a_pass_when_that_renews() -> (
    None
):
    ring = Ring(TWO)
    ring.server.own(OF_A, "a-1")
    async with passing(ring):
        await asyncio.sleep(10)
        silent = {**TWO.shards, "b-1": replace(TWO.shards["b-1"], state=ShardState.EXPIRED)}
        await ring.membership.publish(replace(TWO, shards=silent), same_ring=True)
        passed_on_wrongly(ring)
        await asyncio.sleep(3000)
        assert ring.server.asked == []
        assert not ring.has_converged()
        assert ring.server.circles <= 3000 / LONGEST_RETRY_S + 10
        await ring.membership.publish(TWO, same_ring=True)
        await asyncio.sleep(5)
        assert ring.server.asked == [(OF_A, "a-1")]


async def test_a_missent_object_that_the_watch_still_shows_in_flight_is_requested_by_a_pass() -> None:
    """Its owner passed it on; the watch of drain labels is late."""
    ring = Ring(TWO)
    ring.server.own(OF_A, "a-1")
    work = ref(OF_A)
    async with passing(ring):
        await asyncio.sleep(10)
        ring.handoffs.begin(work, "a-1")
        passed_on_wrongly(ring)
        await asyncio.sleep(5)
        assert ring.server.asked == []
        ring.handoffs.end(work)
        await asyncio.sleep(LONGEST_RETRY_S)
        assert ring.server.asked == [(OF_A, "a-1")]


@pytest.mark.parametrize("is_child_first", [False, True])
async def test_a_missent_child_whose_controller_was_missent_too_is_requested_by_a_pass(
    is_child_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were sent away, to different shards. Only the controller can be requested now."""
    three = make_view(
        dict.fromkeys(("a-1", "b-1", "c-1"), ShardState.READY), {"a": "a-1", "b": "b-1", "c": "c-1"}
    )
    site = name_for(three, "a")
    ring = Ring(three)
    ring.server.own(site, "a-1")
    page = ring.server.control(site, "a-1")
    refs = [
        ref(site),
        ref(page, CONFIGMAPS),
    ]

    async def read(resource: ApiResource, meta: Meta) -> Meta | None:
        found = ring.server.objects if resource == WEBSITES else ring.server.pages_of_sites
        return found.get(meta.name)

    monkeypatch.setattr(ring.server, "read", read)
    async with passing(ring):
        await asyncio.sleep(10)
        ring.server.own(site, "b-1")
        ring.server.control(site, "c-1")
        for each in reversed(refs) if is_child_first else refs:
            ring.missent.add(each)
        await asyncio.sleep(1)
        ring.acknowledge(site)
        await asyncio.sleep(60)
        assert ring.server.asked == [(site, "a-1"), (page, "a-1")]


async def test_a_pass_that_ends_while_missent_objects_are_read_forgets_none_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ring = Ring(TWO)
    ring.server.own(OF_A, "a-1")
    ring.server.control(OF_B, "a-1")  # its controller is gone
    read, read_controller = ring.server.read, ring.server.read_controller

    async def read_slowly(resource: ApiResource, meta: Meta) -> Meta | None:
        await asyncio.sleep(0 if meta.name == OF_A else 10)
        return await read(resource, meta)

    async def read_controller_slowly(controller: ControllerName) -> ControllerSeen:
        await asyncio.sleep(5)
        return await read_controller(controller)

    monkeypatch.setattr(ring.server, "read", read_slowly)
    monkeypatch.setattr(ring.server, "read_controller", read_controller_slowly)
    async with passing(ring):
        await asyncio.sleep(2)
        passed_on_wrongly(ring)
        ring.missent.add(ObjectRef(WEBSITES.group_resource, ObjectKey("ns", "gone")))
        await asyncio.sleep(6)
        assert ring.has_converged()
        await asyncio.sleep(10)
        assert ring.server.asked == [(OF_A, "a-1")]
