"""Kinds that nobody works, owners that do not watch what they own, and objects that do not fit their model."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from datetime import datetime, timedelta

from devcluster.embedded import EmbeddedPlane, Fault
from kubeio.clock import SystemClock
from kubeio.models import HasMeta
from kubeio.resource import EVENTS, ApiResource
from kubeio.rest.events import EventRecorder, Regarding
from ringleader.check.findings import Level
from tests.ringleader.check.environment import (
    CONFIGMAPS,
    KEYS,
    ONE,
    SITES,
    TWO,
    WEBSITES,
    CheckEnvironment,
    found,
    is_well,
    only,
)
from tests.sharder.io.environment import wait_until

SECRETS = ApiResource("", "v1", "secrets", "Secret")
TWO_MAINS = [
    {
        "group": "example.com",
        "resource": "websites",
        "controlledResources": [{"group": "", "resource": "configmaps"}],
    },
    {"group": "", "resource": "secrets"},
]
NOTE = "sites/site-003: Object missing required field `html` - at `$.spec`"


async def test_a_kind_that_no_member_works_is_told_with_what_members_work(env: CheckEnvironment) -> None:
    await env.watch(ONE, "configmaps,websites.example.com")
    await env.watch(TWO, "configmaps,websites.example.com")
    await env.edit_ring(resources=TWO_MAINS)
    await env.tell_status(Ready=("False", "KindUnworked", "no member works secrets: such objects wait"))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}}
    await env.client.create(SECRETS, secret, namespace="sites", type=bytes)
    report = await env.diagnose()
    (kind,) = found(report, "kinds")
    assert kind.level is Level.ERROR
    assert kind.summary == "no member of ring websites works secrets: its 1 objects wait"
    assert kind.evidence[0] == "member one works configmaps, websites.example.com"
    assert kind.remedy.startswith("start replicas of the controller that works it")
    (owner,) = found(report, "owners")
    assert owner.summary.startswith(
        "secret/token -n sites has no owner: no member of ring websites works secrets (for "
    )
    (ring,) = found(report, "rings")
    assert ring.remedy == kind.remedy


async def test_an_object_without_owner_whose_kind_is_worked_waits_for_no_other_kind(
    env: CheckEnvironment,
) -> None:
    await env.watch(ONE, "configmaps,websites.example.com")
    await env.watch(TWO, "configmaps,websites.example.com")
    await env.edit_ring(resources=TWO_MAINS)
    await env.tell_status(Ready=("False", "KindUnworked", "no member works secrets: such objects wait"))
    await env.make_site(100, owner="")
    site, _ = found(await env.diagnose(), "owners")
    assert site.reason == "NotAssigned"


async def test_an_owner_that_does_not_watch_the_kind_is_told_whatever_is_asked_of_it(
    env: CheckEnvironment,
) -> None:
    await env.watch(ONE, "configmaps,websites.example.com")
    await env.watch(TWO, "configmaps,websites.example.com")
    await env.join("sum-00000003", works="secrets")
    await env.label("site-003", {KEYS.shard: "sum-00000003", KEYS.drain: ONE})
    first = only(await env.diagnose(), "kinds")
    assert first.object == "website/site-003 -n sites"
    assert first.summary.startswith(
        "website/site-003 -n sites is not reconciled: sum-00000003 does not watch websites.example.com: the object "
        "waits for the end of that shard"
    )
    assert first.evidence == [
        f"ring websites: 1 of {SITES} websites.example.com name sum-00000003",
        "sum-00000003 works secrets",
    ]
    assert first.remedy.startswith("delete pod sum, or wait for its end")


async def test_a_controlled_kind_that_was_added_meanwhile_asks_for_new_replicas(
    env: CheckEnvironment,
) -> None:
    await env.watch(ONE, "websites.example.com")
    await env.watch(TWO, "websites.example.com")
    await env.label("site-003", {KEYS.shard: None}, resource=CONFIGMAPS)
    report = await env.diagnose()
    kinds = found(report, "kinds")
    assert {each.object.partition("/")[0] for each in kinds} == {"configmap"}
    assert {each.remedy for each in kinds} == {
        "roll the replicas: they learn at their start what the ring controls"
    }
    (owner,) = found(report, "owners")
    assert owner.summary == (
        f"configmap/site-003 -n sites has no owner: {TWO}, which is to have it, does not watch configmaps"
    )
    assert owner.remedy == kinds[0].remedy


class Earlier(SystemClock):
    """The time of a minute ago."""

    def wall(self) -> datetime:
        return super().wall() - timedelta(seconds=60)


async def reported(env: CheckEnvironment, name: str, *, clock: SystemClock | None = None) -> None:
    """A replica tells that the Website *name* does not fit its model."""
    site = (await env.client.get(WEBSITES, name, namespace="sites", type=HasMeta)).metadata
    recorder = EventRecorder(
        env.client,
        reporter="ringleader.dev/websites",
        instance=ONE,
        clock=clock or SystemClock(),
        rng=random.Random(7),
    )
    recorder.record(Regarding.of(WEBSITES, site), reason="Unfit", action="Decode", note=NOTE, type="Warning")
    writing = asyncio.create_task(recorder.run())

    async def is_written() -> bool:
        page = await env.client.list_page(EVENTS, field_selector="reason=Unfit")
        return bool(page.objects)

    await wait_until(is_written)
    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing


async def test_an_object_that_a_replica_reports_as_unfit_is_told_with_the_field(
    env: CheckEnvironment,
) -> None:
    await reported(env, "site-003")
    first = only(await env.diagnose(), "unfit")
    assert first.level is Level.ERROR
    assert first.object == "website/site-003 -n sites"
    assert first.summary == (
        f"website/site-003 -n sites is not reconciled: it does not fit its controller's model: {NOTE}"
    )
    assert first.evidence[0].startswith("Event Unfit of ringleader.dev/websites, ")
    assert first.remedy.startswith("correct the object, or give the model's field a default")


async def test_an_object_that_was_changed_or_is_gone_since_it_was_reported_is_not_told(
    env: CheckEnvironment,
) -> None:
    await reported(env, "site-003", clock=Earlier())
    await env.apply_status("site-003", manager="kubectl-edit", configMap="x")
    assert is_well(await env.diagnose())
    await env.client.delete(WEBSITES, "site-003", namespace="sites")
    await env.client.delete(CONFIGMAPS, "site-003", namespace="sites")
    assert is_well(await env.diagnose())


async def test_events_that_may_not_be_read_leave_the_check_undone_with_the_rule(
    env: CheckEnvironment,
) -> None:
    assert isinstance(env.plane, EmbeddedPlane)
    await env.plane.faults.add(Fault(what="error", code=403, verb="list", resource="events.events.k8s.io"))
    report = await env.diagnose()
    assert report.level is Level.UNCHECKED
    unfit, _ = [each for each in report.findings if each.level is Level.UNCHECKED]
    assert unfit.check == "unfit"
