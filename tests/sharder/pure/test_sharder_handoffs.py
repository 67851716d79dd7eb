"""Handoffs that end before anybody looked at them."""

from __future__ import annotations

import random
from typing import cast

import msgspec
import pytest

from kubeio.models import Meta, Object
from kubeio.watches.watch import Changed, Removed
from sharder.moving.handoffs import Handoffs
from sharder.writing.duty import Duty
from tests.sharder.pure.test_sharder_mover import OF_A, OF_B, TWO, Ring, Roster
from tests.sharder.pure.views import KEYS, WEBSITES, make_meta

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
