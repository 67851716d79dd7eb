"""Handoffs that end before anybody looked at them, and how many objects were given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import cast

import msgspec
import pytest

from kubeio.models import Meta, Object, ObjectKey, ObjectRef
from kubeio.resource import ApiResource
from kubeio.watches.reflector import Changed, ListDone, ListStarted, Removed, WatchEvent
from sharder.moving.handoffs import RETRY_S, Handoffs
from sharder.moving.missent import MissentObjects
from sharder.ringspec.spec import DrainPolicy
from sharder.writing.object_writer import WriteOutcome
from sharder.writing.ring_context import RingContext
from tests.sharder.pure.assigning import OF_A, OF_B, TWO, FakeMembership, Ring
from tests.sharder.pure.contexts import SitesContext, running
from tests.sharder.pure.lease_simulation import make_spec
from tests.sharder.pure.views import CONFIGMAPS, KEYS, WEBSITES, child_of, make_meta, names_for

pytestmark = pytest.mark.looptime


def asked(name: str, *, owner: str, to: str) -> Meta:
    return msgspec.structs.replace(make_meta(name), labels={KEYS.shard: owner, KEYS.drain: to})


async def test_a_forged_request_that_ended_before_it_was_planned_is_missent() -> None:
    ring = Ring(FakeMembership(TWO, "a-1", "b-1"))
    missent = MissentObjects()
    handoffs = Handoffs(cast(RingContext, ring), missent)
    for name in (OF_A, OF_B):  # the second one is asked for rightly
        seen = Object(asked(name, owner="a-1", to="b-1"), b"{}")
        handoffs.take(WEBSITES, "", Changed(seen, is_new=True))
        handoffs.take(WEBSITES, "", Removed(seen))
    assert [ref.key.name for ref in await missent.get_all()] == [OF_A]


class SlowWrites:
    """The server takes a second for each redirected request, and answers with *outcome*."""

    def __init__(self, outcome: WriteOutcome) -> None:
        self.outcome = outcome
        self.sent: list[str] = []

    async def write(self, resource: ApiResource, meta: Meta, decision: object) -> WriteOutcome:
        self.sent.append(meta.name)
        await asyncio.sleep(1)
        return self.outcome


class SilentWatches:
    """The watches of drain labels list nothing and show nothing: `Handoffs.take` does."""

    async def watch(self, resource: ApiResource, **_: object) -> AsyncIterator[WatchEvent]:
        yield ListStarted()
        yield ListDone("1")
        await asyncio.Event().wait()


class RedirectingContext(SitesContext):
    """What redirecting needs of `RingContext`."""

    def __init__(self, outcome: WriteOutcome) -> None:
        super().__init__(FakeMembership(TWO, "a-1", "b-1"))
        self.access = SilentWatches()
        self.objects = SlowWrites(outcome)


@asynccontextmanager
async def redirecting(outcome: WriteOutcome) -> AsyncIterator[tuple[Handoffs, MissentObjects, SlowWrites]]:
    context, missent = RedirectingContext(outcome), MissentObjects()
    handoffs = Handoffs(cast(RingContext, context), missent)
    async with running(context.states, handoffs.run()):
        await asyncio.sleep(0.1)
        yield handoffs, missent, context.objects


def forged(handoffs: Handoffs, *names: str) -> list[Object]:
    """Watches show requests to pass on to b-1 what belongs to a-1."""
    seen = [Object(asked(name, owner="a-1", to="b-1"), b"{}") for name in names]
    for each in seen:
        handoffs.take(WEBSITES, "", Changed(each, is_new=True))
    return seen


async def missent_within(missent: MissentObjects, seconds: float) -> list[str]:
    async with asyncio.timeout(seconds):
        return [ref.key.name for ref in await missent.get_all()]


async def test_a_forged_request_that_ended_while_another_was_redirected_is_missent() -> None:
    first, second = names_for(TWO, "a", 2)
    async with redirecting(WriteOutcome.DONE) as (handoffs, missent, writes):
        _, ended = forged(handoffs, first, second)
        await asyncio.sleep(0.5)
        handoffs.take(WEBSITES, "", Removed(ended))
        assert await missent_within(missent, 1) == [second]
        await asyncio.sleep(5)
        assert writes.sent == [first]


async def test_a_forged_request_that_ended_before_it_could_be_redirected_is_missent() -> None:
    async with redirecting(WriteOutcome.LATER) as (handoffs, missent, writes):
        (ended,) = forged(handoffs, OF_A)
        await asyncio.sleep(1.5)
        assert writes.sent == [OF_A]
        handoffs.take(WEBSITES, "", Removed(ended))
        assert await missent_within(missent, 1) == [OF_A]
    async with redirecting(WriteOutcome.LATER) as (handoffs, missent, _):
        (ended,) = forged(handoffs, OF_A)
        await asyncio.sleep(0.5)  # the answer is on its way
        handoffs.take(WEBSITES, "", Removed(ended))
        assert await missent_within(missent, 1) == [OF_A]


async def test_a_forged_request_obeyed_before_its_redirect_is_missent_when_the_watch_shows_its_end() -> None:
    """Not before: what the watch shows in flight is not requested."""
    async with redirecting(WriteOutcome.STALE) as (handoffs, missent, _):
        (ended,) = forged(handoffs, OF_A)
        with pytest.raises(TimeoutError):
            await missent_within(missent, 3.5)
        handoffs.take(WEBSITES, "", Removed(ended))
        assert await missent_within(missent, 1) == [OF_A]


async def test_a_request_that_changes_while_it_is_redirected_is_planned_anew_and_then_rests() -> None:
    async with redirecting(WriteOutcome.DONE) as (handoffs, _, writes):
        forged(handoffs, OF_A)
        await asyncio.sleep(0.5)
        forged(handoffs, OF_A)
        await asyncio.sleep(10)
        assert writes.sent == [OF_A, OF_A]


# ---- how many were given up -----------------------------------------------------------------------------------


def given_up(ring: Ring) -> Handoffs:
    return Handoffs(cast(RingContext, ring), MissentObjects())


def ends(handoffs: Handoffs, meta: Meta, resource: ApiResource = WEBSITES) -> None:
    handoffs.take(resource, "", Changed(Object(meta, b"{}"), is_new=True))
    handoffs.take(resource, "", Removed(Object(meta, b"{}")))


async def test_what_was_asked_to_be_given_up_counts_when_its_request_is_gone_and_nothing_else_does() -> None:
    handoffs = given_up(Ring(FakeMembership(TWO, "a-1", "b-1")))
    ends(handoffs, asked("one", owner="a-1", to=""))
    ends(handoffs, asked("one", owner="a-1", to="b-1"))
    assert handoffs.given_up == 1, "a request to pass it on is no release"
    page = child_of("one", shard="a-1").meta
    ends(handoffs, msgspec.structs.replace(page, labels={**page.labels, KEYS.drain: ""}), CONFIGMAPS)
    assert handoffs.given_up == 1, "what an object controls goes with it"


async def test_a_request_that_no_watch_showed_counts_once_it_was_written() -> None:
    """Asked for, and answered while the watch was away; one that waits for its turn to be written is not."""
    handoffs = given_up(Ring(FakeMembership(TWO, "a-1", "b-1")))
    answered, unwritten = (
        ObjectRef(WEBSITES.group_resource, ObjectKey("ns", name)) for name in ("one", "two")
    )
    for work in (answered, unwritten):
        handoffs.begin(work, "a-1")
    handoffs.asked_to_give_up(answered)
    await asyncio.sleep(1)
    handoffs.take(WEBSITES, "", ListStarted())
    handoffs.take(WEBSITES, "", ListDone("7"))
    assert handoffs.given_up == 1
    handoffs.asked_to_give_up(unwritten)
    ends(handoffs, asked("two", owner="a-1", to=""))
    assert handoffs.given_up == 2


async def test_a_request_that_was_answered_before_its_write_counts_once() -> None:
    handoffs = given_up(Ring(FakeMembership(TWO, "a-1", "b-1")))
    work = ObjectRef(WEBSITES.group_resource, ObjectKey("ns", "one"))
    handoffs.begin(work, "a-1")
    ends(handoffs, asked("one", owner="a-1", to=""))
    handoffs.asked_to_give_up(work)
    handoffs.take(WEBSITES, "", ListStarted())
    handoffs.take(WEBSITES, "", ListDone("7"))
    assert handoffs.given_up == 1


# ---- who is forced ------------------------------------------------------------------------------------------------


class Forcing(FakeMembership):
    """Notes whose Lease is to be taken, and when."""

    def __init__(self) -> None:
        super().__init__(TWO, "a-1", "b-1")
        self.forced: list[tuple[str, float]] = []
        self.is_held = True

    def force(self, name: str) -> bool:
        if self.is_held:
            self.forced.append((name, asyncio.get_running_loop().time()))
        return self.is_held


@asynccontextmanager
async def reporting(membership: Forcing) -> AsyncIterator[Handoffs]:
    ring = Ring(membership)
    ring.spec = make_spec(drain_policy=DrainPolicy.FORCE, drain_timeout_s=60.0)
    handoffs = Handoffs(cast(RingContext, ring), MissentObjects())
    running = asyncio.create_task(handoffs.report())
    yield handoffs
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


def asks(handoffs: Handoffs, name: str) -> None:
    seen = Object(asked(name, owner="a-1", to="b-1"), b"{}")
    handoffs.take(WEBSITES, "", Changed(seen, is_new=True))


async def test_an_owner_that_answers_is_not_forced_for_one_object_that_it_keeps() -> None:
    membership = Forcing()
    async with reporting(membership) as handoffs:
        asks(handoffs, "kept")
        for number in range(20):
            asks(handoffs, f"other-{number}")
            await asyncio.sleep(20)
            ends(handoffs, asked(f"other-{number}", owner="a-1", to="b-1"))
        assert membership.forced == []
        answered_at = asyncio.get_running_loop().time()
        await asyncio.sleep(59)
        assert membership.forced == []
        await asyncio.sleep(2)
        assert [name for name, _ in membership.forced] == ["a-1"]
        assert membership.forced[0][1] == pytest.approx(answered_at + 60, abs=0.5)


async def test_an_owner_that_answers_nothing_for_the_timeout_is_forced_once() -> None:
    membership = Forcing()
    async with reporting(membership) as handoffs:
        began_at = asyncio.get_running_loop().time()
        asks(handoffs, "one")
        asks(handoffs, "two")
        await asyncio.sleep(300)
        assert [name for name, _ in membership.forced] == ["a-1"]
        assert membership.forced[0][1] == pytest.approx(began_at + 60, abs=0.5)


async def test_an_owner_whose_lease_is_not_held_at_the_timeout_is_forced_when_its_next_life_holds_it() -> (
    None
):
    membership = Forcing()
    membership.is_held = False
    async with reporting(membership) as handoffs:
        asks(handoffs, "one")
        await asyncio.sleep(100)
        membership.is_held = True
        held_at = asyncio.get_running_loop().time()
        await asyncio.sleep(100)
        assert [name for name, _ in membership.forced] == ["a-1"]
        assert membership.forced[0][1] <= held_at + RETRY_S


async def test_drain_labels_that_a_sharder_would_not_write_take_little_budget() -> None:
    handoffs = given_up(Ring(FakeMembership(TWO, "a-1", "b-1")))
    limit = handoffs.budget.max_per_owner
    for number in range(1000):
        name = f"site-{number}"
        assert TWO.ring is not None
        member = TWO.ring.owner(f"example.com_ns_{name}")
        meta = asked(name, owner=f"{member}-1", to="stranger")
        handoffs.take(WEBSITES, "", Changed(Object(meta, b"{}"), is_new=True))
    assert handoffs.budget.available("a-1", at=asyncio.get_running_loop().time()) >= 0.8 * limit
