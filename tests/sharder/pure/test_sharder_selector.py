"""What the unowned watch leaves out and when that changes: the protocol's 6.2, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import cast
from urllib.parse import quote_plus

import pytest

from sharder.membership.shards import ShardState
from sharder.membership.view import AssignmentHold, WaitReason
from sharder.planning.planner import Terms
from sharder.planning.state import RingStates
from sharder.unowned.reflectors import UnownedReflectors
from sharder.unowned.selector import LONGEST_BYTES, plan_selection, selectors_of
from sharder.unowned.selector_switch import follow_states
from tests.kubeio.virtual import LoopClock
from tests.sharder.pure.contexts import running
from tests.sharder.pure.views import KEYS, Published, make_view

SETTLE_S = 2.0


async def show(membership: Published, *not_dead: str, dead: tuple[str, ...] = ()) -> None:
    states = dict.fromkeys(not_dead, ShardState.READY) | dict.fromkeys(dead, ShardState.DEAD)
    await membership.publish(make_view(states, {}))


class Selected:
    """An unowned watch that notes what it is told to leave out, and when."""

    def __init__(self, began: float) -> None:
        self._began = began
        self.switches: list[tuple[float, set[str]]] = []

        self.listed_again: list[float] = []

    def select(self, not_dead: Iterable[str], dead: Iterable[str] = ()) -> None:
        self.switches.append((round(asyncio.get_running_loop().time() - self._began, 3), set(not_dead)))

    def refresh(self) -> None:
        self.listed_again.append(round(asyncio.get_running_loop().time() - self._began, 3))


def following(states: RingStates, unowned: Selected) -> AbstractAsyncContextManager[None]:
    watch = cast(UnownedReflectors, unowned)
    return running(states, follow_states(states, watch, settle_s=SETTLE_S, clock=LoopClock()))


def test_the_selector_names_every_shard_that_is_not_dead() -> None:
    assert plan_selection(KEYS, ["b-1", "a-1"]).selector == f"{KEYS.shard} notin (a-1,b-1)"
    assert plan_selection(KEYS, []).selector == "", "without names there is no such selector: everything"


def test_a_selector_fits_into_a_request_line_of_eight_kilobytes_with_a_thousand_members() -> None:
    members = [f"{'m' * 54}-{number:08x}" for number in range(1000)]
    planned = plan_selection(KEYS, members, ["dead-1"])
    assert planned.selector == f"!{KEYS.shard}"
    assert planned.orphans == {"dead-1"}
    parts = list(selectors_of(KEYS, members))
    assert max(len(quote_plus(part)) for part in parts) <= LONGEST_BYTES
    named = [name for part in parts for name in part.partition("(")[2].rstrip(")").split(",")]
    assert named == sorted(members), "each one once"


async def followed(
    *happenings: tuple[float, tuple[str, ...], tuple[str, ...]],
) -> list[tuple[float, set[str]]]:
    """The switches of a ring that begins with a, b and c, when at each instant others live or are dead."""
    began = asyncio.get_running_loop().time()
    membership, unowned = (
        Published(make_view(dict.fromkeys(("a", "b", "c"), ShardState.READY), {})),
        Selected(began),
    )
    async with following(RingStates(membership, Terms()), unowned):
        for at, live, dead in happenings:
            await asyncio.sleep(began + at - asyncio.get_running_loop().time())
            await show(membership, *live, dead=dead)
        await asyncio.sleep(60)
    return unowned.switches


@pytest.mark.looptime
async def test_a_death_switches_the_watch_at_once_when_it_was_quiet() -> None:
    switches = await followed((10, ("a", "b"), ("c",)))
    assert switches == [(0, {"a", "b", "c"}), (10, {"a", "b"})]


@pytest.mark.looptime
async def test_deaths_switch_the_watch_once_per_window() -> None:
    switches = await followed((10, ("a", "b"), ("c",)), (10.5, ("a",), ("b", "c")), (11, (), ("a", "b", "c")))
    assert switches == [(0, {"a", "b", "c"}), (10, {"a", "b"}), (12, set())]


@pytest.mark.looptime
async def test_a_join_switches_the_watch_after_a_window() -> None:
    switches = await followed((10, ("a", "b", "c", "d"), ()), (11, ("a", "b", "c", "d", "e"), ()))
    assert switches == [(0, {"a", "b", "c"}), (12, {"a", "b", "c", "d", "e"})]


@pytest.mark.looptime
async def test_the_death_of_a_name_that_never_had_a_lease_selects_its_objects() -> None:
    """With a short selector they are listed; the names that it leaves out are the same."""
    live = ("a", "b", "c")
    switches = await followed((10, live, ("forged",)), (30, live, ()), (50, live, ("forged",)))
    assert switches == [(0, {"a", "b", "c"}), (10, {"a", "b", "c"})]


@pytest.mark.looptime
async def test_a_contested_name_stays_left_out() -> None:
    began = asyncio.get_running_loop().time()
    view = make_view(
        {"a": ShardState.READY, "b": ShardState.CONTESTED, "c": ShardState.MISSING, "d": ShardState.DEAD}, {}
    )
    membership, unowned = Published(view), Selected(began)
    async with following(RingStates(membership, Terms()), unowned):
        await asyncio.sleep(1)
    assert unowned.switches == [(0, {"a", "b", "c"})]


@pytest.mark.looptime
async def test_nothing_is_watched_before_the_leases_were_read() -> None:
    unread = make_view({}, {}, hold=AssignmentHold(WaitReason.NOT_SYNCED))
    membership, unowned = Published(unread), Selected(asyncio.get_running_loop().time())
    async with following(RingStates(membership, Terms()), unowned):
        await asyncio.sleep(5)
        assert unowned.switches == []
        await show(membership, "a")
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        assert unowned.switches == [(5, {"a"})]


@pytest.mark.looptime
async def test_other_namespaces_or_terms_list_everything_again_and_a_granted_permission_does_not() -> None:
    membership = Published(make_view({"a": ShardState.READY}, {}))
    states, unowned = RingStates(membership, Terms()), Selected(asyncio.get_running_loop().time())
    async with following(states, unowned):
        await asyncio.sleep(1)
        states.set_selected({"blue"})
        await asyncio.sleep(1)
        states.set_terms(Terms(paused=True))
        await asyncio.sleep(1)
        states.revise()
        await show(membership, "a")
        await asyncio.sleep(1)
    assert unowned.listed_again == [1, 2]
    assert unowned.switches == [(0, {"a"})]
