"""What a mover or a pass knows of a ring of Websites and their ConfigMaps, without a cluster."""

from __future__ import annotations

import asyncio
import random
from typing import cast

from prometheus_client import CollectorRegistry

from kubeio.models import GroupResource
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.rest.events import EventRecorder, Regarding
from sharder.metrics import SharderMetrics
from sharder.planning.keys import RingKinds
from sharder.ringspec.scope import EVERYWHERE
from sharder.ringspec.spec import RingResource
from sharder.unowned.pending import ObjectRef
from tests.kubeio.virtual import LoopClock
from tests.sharder.pure.story import make_spec
from tests.sharder.pure.views import CONFIGMAPS, KEYS, WEBSITES

SITES, PAGES = GroupResource("example.com", "websites"), GroupResource("", "configmaps")
SPEC = make_spec(resources=(RingResource(SITES, (PAGES,)),))
KINDS = RingKinds(SPEC, {SITES: WEBSITES, PAGES: CONFIGMAPS})


class Everything:
    """Namespaces of a ring that selects all."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()
        self.synced.set()

    def selects(self, namespace: str) -> bool:
        return True


class SitesContext:
    """`sharder.writing.ring_context.Duty` but for what a test is about: roster, objects, terms."""

    def __init__(self) -> None:
        self.spec = SPEC
        self.keys = KEYS
        self.kinds = KINDS
        self.namespaces = Everything()
        self.metrics = SharderMetrics(CollectorRegistry())
        self.clock = LoopClock()
        self.scope = EVERYWHERE
        self.ring = Regarding("ringleader.dev/v1alpha1", "ControllerRing", SPEC.name)
        self.events = EventRecorder(
            cast(Client, None),  # nothing is written before `run`
            reporter="test",
            instance="test",
            clock=self.clock,
            rng=random.Random(1),
        )

    def resource(self, work: ObjectRef) -> ApiResource:
        return WEBSITES if work.resource == WEBSITES.group_resource else CONFIGMAPS
