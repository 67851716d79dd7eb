"""Loops that retry what failed end by one cancellation, also by one that comes while the failure ends an attempt."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from kubeio.errors import Expired, ServerFailure
from kubeio.models import Meta
from kubeio.program.host import Host
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from sharder.admission.metrics import AdmissionMetrics
from sharder.admission.settings import ServiceTarget, WebhookSettings
from sharder.admission.webhook import Webhook
from sharder.live.state import LiveState
from sharder.membership.controller import MembershipController
from sharder.metrics import SharderMetrics
from sharder.rings.controller import RingController
from sharder.rings.store import Ring, RingStore
from sharder.ringspec.scope import EVERYWHERE
from sharder.sharder_context import SharderContext
from sharder.unowned.namespaces import Namespaces
from sharder.unowned.reflector import UnownedReflector
from sharder.writing.limiter import WriteLimiter
from tests.kubeio.virtual import LoopClock
from tests.sharder.pure.assigning import FakeMembership
from tests.sharder.pure.contexts import KINDS, SPEC
from tests.sharder.pure.ring_documents import ring
from tests.sharder.pure.unowned_watches import Watched
from tests.sharder.pure.views import KEYS, WEBSITES, make_view

pytestmark = pytest.mark.looptime
MOMENTS = 12
"""Iterations of the event loop within which an attempt is over."""


class Failure:
    """A component that fails once `comes` is set."""

    def __init__(self) -> None:
        self.comes = asyncio.Event()

    async def run(self) -> None:
        await self.comes.wait()
        raise ServerFailure("LIST websites", status=500)


async def assert_ends(work: Coroutine[Any, Any, None], fail: Callable[[], object], *, moment: int) -> None:
    """*work* ends by a cancellation *moment* iterations after it failed."""
    task = asyncio.create_task(work)
    await asyncio.sleep(1)
    outcome = fail()
    if asyncio.iscoroutine(outcome):
        await outcome
    for _ in range(moment):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=60)
    task.cancel()
    await asyncio.wait({task}, timeout=60)
    assert done, f"goes on after a cancellation {moment} iterations after the failure"


class Served:
    """Discovery of a server that serves everything as Websites."""

    async def resolve(self, _: str) -> object:
        return WEBSITES


def ring_controller() -> RingController:
    clock, rng = LoopClock(), random.Random(1)
    context = SharderContext(
        identity="sharder-1",
        client=cast(Client, None),
        lease_client=cast(Client, None),
        discovery=cast(Discovery, Served()),
        limiter=WriteLimiter(clock=clock, rng=rng),
        metrics=SharderMetrics(CollectorRegistry()),
        clock=clock,
        rng=rng,
        webhook=None,
        live=LiveState(identity="sharder-1", clock=clock),
    )
    return RingController(
        context, Ring(Meta(name="r"), ring()["spec"]), store=cast(RingStore, None), scope=EVERYWHERE
    )


@pytest.mark.parametrize("moment", range(MOMENTS))
async def test_a_ring_that_is_gone_while_its_run_fails_is_not_worked_on(
    moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = Failure()
    monkeypatch.setattr(MembershipController, "run", lambda _: failure.run())
    await assert_ends(ring_controller().run(), failure.comes.set, moment=moment)


@pytest.mark.parametrize("moment", range(MOMENTS))
async def test_an_unowned_watch_that_ends_while_it_fails_does_not_begin_anew(moment: int) -> None:
    watched = Watched()
    reflector = UnownedReflector(
        watched.access,
        (WEBSITES, ""),
        watched.pending,
        label_selector="",
        shard_label=KEYS.shard,
        on_pending=watched.enqueue_name,
        on_listed=lambda: None,
        may_list=lambda: asyncio.sleep(0),
    )

    async def expire() -> None:
        watched.server.refuse = [Expired("WATCH", status=410)]
        watched.server.cut_streams()
        await watched.server.wait_for_request("WATCH")

    await assert_ends(reflector.run(), expire, moment=moment)


@pytest.mark.parametrize("moment", range(MOMENTS))
async def test_a_webhook_that_ends_while_it_fails_serves_no_former_ring(
    moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = Failure()
    monkeypatch.setattr(Namespaces, "run", lambda _: failure.run())
    webhook = Webhook(
        cast(Client, None),
        WebhookSettings(host="127.0.0.1", port=0, target=ServiceTarget("a", "b"), namespace="a"),
        metrics=AdmissionMetrics(CollectorRegistry()),
        host=Host(clock=LoopClock(), rng=random.Random(1)),
    )
    membership = cast(MembershipController, FakeMembership(make_view({}, {})))
    work = webhook.serve(SPEC, KINDS, membership, releasing=False)
    await assert_ends(work, failure.comes.set, moment=moment)
