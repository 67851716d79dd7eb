"""Objects that no patch may change: noticed by what a re-read shows, tried ever more rarely, told. On virtual time."""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from kubeio.errors import Forbidden, Invalid, KubeError, ServerFailure
from kubeio.models import GroupResource, HasMeta, Meta
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from sharder.metrics import SharderMetrics
from sharder.planning.decisions import Assign, Drain, ObjectWrite, ReleaseDrain, Strip, UpdateDrain
from sharder.planning.keys import RingKinds
from sharder.ringspec.spec import Pace
from sharder.unowned.access import ObjectAccess
from sharder.unowned.permissions import TRY_AGAIN_S, MissingPermissions
from sharder.writing.limiter import WriteLimiter
from sharder.writing.object_writer import ObjectWriter, WriteOutcome
from sharder.writing.refusals import FORGOTTEN_S, LONGEST_RETRY_S, MESSAGES, MOST, Refusals
from tests.kubeio.virtual import LoopClock
from tests.sharder.pure.lease_simulation import make_spec
from tests.sharder.pure.views import KEYS, WEBSITES, make_meta

pytestmark = pytest.mark.looptime

SCHEMA = Invalid("PATCH", status=422, reason="Invalid", message='spec.size: Invalid value: "hunter2"')
WEBHOOK = ServerFailure("PATCH", status=500, reason="InternalError", message="failed calling webhook")
POLICY = "websites \"x\" is forbidden: ValidatingAdmissionPolicy 'labels' denied request: labels are frozen"


class Server:
    """Refuses patches with *error*; a GET shows *meta*."""

    def __init__(self, meta: Meta) -> None:
        self.meta = meta
        self.error: KubeError | None = SCHEMA
        self.patches = 0

    async def patch(self, *_: object, **__: object) -> bytes:
        self.patches += 1
        if self.error is not None:
            raise self.error
        return b""

    async def get(self, *_: object, **__: object) -> HasMeta:
        return HasMeta(self.meta)


class Writing:
    def __init__(self, meta: Meta) -> None:
        self.meta = meta
        self.server = Server(meta)
        clock, rng = LoopClock(), random.Random(1)
        spec = make_spec()
        self.reported: list[str] = []
        self.permissions = MissingPermissions(
            now=clock.now, on_change=lambda right, missing: self.reported.append(str(right))
        )
        self.writer = ObjectWriter(
            ObjectAccess(cast(Client, self.server), self.permissions, clock, rng),
            spec,
            kinds=RingKinds(spec, {GroupResource("example.com", "websites"): WEBSITES}),
            refusals=Refusals(
                now=clock.now, rng=rng, on_refused=lambda resource, meta, words: self.reported.append(words)
            ),
            metrics=SharderMetrics(CollectorRegistry()),
            limiter=WriteLimiter(clock=clock, rng=rng),
        )

    async def write(self, decision: ObjectWrite, resource: ApiResource = WEBSITES) -> WriteOutcome:
        return await self.writer.write(resource, self.meta, decision)


@pytest.mark.parametrize(
    ("labels", "decision"),
    [
        ({}, Assign("a-1")),
        ({"shard": "dead"}, Strip()),
        ({"shard": "a-1"}, Drain("a-1", "b-1")),
        ({"shard": "a-1"}, ReleaseDrain("a-1")),
        ({"shard": "a-1", "drain": "b-1"}, UpdateDrain("a-1", "c-1", was="b-1")),
    ],
)
async def test_a_422_is_a_refusal_if_what_the_patch_tests_holds(
    labels: dict[str, str], decision: ObjectWrite
) -> None:
    writing = Writing(make_meta("x", **labels))
    assert await writing.write(decision) is WriteOutcome.REFUSED
    assert writing.reported == [SCHEMA.message]


@pytest.mark.parametrize(
    ("decision", "changes"),
    [
        (Assign("a-1"), {"resource_version": "8"}),
        (Assign("a-1"), {"uid": "another"}),
        (Drain("a-1", "b-1"), {"labels": {KEYS.shard: "b-1"}}),
    ],
)
async def test_a_422_of_an_object_that_changed_is_decided_anew(
    decision: ObjectWrite, changes: dict[str, Any]
) -> None:
    writing = Writing(make_meta("x", shard="a-1"))
    writing.server.meta = msgspec.structs.replace(writing.meta, **changes)
    assert await writing.write(decision) is WriteOutcome.STALE
    assert writing.reported == []


async def test_a_refused_object_is_tried_ever_more_rarely_and_at_last_every_two_minutes() -> None:
    writing = Writing(make_meta("x"))
    for _ in range(3600):
        assert await writing.write(Assign("a-1")) is WriteOutcome.REFUSED
        await asyncio.sleep(1)
    assert 3600 / LONGEST_RETRY_S <= writing.server.patches <= 3600 / LONGEST_RETRY_S + 20
    assert len(writing.reported) == 1, "once"
    writing.server.error = None
    await asyncio.sleep(LONGEST_RETRY_S)
    assert await writing.write(Assign("a-1")) is WriteOutcome.DONE
    assert len(writing.writer.refusals) == 0


async def test_an_object_made_anew_under_the_name_of_a_refused_one_is_tried_at_once() -> None:
    writing = Writing(make_meta("x"))
    for _ in range(300):
        await writing.write(Assign("a-1"))
        await asyncio.sleep(1)
    writing.meta = writing.server.meta = msgspec.structs.replace(writing.meta, uid="another")
    patches = writing.server.patches
    assert await writing.write(Assign("a-1")) is WriteOutcome.REFUSED
    assert writing.server.patches == patches + 1
    assert len(writing.reported) == 2, "it is another object"
    await asyncio.sleep(2)
    writing.server.error = None
    assert await writing.write(Assign("a-1")) is WriteOutcome.DONE


async def test_a_refused_object_that_is_not_tried_again_is_forgotten() -> None:
    """It was deleted, or needs no write any more."""
    kept, gone = Writing(make_meta("x")), make_meta("gone")
    kept.server.error = Forbidden("PATCH", status=403, reason="Forbidden", message=POLICY)
    await kept.writer.write(WEBSITES, gone, Assign("a-1"))
    for _ in range(int(FORGOTTEN_S + LONGEST_RETRY_S)):
        await kept.write(Assign("a-1"))
        await asyncio.sleep(1)
    assert len(kept.writer.refusals) == 1
    assert [message.partition(": ")[0] for message in kept.writer.refusals.messages()] == [
        "websites.example.com/ns/x"
    ]
    assert len(kept.reported) == 2, "each once"


async def test_a_policy_that_denies_one_object_is_no_missing_right_of_its_resource() -> None:
    writing = Writing(make_meta("x"))
    writing.server.error = Forbidden("PATCH", status=403, reason="Forbidden", message=POLICY)
    assert await writing.write(Assign("a-1")) is WriteOutcome.REFUSED
    assert writing.reported == [POLICY]
    writing.server.error = None
    other = Writing(make_meta("y"))
    other.server.error = None
    assert await other.write(Assign("a-1")) is WriteOutcome.DONE


async def test_what_has_a_worker_is_moved_at_the_polite_pace() -> None:
    writing = Writing(make_meta("x"))
    limiter = writing.writer.limiter
    for _ in range(limiter.allowed(Pace.BACKGROUND)):
        await limiter.enter(Pace.BACKGROUND)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await writing.write(Assign("a-1"))
    assert limiter.in_flight < limiter.allowed(Pace.URGENT)


async def test_patches_of_one_resource_that_fail_push_the_limit_of_all_writes_back_once() -> None:
    writing = Writing(make_meta("x"))
    first = writing.writer.limiter.allowed(Pace.URGENT)
    writing.server.error = WEBHOOK
    for _ in range(600):
        await writing.write(Assign("a-1"))
        assert writing.writer.limiter.allowed(Pace.URGENT) >= first // 2
        await asyncio.sleep(0.1)


async def test_a_resource_whose_patches_fail_is_tried_once_in_a_while_and_reported_until_one_succeeds() -> (
    None
):
    writing = Writing(make_meta("x"))
    writing.server.error = WEBHOOK
    for _ in range(40):
        assert await writing.write(Assign("a-1")) in (WriteOutcome.LATER, WriteOutcome.DENIED)
        await asyncio.sleep(0.1)
    tried = writing.server.patches
    for _ in range(600):
        await writing.write(Assign("a-1"))
        await asyncio.sleep(0.1)
    assert 60 / TRY_AGAIN_S - 2 <= writing.server.patches - tried <= 60 / TRY_AGAIN_S + 1
    (reported,) = writing.permissions.failures()
    assert reported.startswith("patch websites.example.com in namespace ns: ")
    assert "failed calling webhook" in reported
    elsewhere = msgspec.structs.replace(writing.meta, namespace="elsewhere")
    writing.server.error = None
    assert await writing.writer.write(WEBSITES, elsewhere, Assign("a-1")) is WriteOutcome.DONE, "at once"
    await asyncio.sleep(TRY_AGAIN_S)
    assert writing.permissions.due("patch")
    assert await writing.write(Assign("a-1")) is WriteOutcome.DONE
    assert writing.reported == ["patch websites.example.com in namespace ns"], "what waits is looked at"
    assert writing.permissions.failures() == []


async def test_a_failure_that_lasts_for_a_moment_closes_nothing() -> None:
    writing = Writing(make_meta("x"))
    writing.server.error = WEBHOOK
    for _ in range(20):
        assert await writing.write(Assign("a-1")) is WriteOutcome.LATER
        await asyncio.sleep(0.1)
    writing.server.error = None
    assert await writing.write(Assign("a-1")) is WriteOutcome.DONE
    assert writing.reported == []


async def test_what_is_remembered_of_refusals_is_bounded() -> None:
    reported: list[str] = []
    refusals = Refusals(
        now=LoopClock().now, rng=random.Random(1), on_refused=lambda _, meta, __: reported.append(meta.name)
    )
    for number in range(MOST + 5):
        refusals.refused(WEBSITES, make_meta(f"site-{number}"), "no")
    assert len(reported) == MOST + 5
    assert len(refusals) == MOST
    assert len(refusals.messages()) == MESSAGES
    assert refusals.messages()[0].startswith(f"websites.example.com/ns/site-{MOST + 4}: ")
