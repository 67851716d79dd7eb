"""Checks of Leases and rings, each on a live plane that is broken in that way."""

from __future__ import annotations

import asyncio

import pytest

from kubeio.patch import MergePatch
from ringleader.check.findings import Level
from tests.ringleader.check.environment import (
    KEYS,
    ONE,
    RING,
    WEBSITES,
    CheckEnvironment,
    found,
    is_well,
    only,
)


async def test_a_replica_that_renews_and_does_not_observe_its_objects_is_told(env: CheckEnvironment) -> None:
    for index in range(0, 12, 2):
        await spoil(env, index)
    await spoil(env, 1)
    first = only(await env.diagnose(), "silent")
    assert first.object == "website/site-000 -n sites"
    assert first.summary == f"website/site-000 -n sites has a change that its owner {ONE} has not observed"
    assert first.evidence[0].startswith("of 6 of its websites.example.com, 6 have a status behind their spec")


async def test_what_a_ring_said_at_the_first_look_only_is_no_trouble(env: CheckEnvironment) -> None:
    """A sharder writes the status now and then."""
    await env.tell_status(Ready=("False", "Waiting", "for members"))
    looking = asyncio.create_task(env.diagnose(), name="check")
    await asyncio.sleep(0.6)
    await env.tell_status(Ready=("True", "Working", ""))
    assert is_well(await looking)
    await env.tell_status(Ready=("False", "Forbidden", "may not patch websites"))
    assert "may not patch websites" in only(await env.diagnose(), "rings").summary


async def spoil(env: CheckEnvironment, index: int) -> None:
    """An edit that nobody observes; it looks as if it were older than the patience of the check."""
    patch = MergePatch({"spec": {"html": "newer"}})
    await env.client.patch(WEBSITES, f"site-{index:03d}", patch, namespace="sites", type=bytes)


async def test_a_replica_that_gets_on_is_not_idle(env: CheckEnvironment) -> None:
    """A backlog: most is behind, and some of it is done between both looks."""
    for index in range(0, 12, 2):
        await spoil(env, index)

    async def work() -> None:
        await asyncio.sleep(0.6)
        await env.observe("site-010", 2)

    working = asyncio.create_task(work())
    report = await env.diagnose()
    await working
    assert is_well(report)


async def test_a_lease_in_the_wrong_namespace_is_told_with_the_right_one(env: CheckEnvironment) -> None:
    await env.join("three-00000003", namespace="sites")
    first = only(await env.diagnose(), "lease namespaces")
    assert first.level is Level.ERROR
    assert first.summary == (
        "lease/three-00000003 -n sites (member three) does not count for ring websites: its Leases belong into "
        "namespace rings"
    )


@pytest.mark.parametrize(("skew_s", "words"), [(-300.0, "(30.|29.) s behind")])
async def test_a_clock_that_is_off_is_told_with_way_and_seconds(
    env: CheckEnvironment, skew_s: float, words: str
) -> None:
    import re

    await env.join("three-00000003", skew_s=skew_s)
    first = only(await env.diagnose(), "clocks")
    assert first.level is Level.WARNING
    assert re.search(rf"the clock of shard three-00000003 \(member three\) is {words}", first.summary)


async def test_a_name_in_two_rings_is_told(env: CheckEnvironment) -> None:
    await env.make_ring("others", leaseNamespace="sites", resources=[{"resource": "secrets"}])
    await env.join("both-00000005", ring="others", namespace="sites", renewed=False)
    # its double, of this ring: not renewed, so that one name needs one task
    await env.join("both-00000005", namespace="rings")
    (told,) = found(await env.diagnose(), "members")
    assert "are one name in two rings, others and websites" in told.summary


async def test_only_the_ring_that_was_asked_for_is_looked_at(env: CheckEnvironment) -> None:
    await env.make_ring("more", resources=[{"resource": "secrets"}])
    await env.label("site-003", {KEYS.shard: "ghost-00000009"})
    report = await env.diagnose(ring="more")
    assert report.rings == ["more"]
    assert is_well(report)
    assert (await env.diagnose(ring=RING)).level is Level.ERROR
