"""The former controller's Lease while the API server is slow or refuses: taken, kept, given back. On virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from kubeio.errors import Forbidden, NotFound, ServerFailure
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.protocol import activated_holder
from sharder.membership.activation import FORMER_DURATION, HELD_S, Activation
from sharder.ringspec.spec import LeaseRef
from tests.kubeio.virtual import LoopClock
from tests.sharder.pure.lease_server import LeaseServer

pytestmark = pytest.mark.looptime

FORMER = LeaseRef("shop", "shop-leader")
RING_HOLDS = activated_holder("websites")


@pytest.fixture
def server() -> LeaseServer:
    return LeaseServer()


def hold(server: LeaseServer, holder: str, *, renewed: str = "t0", as_ring: bool = False) -> None:
    """The former Lease as *holder* writes it; empty: it is released. *as_ring*: it is another ring."""
    annotations = {FORMER_DURATION: "15"} if as_ring else {}
    meta = Meta(name=FORMER.name, namespace=FORMER.namespace, uid="uid-former", annotations=annotations)
    server.store(Lease(meta, LeaseSpec(holder, HELD_S if as_ring else 15, "t0", renewed, 3)))


def holder(server: LeaseServer) -> str | None:
    return server.leases[FORMER.name].spec.holder_identity


@asynccontextmanager
async def activation(server: LeaseServer) -> AsyncIterator[Activation]:
    """The activation of a ring, which runs until the block ends."""
    made = Activation(server.client, "websites", FORMER, on_change=lambda: None, clock=LoopClock())
    running = asyncio.create_task(made.run(), name="activation")
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@contextmanager
def slow(server: LeaseServer, request: str) -> Iterator[None]:
    """Requests of this kind that begin within the block take 8 s."""
    server.takes_s[request] = 8
    yield
    del server.takes_s[request]


@pytest.mark.parametrize("request_", ["get", "update", "create"])
async def test_a_request_that_is_under_way_does_not_take_the_lease_after_it_was_given_back(
    server: LeaseServer, request_: str
) -> None:
    if request_ != "create":
        hold(server, "")
    async with activation(server) as former:
        with slow(server, request_):
            await asyncio.sleep(0.1)
            assert server.under_way[request_] == 1
        await former.give_back()
        await asyncio.sleep(30)
        assert holder(server) == ""


async def test_a_lease_that_cannot_be_given_back_is_named_and_given_back_later(server: LeaseServer) -> None:
    hold(server, "")
    async with activation(server) as former:
        await asyncio.sleep(0.1)
        assert holder(server) == RING_HOLDS
        server.refuse["update"] = lambda: ServerFailure("PUT", status=503)
        returned = asyncio.create_task(former.give_back(), name="give back")
        await asyncio.sleep(20)
        assert not returned.done()
        assert "503" in former.problem
        server.refuse.clear()
        await returned
        assert (holder(server), former.problem) == ("", "")


async def test_a_lease_that_is_deleted_under_its_holder_is_created_when_the_holder_must_have_ended(
    server: LeaseServer,
) -> None:
    hold(server, "old-1")
    async with activation(server) as former:
        await asyncio.sleep(8.5)
        hold(server, "old-1", renewed="t1")
        await asyncio.sleep(2)
        del server.leases[FORMER.name]
        await asyncio.sleep(12)
        assert (server.leases, former.is_granted, former.former_holder) == ({}, False, "old-1")
        await asyncio.sleep(2)
        assert (holder(server), former.is_granted) == (RING_HOLDS, True)


async def test_a_lease_that_is_deleted_under_a_ring_that_is_gone_is_created_after_its_former_duration(
    server: LeaseServer,
) -> None:
    """The Lease names a day, and 15 s as what it had before. A ring that is there makes it again within 5 s."""
    hold(server, "ringleader:another", as_ring=True)
    async with activation(server) as former:
        await asyncio.sleep(2)
        del server.leases[FORMER.name]
        await asyncio.sleep(12)
        assert former.former_holder == "ringleader:another"
        await asyncio.sleep(2)
        assert (holder(server), former.is_granted) == (RING_HOLDS, True)


async def test_a_lease_that_is_deleted_while_the_ring_holds_it_is_created_at_once(
    server: LeaseServer,
) -> None:
    hold(server, "old-1")
    async with activation(server) as former:
        await asyncio.sleep(20)
        assert holder(server) == RING_HOLDS
        del server.leases[FORMER.name]
        await asyncio.sleep(5.1)
        assert (holder(server), former.is_granted) == (RING_HOLDS, True)


# ---- out of reach ---------------------------------------------------------------------------------------------


def remove_namespace(server: LeaseServer) -> None:
    """Delete the former controller's namespace: the API server answers a create as it does then."""
    server.leases.clear()
    message = f'namespaces "{FORMER.namespace}" not found'
    server.refuse["create"] = lambda: NotFound("POST", status=404, reason="NotFound", message=message)


async def test_without_the_namespace_of_its_lease_a_ring_is_activated_and_given_up(
    server: LeaseServer,
) -> None:
    remove_namespace(server)
    async with activation(server) as former:
        await asyncio.sleep(0.1)
        assert (former.is_granted, former.former_holder) == (True, "")
        assert former.problem == "namespace shop of the former controller's Lease does not exist"
        await asyncio.wait_for(former.give_back(), 5)


async def test_a_namespace_that_goes_under_the_former_holder_is_no_end_of_its_work(
    server: LeaseServer,
) -> None:
    hold(server, "old-1")
    async with activation(server) as former:
        await asyncio.sleep(2)
        remove_namespace(server)
        await asyncio.sleep(12)
        assert (former.is_granted, former.former_holder) == (False, "old-1")
        await asyncio.sleep(3)
        assert former.is_granted


async def test_a_namespace_that_is_created_again_with_a_holder_takes_the_activation(
    server: LeaseServer,
) -> None:
    remove_namespace(server)
    async with activation(server) as former:
        await asyncio.sleep(0.1)
        server.refuse.clear()
        hold(server, "old-1")
        await asyncio.sleep(5.1)
        assert (former.is_granted, former.former_holder, former.problem) == (False, "old-1", "")


@pytest.mark.parametrize("request_", ["get", "create"])
async def test_a_lease_that_may_not_be_read_or_written_is_named_with_the_answer(
    server: LeaseServer, request_: str
) -> None:
    server.refuse[request_] = lambda: Forbidden("...", status=403, reason="Forbidden", message="by no Role")
    async with activation(server) as former:
        await asyncio.sleep(0.1)
        assert not former.is_granted
        assert former.problem.startswith("the former controller's Lease shop/shop-leader is out of reach: ")
        assert "by no Role" in former.problem
        server.refuse.clear()
        await asyncio.sleep(1.1)
        assert (former.is_granted, former.problem) == (True, "")


async def test_a_404_that_names_no_namespace_activates_nothing(server: LeaseServer) -> None:
    message = "the server could not find the requested resource"
    server.refuse["create"] = lambda: NotFound("POST", status=404, reason="NotFound", message=message)
    async with activation(server) as former:
        await asyncio.sleep(3)
        assert not former.is_granted
        assert message in former.problem
