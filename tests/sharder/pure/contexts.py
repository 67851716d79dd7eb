"""Context of the assigner and of passes over a ring of Websites and their ConfigMaps, without a cluster."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import cast

from prometheus_client import CollectorRegistry

from kubeio.models import GroupResource, ObjectRef
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.rest.events import EventRecorder, Regarding
from sharder.metrics import SharderMetrics
from sharder.planning.keys import RingKinds
from sharder.planning.planner import Terms
from sharder.planning.state import RingStates, Views
from sharder.ringspec.scope import EVERYWHERE
from sharder.ringspec.spec import RingResource
from sharder.writing.ring_context import RingContext
from tests.kubeio.virtual import LoopClock
from tests.sharder.pure.lease_simulation import make_spec
from tests.sharder.pure.views import CONFIGMAPS, KEYS, WEBSITES

SITES, PAGES = GroupResource("example.com", "websites"), GroupResource("", "configmaps")
SPEC = make_spec(resources=(RingResource(SITES, (PAGES,)),))
KINDS = RingKinds(SPEC, {SITES: WEBSITES, PAGES: CONFIGMAPS})


class SitesContext:
    """`RingContext` but for what a test is about: membership, objects."""

    subject = RingContext.subject
    plan = RingContext.plan
    may_be_left_behind = RingContext.may_be_left_behind

    def __init__(self, membership: Views) -> None:
        self.states = RingStates(membership, Terms())
        self.spec = SPEC
        self.keys = KEYS
        self.kinds = KINDS
        self.metrics = SharderMetrics(CollectorRegistry())
        self.clock = LoopClock()
        self.rng = random.Random(1)
        self.scope = EVERYWHERE
        self.ring = Regarding("ringleader.dev/v1alpha1", "ControllerRing", SPEC.name)
        self.events = EventRecorder(
            cast(Client, None),  # nothing is written before `run`
            reporter="test",
            instance="test",
            clock=self.clock,
            rng=self.rng,
        )

    def resource(self, work: ObjectRef) -> ApiResource:
        return self.kinds.by_name[work.resource]


@asynccontextmanager
async def running(states: RingStates, work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """*work* on the ring runs beside what keeps its *states*."""
    tasks = [asyncio.create_task(work), asyncio.create_task(states.run())]
    yield
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
