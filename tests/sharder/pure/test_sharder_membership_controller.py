"""What the membership controller asks of the API server, how often, and when it gives up: on virtual time."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from kubeio.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    HistoryWentBack,
    Invalid,
    KubeError,
    NotFound,
    ServerFailure,
    Unreachable,
)
from sharder.errors import FieldProblem
from sharder.membership.controller import MembershipController
from sharder.membership.hash_rings import ResourceRings, RingInputs
from sharder.membership.shards import ShardState
from sharder.ringspec.scope import EVERYWHERE
from tests.kubeio.virtual import LoopClock
from tests.sharder.pure.lease_server import SPEC, LeaseServer
from tests.sharder.pure.views import WEBSITES

pytestmark = pytest.mark.looptime

NAMES = [f"m{n:02}-00000001" for n in range(20)]


@pytest.fixture
def server() -> LeaseServer:
    server = LeaseServer()
    server.join(*NAMES)
    return server


@asynccontextmanager
async def acting(server: LeaseServer) -> AsyncIterator[MembershipController]:
    """A leader's membership controller that has read the Leases, while the shards renew."""
    membership = make_controller(server)
    running = asyncio.create_task(membership.run())
    renewing = asyncio.create_task(renew(server))
    try:
        await asyncio.sleep(6)
        server.requests.clear()
        yield membership
        assert not running.done()
    finally:
        renewing.cancel()
        running.cancel()
        await asyncio.gather(running, renewing, return_exceptions=True)


def make_controller(server: LeaseServer) -> MembershipController:
    membership = MembershipController(
        server.client,
        server.client,
        SPEC,
        [WEBSITES],
        identity="sharder-1",
        scope=EVERYWHERE,
        clock=LoopClock(),
        rng=random.Random(1),
    )
    membership.act(True)
    return membership


async def renew(server: LeaseServer) -> None:
    """Whoever still holds a Lease renews it every third of its duration."""
    while True:
        await asyncio.sleep(5)
        for name, lease in list(server.leases.items()):
            if lease.spec.holder_identity == name:
                server.renew(name)


async def requests_per_minute(server: LeaseServer) -> int:
    """After the first minute, in which everything is tried for the first time."""
    await asyncio.sleep(60)
    server.requests.clear()
    await asyncio.sleep(60)
    return server.requests.total()


def state_of(membership: MembershipController, name: str) -> ShardState:
    return membership.view.shards[name].state


# ---- no loop without a pause ----------------------------------------------------------------------------------------


async def test_at_rest_a_membership_controller_reads_and_does_nothing_else(server: LeaseServer) -> None:
    async with acting(server):
        assert await requests_per_minute(server) <= 30
        assert set(server.requests) == {"list"}


REFUSALS: dict[str, Callable[[], KubeError]] = {
    "404": lambda: NotFound("CREATE", status=404, message='namespaces "ring-system" not found'),
    "409": lambda: AlreadyExists("CREATE", status=409),
    "403": lambda: Forbidden("CREATE", status=403),
    "422": lambda: Invalid("CREATE", status=422, message="denied by a policy"),
    "500": lambda: ServerFailure("CREATE", status=500),
    "gone": lambda: Unreachable("CREATE", "refused", maybe_done=False),
}


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_leases_that_are_gone_and_cannot_be_created_are_asked_for_at_a_pace(
    server: LeaseServer, refusal: str
) -> None:
    async with acting(server):
        server.leases.clear()
        server.version += 1
        server.refuse["create"] = REFUSALS[refusal]
        assert await requests_per_minute(server) <= 20 * 15 * 2


@pytest.mark.parametrize("refusal", ["409", "403", "422", "500"])
async def test_leases_that_cannot_be_taken_are_asked_for_at_a_pace(server: LeaseServer, refusal: str) -> None:
    async with acting(server):
        refused = REFUSALS[refusal]() if refusal != "409" else Conflict("PUT", status=409)
        server.refuse["update"] = lambda: refused
        for name in NAMES:
            server.edit(name, holder_identity="")
        assert await requests_per_minute(server) <= 20 * 15 * 2


async def test_leases_that_cannot_be_read_are_asked_for_at_a_pace(server: LeaseServer) -> None:
    async with acting(server):
        server.refuse = dict.fromkeys(("list", "watch", "get"), REFUSALS["403"])
        assert await requests_per_minute(server) <= 60


async def test_after_one_conflict_the_next_write_follows_within_a_fraction_of_a_second(
    server: LeaseServer,
) -> None:
    async with acting(server) as membership:
        conflicts = iter([Conflict("PUT", status=409)])

        def once() -> KubeError:
            del server.refuse["update"]
            return next(conflicts)

        server.refuse["update"] = once
        server.edit(NAMES[0], holder_identity="")
        await asyncio.sleep(0.5)
        assert membership.view.shards[NAMES[0]].state is ShardState.DEAD


async def test_a_thousand_labels_for_people_leave_the_connections_to_others(server: LeaseServer) -> None:
    async with acting(server) as membership:
        server.join(*(f"x{n:03}-00000001" for n in range(1000)), state="unknown")
        server.edit(NAMES[0], holder_identity="")
        await asyncio.sleep(0.2)
        assert membership.view.shards[NAMES[0]].state is ShardState.DEAD, "a goodbye does not wait for labels"
        for name in NAMES[1:]:
            server.edit(name, holder_identity="")
        await asyncio.sleep(20)
        assert server.most_under_way["update"] == 5
        assert {lease.metadata.labels[SPEC.keys.state] for lease in server.leases.values()} == {
            "ready",
            "dead",
        }


async def test_a_take_does_not_wait_for_its_lease_s_label_for_people(server: LeaseServer) -> None:
    async with acting(server) as membership:
        names = [f"x{n:03}-00000001" for n in range(100)]
        server.takes_s["update"] = 0.5
        server.join(*names, state="unknown")
        await asyncio.sleep(1)
        server.edit(names[-1], holder_identity="")
        await asyncio.sleep(1)
        assert state_of(membership, names[-1]) is ShardState.DEAD, "its label is the last of a hundred"


# ---- names ----------------------------------------------------------------------------------------------------------


async def test_tombstones_are_created_at_a_pace(server: LeaseServer) -> None:
    async with acting(server) as membership:
        for number in range(1000):
            membership.unknown_name_seen(f"forged-{number}")
        await asyncio.sleep(1)
        assert 20 <= server.requests["create"] <= 26
        await asyncio.sleep(30)
        assert server.requests["create"] == 100
        assert membership.deferred == 900


async def test_a_lost_lease_has_its_tombstone_before_forged_names(server: LeaseServer) -> None:
    async with acting(server) as membership:
        for number in range(1000):
            membership.unknown_name_seen(f"forged-{number}")
        await asyncio.sleep(5)
        del server.leases[NAMES[0]]
        server.version += 1
        await asyncio.sleep(4)
        assert NAMES[0] in server.leases


async def test_a_tombstone_under_way_is_waited_for_although_its_ring_goes(server: LeaseServer) -> None:
    async with acting(server) as membership:
        membership.configure(SPEC, [WEBSITES], releasing=True)
        await asyncio.sleep(SPEC.max_lease_duration_s - 1)
        server.takes_s["create"] = 3.0
        membership.unknown_name_seen("forged-1")
        await asyncio.sleep(2)
        assert membership.view.unknown_are_dead
        assert state_of(membership, "forged-1") is ShardState.MISSING
        await asyncio.sleep(2)
        assert state_of(membership, "forged-1") is ShardState.CONTESTED


# ---- dead names -----------------------------------------------------------------------------------------------------


async def test_dead_names_are_looked_for_many_at_a_time(server: LeaseServer) -> None:
    server.join(*(f"x{n:03}-00000001" for n in range(120)))
    async with acting(server):
        for name in list(server.leases):
            if name.startswith("x"):
                server.edit(name, holder_identity="")
        await asyncio.sleep(75)
        assert len(server.selectors) <= 4
        assert sorted(server.leases) == NAMES


async def test_a_dead_name_that_objects_carry_keeps_its_lease_and_others_in_its_batch_lose_theirs(
    server: LeaseServer,
) -> None:
    server.join("kept-00000001", "left-00000001")
    server.labelled.add("kept-00000001")
    async with acting(server):
        for name in ("kept-00000001", "left-00000001"):
            server.edit(name, holder_identity="")
        await asyncio.sleep(70)
        assert sorted(server.leases) == ["kept-00000001", *NAMES]


async def test_no_lease_is_deleted_on_a_list_that_was_not_read_to_its_end(server: LeaseServer) -> None:
    server.join("left-00000001")
    server.page_is_cut = True
    async with acting(server):
        server.edit("left-00000001", holder_identity="")
        await asyncio.sleep(70)
        assert "left-00000001" in server.leases
        server.page_is_cut = False
        await asyncio.sleep(70)
        assert "left-00000001" not in server.leases


# ---- renewals -------------------------------------------------------------------------------------------------------


async def test_a_thousand_renewals_start_no_iteration(server: LeaseServer) -> None:
    async with acting(server) as membership:
        iterations = [0]
        iterate = membership.membership.iterate

        def counted(*, at: float, acting: bool) -> object:
            iterations[0] += 1
            return iterate(at=at, acting=acting)

        membership.membership.iterate = counted  # type: ignore[method-assign,assignment]
        for _ in range(50):
            server.renew(*NAMES)
            await asyncio.sleep(0.2)
        assert iterations[0] <= 6, "one for each read of the Leases, every 2.5 s"


async def test_a_release_and_a_join_take_effect_at_once(server: LeaseServer) -> None:
    async with acting(server) as membership:
        server.edit(NAMES[0], holder_identity="")
        server.join("new-00000001")
        await asyncio.sleep(0.1)
        assert membership.view.shards[NAMES[0]].state is ShardState.DEAD
        assert "new-00000001" in membership.view.shards


async def test_iterations_are_at_most_ten_a_second_however_much_changes(server: LeaseServer) -> None:
    async with acting(server) as membership:
        before = membership.view.version
        for number in range(1000):
            server.edit(NAMES[number % 20], holder_identity="")
            server.edit(NAMES[number % 20], holder_identity=NAMES[number % 20])
            await asyncio.sleep(0.01)
        assert membership.view.version - before <= 130


# ---- history --------------------------------------------------------------------------------------------------------


async def test_a_history_that_went_back_ends_the_work_at_the_next_read(server: LeaseServer) -> None:
    membership = make_controller(server)
    running = asyncio.create_task(membership.run())
    await asyncio.sleep(6)
    server.version = 40
    for name in NAMES:
        server.renew(name)
    await asyncio.sleep(3)
    assert running.done()
    with pytest.raises(ExceptionGroup) as caught:
        await running
    assert caught.group_contains(HistoryWentBack)


async def test_a_read_that_overtakes_another_is_not_taken_for_a_history_that_went_back(
    server: LeaseServer,
) -> None:
    async with acting(server) as membership:
        slow = asyncio.Event()
        pages = server.pages

        async def late(*args: object, **kw: object) -> AsyncIterator[object]:
            async for page in pages(*args, **kw):  # type: ignore[arg-type]
                await slow.wait()
                yield page

        server.pages = late  # type: ignore[method-assign,assignment]
        first = asyncio.create_task(membership.reads.evidence())
        await asyncio.sleep(0.1)
        server.pages = pages  # type: ignore[method-assign]
        server.renew(*NAMES)
        await membership.reads.evidence()
        slow.set()
        assert (await first).held == frozenset(NAMES)


# ---- liveness -------------------------------------------------------------------------------------------------------


async def test_a_membership_controller_whose_reads_stand_still_is_not_alive(server: LeaseServer) -> None:
    async with acting(server) as membership:
        assert membership.reads.why_not_alive() is None
        server.refuse["list"] = REFUSALS["500"]
        await asyncio.sleep(120)
        assert membership.reads.why_not_alive() is None, "an API server that fails is not cured by a restart"
        server.hangs = "list"
        await asyncio.sleep(70)
        assert "ring r" in (membership.reads.why_not_alive() or "")
    assert membership.reads.why_not_alive() is None, "what does not run cannot stand still"


# ---- large rings ----------------------------------------------------------------------------------------------------


@pytest.fixture
def made_later(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], threading.Event]]:
    """A ring of so many members is made once the event is set, on another thread."""
    monkeypatch.setattr("sharder.membership.hash_rings.BUILT_AT_ONCE", 100)
    gates: dict[int, threading.Event] = {}
    make = RingInputs.make
    threads: list[bool] = []

    def noted(wanted: RingInputs) -> ResourceRings | FieldProblem:
        if wanted.members:
            threads.append(threading.current_thread() is threading.main_thread())
        if gate := gates.get(len(wanted.members)):
            gate.wait(10)
        return make(wanted)

    monkeypatch.setattr(RingInputs, "make", noted)
    yield lambda members: gates.setdefault(members, threading.Event())
    assert threads
    assert not any(threads)


async def test_a_large_ring_is_made_while_everything_else_goes_on(
    server: LeaseServer, made_later: Callable[[int], threading.Event]
) -> None:
    gate = made_later(19)
    async with acting(server) as membership:
        await wait_for(lambda: len(membership.view.ring or ()) == 20)
        server.edit(NAMES[0], holder_identity="")
        await asyncio.sleep(5)
        assert membership.view.shards[NAMES[0]].state is ShardState.DEAD
        assert len(membership.view.ring or ()) == 20
        before = membership.view.ring_version
        gate.set()
        await wait_for(lambda: len(membership.view.ring or ()) == 19)
        assert membership.view.ring_version > before, "a pass under the last ring has not converged"


async def test_a_newcomer_changes_the_ring_s_version_once_its_ring_is_made(
    server: LeaseServer, made_later: Callable[[int], threading.Event]
) -> None:
    gate = made_later(21)
    async with acting(server) as membership:
        await wait_for(lambda: len(membership.view.ring or ()) == 20)
        before = membership.view.ring_version
        server.join("m20-00000001")
        await wait_for(lambda: "m20" in membership.view.places)
        await asyncio.sleep(1)
        assert membership.view.ring_version == before, "under the last ring a pass would find nothing"
        gate.set()
        await wait_for(lambda: len(membership.view.ring or ()) == 21)
        assert membership.view.ring_version > before


async def wait_for(holds: Callable[[], bool]) -> None:
    """Virtual time stands still for other threads: give them some of the real one."""
    while not holds():  # noqa: ASYNC110 - a thread of another clock
        await asyncio.sleep(0.1)
