"""Events as people see them, written to real servers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from kubeio.clock import SystemClock
from kubeio.errors import ServerFailure
from kubeio.models import Meta
from kubeio.resource import EVENTS, ApiResource
from kubeio.rest.client import Client
from kubeio.rest.events import EventRecorder, Regarding

pytestmark = pytest.mark.asyncio(loop_scope="session")

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")


class ShiftedClock(SystemClock):
    shift_s = 0.0

    def now(self) -> float:
        return super().now() + self.shift_s


@asynccontextmanager
async def recording(
    client: Client, clock: ShiftedClock, *, on_dropped: Callable[[], None] = lambda: None
) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(
        client,
        reporter="ringleader.dev/sharder",
        instance="pod-1",
        on_dropped=on_dropped,
        clock=clock,
        rng=random.Random(1),
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(recorder.run())
        yield recorder
        task.cancel()


def site(namespace: str) -> Regarding:
    return Regarding.of(WEBSITES, Meta(name="site", namespace=namespace, uid="uid-1"))


async def written(client: Client, namespace: str) -> list[dict[str, object]]:
    page = await client.list_page(EVENTS, namespace=namespace)
    return [msgspec.json.decode(obj.raw) for obj in page.objects]


async def test_repetitions_become_one_event_that_counts(admin: Client, namespace: str) -> None:
    clock = ShiftedClock()
    async with recording(admin, clock) as recorder:
        for _ in range(3):
            recorder.record(site(namespace), reason="Drained", action="Drain", note="moved to shard-b")
        recorder.record(site(namespace), reason="Stuck", action="Drain", note="n" * 3000, type="Warning")
        await asyncio.sleep(0.6)
        events = {event["reason"]: event for event in await written(admin, namespace)}
        assert set(events) == {"Drained", "Stuck"}
        drained = events["Drained"]
        assert drained["note"] == "moved to shard-b"
        assert drained["type"] == "Normal"
        assert drained["reportingController"] == "ringleader.dev/sharder"
        assert drained["regarding"] == {
            "apiVersion": "example.com/v1",
            "kind": "Website",
            "name": "site",
            "namespace": namespace,
            "uid": "uid-1",
        }
        assert drained["series"]["count"] == 3  # type: ignore[index]  # a JSON object
        assert len(str(events["Stuck"]["note"])) == 1024

        recorder.record(site(namespace), reason="Drained", action="Drain", note="moved to shard-b")
        await asyncio.sleep(0.3)
        clock.shift_s = 31
        recorder.record(site(namespace), reason="Drained", action="Drain", note="moved to shard-b")
        await asyncio.sleep(0.6)
        events = {event["reason"]: event for event in await written(admin, namespace)}
        assert events["Drained"]["series"]["count"] == 5  # type: ignore[index]  # a JSON object
        assert len(events) == 2

        clock.shift_s = 31 + 400
        recorder.record(site(namespace), reason="Drained", action="Drain", note="moved to shard-b")
        await asyncio.sleep(0.6)
        assert len(await written(admin, namespace)) == 3, "after a long pause it is a new Event"


class Refusing:
    """A server that takes no Events."""

    def __init__(self) -> None:
        self.calls = 0

    async def create(self, *_: object, **__: object) -> bytes:
        self.calls += 1
        raise ServerFailure("create", status=500)


async def test_events_that_cannot_be_written_are_dropped_without_a_wait() -> None:
    refusing, dropped = Refusing(), list[bool]()
    async with recording(
        refusing,  # type: ignore[arg-type]  # it behaves like one
        ShiftedClock(),
        on_dropped=lambda: dropped.append(True),
    ) as recorder:
        for number in range(3000):
            recorder.record(site("default"), reason="R", action="A", note=str(number))
        await asyncio.sleep(0.35)
    assert 1 <= refusing.calls <= 5, "paced"
    assert len(dropped) == 2000 + refusing.calls
