"""The audit: evenly paced, to the last object, one page at a time (the protocol's 6.8). On virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from kubeio.errors import Expired, Forbidden
from kubeio.models import GroupResource, Meta, Object, ObjectRef
from kubeio.resource import ApiResource
from kubeio.rest.answers import Page
from sharder.membership.shards import ShardState
from sharder.metrics import SharderMetrics
from sharder.moving.audit import PAGE, Audit, AuditPace
from sharder.moving.scan import Scan
from sharder.planning.keys import ControllerName, RingKinds
from sharder.planning.planner import ControllerSeen
from sharder.writing.assignment_queue import AssignmentQueue
from sharder.writing.ring_context import RingContext
from tests.sharder.pure.contexts import SitesContext, running
from tests.sharder.pure.lease_simulation import make_spec
from tests.sharder.pure.views import WEBSITES, Published, make_meta, make_view, name_for

pytestmark = pytest.mark.looptime

INTERVAL_S = 3600.0
SPEC = make_spec(audit_interval_s=INTERVAL_S)
VIEW = make_view({"a-1": ShardState.READY, "b-1": ShardState.READY}, {"a": "a-1", "b": "b-1"})
OF_A, OF_B = name_for(VIEW, "a"), name_for(VIEW, "b")


class Server:
    """A list in the order of names. Tokens die when the test says so, with or without one to go on."""

    def __init__(self) -> None:
        self.objects: dict[str, Meta] = {}
        self.sent: list[tuple[float, list[str]]] = []
        self.reads: list[str] = []
        self.dying: set[str] = set()
        self.gives_another = True
        self.forbidden = False

    def put(self, name: str, shard: str | None, **more: Any) -> None:
        self.objects[name] = make_meta(name, shard=shard, **more)

    async def list_page(self, resource: ApiResource, *, limit: int, continue_: str = "", **_: object) -> Page:
        if self.forbidden:
            raise Forbidden("LIST", status=403, reason="Forbidden", message="no")
        if continue_ in self.dying:
            self.dying.discard(continue_)
            error = Expired("LIST", status=410, reason="Expired", message="too old")
            error.continue_ = f"{continue_}'" if self.gives_another else ""
            raise error
        after = continue_.rstrip("'")
        names = [name for name in sorted(self.objects) if name > after]
        here, left = names[:limit], len(names[limit:])
        if limit > 1:
            self.sent.append((asyncio.get_running_loop().time(), here))
        metas = [self.objects[name] for name in here]
        return Page([Object(meta, b"{}") for meta in metas], "1", here[-1] if left else "", left or None)

    async def read(self, resource: ApiResource, meta: Meta) -> Meta | None:
        self.reads.append(meta.name)
        return self.objects.get(meta.name)

    async def read_controller(self, controller: ControllerName) -> ControllerSeen:
        raise AssertionError("no object here is controlled")


class Passes:
    """The part of scan and queue that an audit needs."""

    def __init__(self) -> None:
        self.is_converged = True
        self.known: set[str] = set()
        self.brought: list[str] = []
        self.nudges = 0

    def knows(self, work: ObjectRef) -> bool:
        return work.key.name in self.known

    def enqueue_unshown(self, work: ObjectRef, meta: Meta) -> bool:
        self.brought.append(meta.name)
        return work.key.name not in self.known

    def request_pass(self) -> None:
        self.nudges += 1


class Ring(SitesContext):
    """What an audit knows of its ring."""

    def __init__(self) -> None:
        self.membership = Published(VIEW)
        super().__init__(self.membership)
        self.spec = SPEC
        self.kinds = RingKinds(SPEC, {GroupResource("example.com", "websites"): WEBSITES})
        self.server = self.client = self.objects = Server()
        self.registry = CollectorRegistry()
        self.metrics = SharderMetrics(self.registry)
        self.passes = Passes()
        self.audit = Audit(
            cast(RingContext, self),
            cast(Scan, self.passes),
            cast(AssignmentQueue, self.passes),
        )

    def found(self, what: str) -> float:
        return (
            self.registry.get_sample_value("ringleader_audit_found_total", {"ring": "r", "what": what}) or 0
        )

    def fill(self, count: int) -> None:
        for number in range(count):
            name = f"site-{number:05}"
            member = VIEW.ring.owner(f"example.com_ns_{name}") if VIEW.ring else ""
            self.server.put(name, f"{member}-1")


@asynccontextmanager
async def auditing(ring: Ring) -> AsyncIterator[None]:
    async with running(ring.states, ring.audit.run()):
        yield


def test_pages_are_due_by_the_number_of_objects_and_never_faster_than_bearable() -> None:
    pace = AuditPace(interval_s=100, objects=1000, began_at=0)
    assert pace.pause_s(500, now=1) == pytest.approx(49)
    assert pace.pause_s(250, now=60) == pytest.approx(15)
    assert pace.pause_s(250, now=130) == pytest.approx(0.2), "late: it catches up, and breathes"
    assert pace.rest_s(now=99) == pytest.approx(1)


async def test_a_pass_is_spread_evenly_over_its_interval_and_begins_again() -> None:
    ring = Ring()
    ring.fill(4 * PAGE)
    async with auditing(ring):
        await asyncio.sleep(INTERVAL_S - 1)
        times = [at for at, _ in ring.server.sent]
        assert [b - a for a, b in itertools.pairwise(times)] == pytest.approx([INTERVAL_S / 4] * 3)
        await asyncio.sleep(INTERVAL_S)
        assert len(ring.server.sent) == 8
        assert ring.server.reads == [], "what is at its place costs no read"


@pytest.mark.parametrize("gives_another", [True, False])
async def test_a_token_that_dies_of_age_loses_nothing_of_the_tail(gives_another: bool) -> None:
    ring = Ring()
    ring.fill(4 * PAGE)
    ring.server.gives_another = gives_another
    names = sorted(ring.server.objects)
    ring.server.dying = {names[PAGE - 1], names[3 * PAGE - 1]}
    ring.server.put(names[-1], None)
    async with auditing(ring):
        await asyncio.sleep(INTERVAL_S + 60)
        assert ring.passes.brought[:1] == [names[-1]]
        looked_at = ring.registry.get_sample_value("ringleader_audited_objects_total", {"ring": "r"})
        assert looked_at is not None
        assert looked_at - 4 * PAGE <= PAGE, "nothing is looked at twice in a pass"


async def test_what_no_watch_showed_is_brought_and_counted_by_what_it_is() -> None:
    ring = Ring()
    ring.server.put("unowned", None)
    ring.server.put(OF_A, "a-1")
    ring.server.put("orphan", "Not.A.Name")
    ring.server.put("stranger", "stranger-1")
    async with auditing(ring):
        await asyncio.sleep(60)
        assert sorted(ring.passes.brought) == ["orphan", "stranger", "unowned"]
        assert [ring.found(what) for what in ("unowned", "dead_owner", "unknown_owner")] == [1, 1, 1]
        assert ring.passes.nudges == 0


async def test_a_drain_label_hides_no_unknown_owner() -> None:
    """Handoffs wait for an owner's answer, and no short selector shows the object to the assigner."""
    ring = Ring()
    ring.server.put("stranger", "stranger-1", drain="b-1")
    async with auditing(ring):
        await asyncio.sleep(60)
        assert ring.passes.brought == ["stranger"]
        assert ring.found("unknown_owner") == 1


async def test_what_a_watch_shows_a_moment_later_is_no_finding() -> None:
    ring = Ring()
    ring.server.put("new", None)
    ring.server.put("known", None)
    ring.passes.known = {"known"}
    async with auditing(ring):
        await asyncio.sleep(0.5)
        ring.server.put("new", f"{VIEW.ring.owner('example.com_ns_new') if VIEW.ring else ''}-1")
        await asyncio.sleep(60)
        assert ring.passes.brought == []
        assert ring.found("unowned") == 0


async def test_an_object_at_the_wrong_place_starts_a_pass_if_none_is_at_work_on_it() -> None:
    ring = Ring()
    ring.server.put(OF_B, "a-1")
    ring.passes.is_converged = False
    async with auditing(ring):
        await asyncio.sleep(60)
        assert ring.passes.nudges == 0
        ring.passes.is_converged = True
        await asyncio.sleep(INTERVAL_S)
        assert ring.passes.nudges == 1
        assert ring.found("misplaced") == 1


async def test_a_list_that_is_refused_is_tried_again_in_the_next_pass() -> None:
    ring = Ring()
    ring.server.put("unowned", None)
    ring.server.forbidden = True
    async with auditing(ring):
        await asyncio.sleep(60)
        ring.server.forbidden = False
        await asyncio.sleep(INTERVAL_S + 60)
        assert ring.passes.brought[:1] == ["unowned"]


def test_a_410_carries_the_token_that_goes_on() -> None:
    from kubeio.http.messages import Answer
    from kubeio.rest.answers import error_of

    body = {
        "kind": "Status",
        "code": 410,
        "reason": "Expired",
        "message": "old",
        "metadata": {"continue": "t"},
    }
    answer = Answer(410, [], msgspec.json.encode(body))
    error = error_of("LIST", answer, now=datetime(2026, 1, 1, tzinfo=UTC))
    assert isinstance(error, Expired)
    assert error.continue_ == "t"
