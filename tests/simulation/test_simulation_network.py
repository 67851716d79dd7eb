"""Requests and watches of the simulation: lost before the store or after it, late, and of a server that lags."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubeio.errors import KubeError, NotFound, Unreachable
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.resource import LEASES
from kubeio.rest.client import Client
from simulation.fleet import Fleet
from simulation.hosts import SimulatedHost
from simulation.network import Rule
from simulation.process import Process
from simulation.scale import LEASE_NAMESPACE, STRANGER, Scale
from simulation.world import World

SCALE = Scale(
    replicas=1,
    sharders=1,
    machines=1,
    servers=1,
    objects=1,
    lease_s=5,
    max_lease_s=30,
    settle_s=1,
    hold=False,
    finalizes=False,
    longest_reconcile_s=0.1,
    timeout_s=20,
    updates_per_s=1,
)


class Place:
    """One process with a client of the simulated servers."""

    def __init__(self) -> None:
        self.world = World(1)
        self.fleet = Fleet(self.world, SCALE)
        self.process = Process(
            self.world, self.fleet.machines[0], "process", pid=1, on_end=lambda process: None
        )
        host = SimulatedHost(self.process, self.fleet.network, user="process")
        self.client = host.client(host.cluster(kubeconfig=None, context=None), user_agent="test")

    def run(self, body: Callable[[Client], Awaitable[object]], *, for_s: float = 60) -> Any:
        """What *body* returns, or the KubeError that it raises."""
        came: list[object] = []

        async def main() -> int:
            try:
                came.append(await body(self.client))
            except KubeError as error:
                came.append(error)
            return 0

        self.process.start(main())
        self.world.run(self.world.now + for_s)
        return came[0]

    def lease_names(self) -> list[str]:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"
        names = [item["metadata"]["name"] for item in self.fleet.store.request("GET", path)["items"]]
        return [name for name in names if name != STRANGER]


@pytest.fixture
def place() -> Place:
    return Place()


async def create(client: Client) -> Lease:
    lease = Lease(Meta(name="made", namespace=LEASE_NAMESPACE), LeaseSpec("made", 5))
    return await client.create(LEASES, lease, namespace=LEASE_NAMESPACE, type=Lease)


async def read(client: Client) -> Lease:
    return await client.get(LEASES, "made", namespace=LEASE_NAMESPACE, type=Lease, any_version=True)


def test_a_request_that_is_lost_is_not_carried_out(place: Place) -> None:
    place.fleet.network.rules.append(Rule("request_lost"))
    assert isinstance(place.run(create), Unreachable)
    assert place.lease_names() == []


def test_a_request_whose_answer_is_lost_is_carried_out(place: Place) -> None:
    place.fleet.network.rules.append(Rule("answer_lost"))
    error = place.run(create)
    assert isinstance(error, Unreachable)
    assert error.maybe_done
    assert place.lease_names() == ["made"]


def test_a_late_request_is_carried_out_after_its_client_gave_up(place: Place) -> None:
    place.fleet.network.rules.append(Rule("request_late", delay_s=200))
    assert isinstance(place.run(create, for_s=31), Unreachable)
    assert place.lease_names() == []
    place.world.run(300)
    assert place.lease_names() == ["made"]


def test_a_late_request_whose_connection_broke_is_carried_out_too(place: Place) -> None:
    place.fleet.network.rules.append(Rule("request_late", delay_s=200, is_cut=True))
    error = place.run(create, for_s=1)
    assert isinstance(error, Unreachable)
    assert error.maybe_done
    assert place.lease_names() == []
    place.world.run(300)
    assert place.lease_names() == ["made"]


def test_a_partition_has_no_answer_before_the_deadline(place: Place) -> None:
    place.fleet.network.partitions.add((place.process.machine.name, "server-0"))
    assert isinstance(place.run(create), Unreachable)
    assert place.lease_names() == []


def test_a_server_that_is_down_refuses_connections(place: Place) -> None:
    place.fleet.servers[0].is_up = False
    error = place.run(create, for_s=1)
    assert isinstance(error, Unreachable)
    assert not error.maybe_done


def test_a_504_may_have_been_carried_out(place: Place) -> None:
    place.fleet.network.rules.append(Rule("server_errors", code=504))
    assert isinstance(place.run(create, for_s=6), KubeError)
    assert place.lease_names() == ["made"]


def test_a_lagging_server_answers_cached_reads_from_the_past(place: Place) -> None:
    async def create_and_read(client: Client) -> Lease:
        await read_or_none(client)  # the watch cache begins
        await create(client)
        return await read(client)

    place.fleet.servers[0].lag_s = 10
    assert isinstance(place.run(create_and_read, for_s=5), NotFound)


async def read_or_none(client: Client) -> Lease | None:
    try:
        return await read(client)
    except NotFound:
        return None


def test_a_consistent_read_never_lags(place: Place) -> None:
    async def create_and_get(client: Client) -> Lease:
        await read_or_none(client)
        await create(client)
        return await client.get(LEASES, "made", namespace=LEASE_NAMESPACE, type=Lease)

    place.fleet.servers[0].lag_s = 10
    assert place.run(create_and_get, for_s=5).metadata.name == "made"


def watch_for(place: Place, *, for_s: float) -> list[bytes]:
    """Lines of a watch of Leases within *for_s*, while one is created."""
    lines: list[bytes] = []

    async def follow(client: Client) -> None:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"
        query = {"watch": "true", "fieldSelector": "metadata.name=made"}
        async with client.stream(path, query=query) as stream:
            await create(client)
            async for line in stream:
                lines.append(line)

    async def main() -> int:
        await follow(place.client)
        return 0

    place.process.start(main())
    place.world.run(place.world.now + for_s)
    return lines


def test_a_watch_shows_what_is_written(place: Place) -> None:
    (line,) = watch_for(place, for_s=1)
    assert b'"ADDED"' in line


def test_events_of_a_lagging_server_come_late(place: Place) -> None:
    place.fleet.servers[0].lag_s = 5
    assert watch_for(place, for_s=4) == []
    place.world.run(20)


def test_a_silent_watch_says_in_the_end_what_it_held_back(place: Place) -> None:
    lines = watch_for(place, for_s=0)
    while not place.fleet.network.streams:
        place.world.run(place.world.now + 0.0001)
    for stream in place.fleet.network.streams:
        stream.held_until = 30
    place.world.run(29)
    assert lines == []
    place.world.run(40)
    assert len(lines) == 1
