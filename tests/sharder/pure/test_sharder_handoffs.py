"""Handoffs that end before anybody looked at them, and how many objects were given up."""

from __future__ import annotations

import asyncio
import random
from typing import cast

import msgspec
import pytest

from kubeio.models import Meta, Object, ObjectKey
from kubeio.resource import Resource
from kubeio.watches.watch import Changed, ListDone, ListStarted, Removed
from sharder.moving.handoffs import Handoffs
from sharder.unowned.waiting import WorkKey
from sharder.writing.duty import Duty
from tests.sharder.pure.test_sharder_mover import OF_A, OF_B, TWO, Ring, Roster
from tests.sharder.pure.views import CONFIGMAPS, KEYS, WEBSITES, child_of, make_meta

pytestmark = pytest.mark.looptime


def asked(name: str, *, owner: str, to: str) -> Meta:
    return msgspec.structs.replace(make_meta(name), labels={KEYS.shard: owner, KEYS.drain: to})


async def test_a_forged_request_that_ended_before_it_was_looked_at_is_told() -> None:
    ring = Ring(Roster(TWO, "a-1", "b-1"))
    handoffs = Handoffs(cast(Duty, ring), rng=random.Random(1))
    told: list[str] = []
    handoffs.on_misled = lambda: told.append("misled")
    for name in (OF_A, OF_B):  # the second one is asked for rightly
        seen = Object(asked(name, owner="a-1", to="b-1"), b"{}")
        handoffs.take(WEBSITES, "", Changed(seen, is_new=True))
        handoffs.take(WEBSITES, "", Removed(seen))
    assert told == ["misled"]


# ---- how many were given up -----------------------------------------------------------------------------------


def given_up(ring: Ring) -> Handoffs:
    return Handoffs(cast(Duty, ring), rng=random.Random(1))


def ends(handoffs: Handoffs, meta: Meta, resource: Resource = WEBSITES) -> None:
    handoffs.take(resource, "", Changed(Object(meta, b"{}"), is_new=True))
    handoffs.take(resource, "", Removed(Object(meta, b"{}")))


async def test_what_was_asked_to_be_given_up_counts_when_its_request_is_gone_and_nothing_else_does() -> None:
    handoffs = given_up(Ring(Roster(TWO, "a-1", "b-1")))
    ends(handoffs, asked("one", owner="a-1", to=""))
    ends(handoffs, asked("one", owner="a-1", to="b-1"))
    assert handoffs.given_up == 1, "a request to pass it on is no release"
    page = child_of("one", shard="a-1").meta
    ends(handoffs, msgspec.structs.replace(page, labels={**page.labels, KEYS.drain: ""}), CONFIGMAPS)
    assert handoffs.given_up == 1, "what an object controls goes with it"


async def test_a_request_that_no_watch_showed_counts_once_it_was_written() -> None:
    """Asked for, and answered while the watch was away; one that waits for its turn to be written is not."""
    handoffs = given_up(Ring(Roster(TWO, "a-1", "b-1")))
    answered, unwritten = (WorkKey(WEBSITES.group_resource, ObjectKey("ns", name)) for name in ("one", "two"))
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


async def test_a_request_that_was_answered_before_its_writer_heard_of_it_counts_once() -> None:
    handoffs = given_up(Ring(Roster(TWO, "a-1", "b-1")))
    work = WorkKey(WEBSITES.group_resource, ObjectKey("ns", "one"))
    handoffs.begin(work, "a-1")
    ends(handoffs, asked("one", owner="a-1", to=""))
    handoffs.asked_to_give_up(work)
    handoffs.take(WEBSITES, "", ListStarted())
    handoffs.take(WEBSITES, "", ListDone("7"))
    assert handoffs.given_up == 1
