"""A fleet whose objects are born with an owner, while replicas and the sharder come and go: nobody works twice, and
what the webhook did not label in time is assigned the ordinary way. On the real control plane: the embedded one asks
nobody.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from devcluster.plane import ControlPlane
from devcluster.real import BinariesMissing
from ringleader.testing.commands import WAIT_MS, FleetSpec
from ringleader.testing.fleet import Fleet, open_fleet
from ringleader.testing.plugin import plane_context
from ringleader.testing.single_task import single_task
from tests.fleet.judging import judge, unattended_s

pytestmark = [
    pytest.mark.real,
    pytest.mark.alone,
    pytest.mark.fleet,
    pytest.mark.asyncio(loop_scope="module"),
]
OBJECTS = 40


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    directory: Path = tmp_path_factory.mktemp("plane")
    try:
        async with single_task(plane_context(directory, is_real=True)) as plane:
            yield plane
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """Three replicas, and one sharder: two could not listen on one address."""
    address = f"127.0.0.1:{free_port()}"
    spec = FleetSpec(
        lease_s=2,
        sharders=1,
        environment={WAIT_MS: "0-200"},
        ring_spec={"assignAtAdmission": True},
        sharder_flags=("--webhook-bind", address, "--webhook-url", f"https://{address}"),
    )
    async with single_task(open_fleet(plane, tmp_path_factory.mktemp("fleet"), spec=spec)) as fleet:
        await fleet.start(replicas=3)
        await fleet.wait_for(lambda: _is_asked(fleet), "the webhook to be asked")
        yield fleet


async def test_objects_are_born_with_an_owner_and_worked_on(fleet: Fleet) -> None:
    await fleet.objects.create_many(OBJECTS, prefix="calm")
    evidence = await judge(fleet, at_least=OBJECTS)
    assert await born_labelled(fleet, "calm") > OBJECTS * 0.8, "a busy machine may answer late"
    assert unattended_s(evidence) < 10


async def test_replicas_that_die_and_join_meanwhile_work_on_nothing_twice(fleet: Fleet) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(create_slowly(fleet, "storm"))
        await asyncio.sleep(1)
        await fleet.kill("replica-1", again=True)
        await fleet.add_member("replica-4")
        await asyncio.sleep(2)
        await fleet.leave("replica-2")
    await judge(fleet, at_least=2 * OBJECTS)
    assert await born_labelled(fleet, "storm") > OBJECTS / 2


async def test_a_sharder_that_dies_stops_no_create_and_the_rest_comes_the_ordinary_way(fleet: Fleet) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(create_slowly(fleet, "orphan"))
        await asyncio.sleep(1)
        await fleet.kill_leader()
    await judge(fleet, at_least=2 * OBJECTS)
    assert 0 < await born_labelled(fleet, "orphan") < OBJECTS


async def _is_asked(fleet: Fleet) -> bool:
    name = f"probe-{fleet.clock.now():.0f}"
    if name not in {ref.name for ref in fleet.objects.refs}:
        await fleet.objects.create(name)
    return await born_labelled(fleet, name) == 1


async def create_slowly(fleet: Fleet, prefix: str) -> None:
    for number in range(OBJECTS):
        await fleet.objects.create(f"{prefix}-{number}")
        await asyncio.sleep(0.1)


async def born_labelled(fleet: Fleet, prefix: str) -> int:
    """How many objects were created with a shard's name in the create's own write."""
    await asyncio.sleep(0.2)  # the audit log is written after the answer
    creates = [write for write in fleet.plane.writes() if write.verb == "create" and write.code == 201]
    ours = [
        w for w in creates if w.resource == fleet.spec.resource.group_resource and w.name.startswith(prefix)
    ]
    return sum(fleet.spec.keys.shard in (write.labels_after or {}) for write in ours)
