"""`describe` names the cause in its first line: an object with its owner's answer, a ring with its members.

The causes that a snapshot shows are a table in tests/ringleader/cluster/test_cluster_causes.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from devcluster.faults import Fault
from kubeio.clock import SystemClock, micro_time
from kubeio.errors import InputError
from kubeio.models import Lease, LeaseSpec, Meta, ObjectKey
from kubeio.patch import ApplyPatch, MergePatch
from kubeio.protocol import CONTROLLER_RINGS, RingKeys
from kubeio.resource import CRDS, LEASES
from ringleader.cluster.managed_fields import ManagedFields
from ringleader.cluster.reader import ClusterReader
from ringleader.cluster.snapshot import ELECTION_LEASE
from ringleader.describe import ring as ring_description
from ringleader.describe.object import EndpointOptions, read_found
from ringleader.describe.object_view import ObjectDescription, describe, lines
from ringleader.describe.work import well
from tests.ringleader.cluster.snapshots import lease, site, snapshot
from tests.sharder.io.environment import (
    CONFIGMAPS,
    KEYS,
    RING,
    WEBSITES,
    HandMadeShard,
    SharderEnvironment,
    backdate,
)
from tests.warm_python import warm_python

SITE = "websites.example.com/default/blog"
OWNER, OTHER = "a-00000001", "b-00000001"
BLOG = ObjectKey("default", "blog")
CALLED_ALIKE = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "websites.other.io"},
    "spec": {
        "group": "other.io",
        "scope": "Namespaced",
        "names": {"plural": "websites", "singular": "website", "kind": "Website"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}


async def told(
    env: SharderEnvironment,
    kind: str = "website",
    key: ObjectKey = BLOG,
    *,
    ring: str | None = None,
    url: str | None = None,
) -> ObjectDescription:
    reader = ClusterReader(env.client, timeout_s=10)
    return describe(await read_found(reader, kind, key, ring_name=ring, endpoint=EndpointOptions(url)))


async def first_line(env: SharderEnvironment, kind: str = "website", name: str = "blog") -> str:
    return lines(await told(env, kind, ObjectKey("default", name)), now=SystemClock().wall())[0]


async def leads(env: SharderEnvironment, *, holder: str = "sharder-1", renewed: str = "") -> None:
    """The election Lease of a sharder that leads, without the sharder."""
    now = renewed or micro_time(SystemClock().wall())
    await env.leases.create(Lease(Meta(name=ELECTION_LEASE), LeaseSpec(holder, 15, now, now, 0)))


async def owned(
    env: SharderEnvironment, labels: Mapping[str, str] | None = None, **ring: object
) -> HandMadeShard:
    """A ring with one member, whose object `blog` has its label (or *labels*), and a sharder that leads."""
    await env.ring(**ring)
    await leads(env)
    shard = await env.shard("a", duration_s=15)
    await env.site("blog", labels=dict(labels) if labels is not None else {KEYS.shard: OWNER})
    return shard


async def test_an_object_at_its_place_is_told_to_be_well(env: SharderEnvironment) -> None:
    await owned(env)
    found = await told(env)
    assert not found.cause.is_wrong
    text = "\n".join(lines(found, now=SystemClock().wall()))
    assert text.startswith(f"{SITE} is where it belongs: {OWNER} works on it\n")
    assert "key      example.com_default_blog (group, namespace and name of the object itself)" in text
    assert "of a, 0." in text.partition("arc ")[2].splitlines()[0]
    assert "held by itself, renewed" in text
    assert "working  not asked: --endpoint URL" in text
    assert "sharder-1 leads (Lease default/ringleader-sharder" in text


async def test_a_change_that_its_owner_has_not_observed_is_told(env: SharderEnvironment) -> None:
    await owned(env)
    await observe(env, 1)
    assert "is where it belongs" in await first_line(env)
    newer = MergePatch({"spec": {"html": "newer"}})
    await env.client.patch(WEBSITES, "blog", newer, namespace="default", type=bytes)
    assert f"{SITE} has a change that its owner {OWNER} has not observed" in await first_line(env)
    assert (await told(env)).cause.evidence == ["its generation is 2, observed is 1"]
    await observe(env, 2)
    assert "is where it belongs" in await first_line(env)


async def observe(env: SharderEnvironment, generation: int) -> None:
    patch = MergePatch({"status": {"observedGeneration": generation}})
    await env.client.patch(WEBSITES, "blog", patch, namespace="default", subresource="status", type=bytes)


def test_who_wrote_before_there_was_the_ring_is_no_stranger() -> None:
    """The controller that the fleet took over from stands in managedFields for as long as the object lives."""
    obj = site(snapshot(None, lease(OWNER)), {KEYS.shard: OWNER})
    entry = ManagedFields("old-operator", "status", "2026-11-21T10:59:59Z")
    obj.meta.managed_fields = [entry]
    assert well(obj).text == f"is where it belongs: {OWNER} works on it"
    entry.time = "2026-11-21T11:00:01Z"
    assert well(obj).text.endswith("and old-operator wrote it too")


async def applied(env: SharderEnvironment, *, manager: str) -> None:
    """A status written by server-side apply: the plane in memory notes who did it only then."""
    body = {"apiVersion": "example.com/v1", "kind": "Website", "status": {"observedGeneration": 1}}
    patch = ApplyPatch(body, force=True)
    await env.client.patch(
        WEBSITES, "blog", patch, namespace="default", subresource="status", field_manager=manager, type=bytes
    )


async def test_who_else_writes_an_object_is_told(env: SharderEnvironment) -> None:
    """A replica writes under the name that its Lease says."""
    await owned(env)
    await applied(env, manager="publisher")
    found = await told(env)
    assert found.cause.text == f"is where it belongs: {OWNER} works on it, and publisher wrote it too"
    assert not found.cause.is_wrong
    lease = await env.leases.get(OWNER)
    lease.metadata.annotations[KEYS.field_manager] = "publisher"
    await env.leases.swap(lease)
    assert (await told(env)).cause.text == f"is where it belongs: {OWNER} works on it"


async def test_an_object_of_two_rings_is_told_with_both_owners(env: SharderEnvironment) -> None:
    more = RingKeys("more")
    await owned(env, {KEYS.shard: OWNER, more.shard: "other-00000001"})
    spec = {"leaseNamespace": "default", "resources": [{"group": "example.com", "resource": "websites"}]}
    head = {"apiVersion": "ringleader.dev/v1alpha1", "kind": "ControllerRing", "metadata": {"name": "more"}}
    await env.client.create(CONTROLLER_RINGS, {**head, "spec": spec}, type=bytes)
    assert (await told(env, ring=RING)).cause.text == (
        f"has two owners: {OWNER} in ring {RING}, other-00000001 in ring more"
    )
    error = {"type": "ValueError", "message": "no", "at": ago(5)}
    async with Pages(200, {**KNOWN, "failures": 3, "lastError": error}) as url:
        found = await told(env, ring=RING, url=url)
    assert found.cause.text.startswith("fails: ValueError"), "what keeps the owner from it comes first"


async def test_a_namespace_that_is_not_selected_is_told(env: SharderEnvironment) -> None:
    await owned(env, {}, namespaceSelector={"matchLabels": {"team": "web"}})
    await env.namespace("elsewhere", {"team": "other"})
    await env.site("blog", namespace="elsewhere")
    found = await told(env, key=ObjectKey("elsewhere", "blog"))
    assert found.cause.text == (
        "is not reconciled: the namespaceSelector of ring websites does not select namespace elsewhere"
    )


async def test_a_page_left_behind_by_its_site_is_told(env: SharderEnvironment) -> None:
    await owned(env)
    await env.shard("b", duration_s=15)
    site = (await env.client.get(WEBSITES, "blog", namespace="default", type=dict[str, Any]))["metadata"]
    above = Meta(name="blog", uid=site["uid"])
    await env.make(CONFIGMAPS, "page", labels={KEYS.shard: OTHER}, above=(WEBSITES, above))
    line = await first_line(env, "configmap", "page")
    assert f"is at {OTHER}, its controller {SITE} at {OWNER}" in line


async def test_an_object_that_waits_for_its_finalizers_is_told(env: SharderEnvironment) -> None:
    await owned(env)
    held = MergePatch({"metadata": {"finalizers": ["example.com/hold"]}})
    await env.client.patch(WEBSITES, "blog", held, namespace="default", type=bytes)
    await env.client.delete(WEBSITES, "blog", namespace="default")
    assert "is being deleted and waits for its finalizers (example.com/hold)" in await first_line(env)


async def test_a_kind_of_two_groups_is_the_one_that_a_ring_distributes_or_ambiguous(
    env: SharderEnvironment,
) -> None:
    await owned(env)
    await env.client.create(CRDS, CALLED_ALIKE, type=bytes)
    await asyncio.sleep(0.5)
    assert (await told(env)).object == SITE
    both = [{"group": "example.com", "resource": "websites"}, {"group": "other.io", "resource": "websites"}]
    await env.ring(resources=both)
    with pytest.raises(
        InputError, match=r"is ambiguous: rings distribute websites.*websites.*write one of them"
    ):
        await told(env)
    assert (await told(env, "websites.example.com")).object == SITE


# -- what the owner says itself


class Pages:
    """A replica's port, answering with what a test puts there."""

    def __init__(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        head = (
            f"HTTP/1.1 {status} OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._answer = head.encode() + body
        self.asked: list[str] = []

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode().split()[1])
        writer.write(self._answer)
        await writer.drain()
        writer.close()


def ago(seconds: float) -> str:
    from datetime import timedelta

    return (SystemClock().wall() - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.000Z")


class Ago(float):
    """So many seconds before the test runs, which may be long after this file is read."""


def now_told(page: Any) -> Any:
    """*page* with times in the place of each `Ago`."""
    if isinstance(page, dict):
        return {name: now_told(value) for name, value in page.items()}
    return ago(page) if isinstance(page, Ago) else page


KNOWN: dict[str, Any] = {"shard": OWNER, "cached": {"resourceVersion": "1", "owner": OWNER}, "failures": 0}


@pytest.mark.parametrize(
    ("status", "page", "words", "is_wrong"),
    [
        (200, KNOWN, "is where it belongs", False),
        (
            200,
            {**KNOWN, "runningSince": Ago(120)},
            f"is stuck in its reconcile: {OWNER} has not ended it (for ",
            True,
        ),
        (200, {**KNOWN, "runningSince": Ago(2)}, f"is being worked on by {OWNER}", False),
        (200, {**KNOWN, "queuedSince": Ago(120)}, f"waits for a worker of {OWNER} (for ", True),
        (
            200,
            {
                **KNOWN,
                "failures": 7,
                "lastError": {"type": "ValueError", "message": "no\nhtml", "at": Ago(5)},
            },
            f"fails: ValueError: no html ({OWNER}, 7 times in a row)",
            True,
        ),
        (
            200,
            {**KNOWN, "cached": None},
            f"has not reached its owner: the watch of {OWNER} has never shown it",
            True,
        ),
        (404, {}, f"has not reached its owner: the watch of {OWNER} has never shown it", True),
        (401, {}, "is where it belongs", False),
    ],
)
async def test_what_the_owner_says_is_the_cause(
    env: SharderEnvironment, status: int, page: dict[str, Any], words: str, is_wrong: bool
) -> None:
    await owned(env)
    await backdate(env.client, WEBSITES, "blog")
    pages = Pages(status, now_told(page))
    async with pages as url:
        found = await told(env, url=url)
    assert pages.asked[0] == "/debug/objects/default/blog"
    assert words in lines(found, now=SystemClock().wall())[0]
    assert found.cause.is_wrong is is_wrong
    if status == 401:
        assert "401" in found.working
        assert "port-forward" in found.working


async def test_the_word_of_another_replica_does_not_count(env: SharderEnvironment) -> None:
    """Its queue, its errors, that it never saw the object: they are no answer to what was asked."""
    await owned(env)
    error = {"type": "ValueError", "message": "no", "at": ago(5)}
    async with Pages(200, {**KNOWN, "shard": "c-1", "failures": 3, "lastError": error}) as url:
        found = await told(env, url=url)
    assert found.cause.text == f"is where it belongs: {OWNER} works on it"
    assert found.working == f"the endpoint is c-1's, not {OWNER}'s: forward the port of pod a"


async def test_an_endpoint_that_is_none_is_refused_and_one_that_is_silent_is_told(
    env: SharderEnvironment,
) -> None:
    await owned(env)
    with pytest.raises(InputError, match=r"--endpoint.*write http://127\.0\.0\.1:8081"):
        await told(env, url="ftp://x")
    found = await told(env, url="127.0.0.1:1")
    assert "http://127.0.0.1:1 could not be asked: no answer" in found.working


async def conditioned(env: SharderEnvironment, *conditions: Mapping[str, object]) -> None:
    """What a sharder would say of the ring."""
    dated = [{"lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Told", **each} for each in conditions]
    patch = MergePatch({"status": {"conditions": dated}})
    await env.client.patch(CONTROLLER_RINGS, RING, patch, subresource="status", type=bytes)


# ---- kinds that no shard works, owners that do not watch what they own ------------------------------------------

MAINS = [
    {
        "group": "example.com",
        "resource": "websites",
        "controlledResources": [{"group": "", "resource": "configmaps"}],
    },
    {"group": "", "resource": "secrets"},
]


async def test_a_controlled_kind_that_was_added_meanwhile_asks_for_new_replicas(
    env: SharderEnvironment,
) -> None:
    await env.ring(resources=MAINS)
    await leads(env)
    await env.shard("site", duration_s=15, works="websites.example.com")
    site = await env.site("blog", labels={KEYS.shard: "site-00000001"})
    await env.page(site)
    unowned = (await told(env, "configmap")).cause
    assert unowned.text == "has no owner: site-00000001, which is to have it, does not watch configmaps"
    assert unowned.remedy == "roll the replicas: they learn at their start what the ring controls"
    patch = MergePatch({"metadata": {"labels": {KEYS.shard: "site-00000001"}}})
    await env.client.patch(CONFIGMAPS, "blog", patch, namespace="default", type=bytes)
    owned_ = (await told(env, "configmap")).cause
    assert owned_.text.startswith("is not reconciled: site-00000001 does not watch configmaps")
    assert owned_.remedy == unowned.remedy


# ---- rings ----------------------------------------------------------------------------------------------------


async def described_ring(env: SharderEnvironment) -> tuple[ring_description.RingDescription, str]:
    found, now = await ring_description.read_ring(ClusterReader(env.client, timeout_s=10), RING)
    return found, "\n".join(ring_description.lines(found, now=now, is_wide=False))


async def test_a_ring_is_described_with_members_and_handoffs(env: SharderEnvironment) -> None:
    await owned(env, {KEYS.shard: OWNER, KEYS.drain: OTHER})
    await env.shard("b", duration_s=15)
    found, text = await described_ring(env)
    assert text.startswith(f"controllerring/{RING} is well: 2 members share its objects\n")
    assert (found.is_wrong, [each.shard for each in found.shards]) == (False, [OWNER, OTHER])
    assert "sharder  sharder-1 leads (Lease default/ringleader-sharder" in text
    assert [(each.object, each.owner, each.to) for each in found.handoffs or []] == [(SITE, OWNER, OTHER)]
    assert f"1 in flight; owed by {OWNER} 1" in text


async def test_a_refused_ring_is_described_with_its_problem_and_what_can_be_read(
    env: SharderEnvironment,
) -> None:
    await owned(env, {}, key="Label")
    found, text = await described_ring(env)
    assert found.is_wrong
    assert text.startswith(
        f"controllerring/{RING} waits: the sharder refuses ring {RING}: spec.keyLabel: None is missing"
    )
    assert [each.shard for each in found.shards] == [OWNER]
    assert "no handoff is in flight" in text


async def test_a_silent_shard_is_told_beside_what_else_is_wrong(env: SharderEnvironment) -> None:
    shard = await owned(env, minMembers=3)
    await shard.fall_silent()
    lease = await shard.lease()
    lease.spec.renew_time = "2026-01-01T00:00:00.000000Z"
    await env.leases.swap(lease)
    found, text = await described_ring(env)
    assert [cause.reason for cause in found.causes] == ["NoReplica", "Silent"]
    assert f"also     shard {OWNER} does not renew its Lease: frozen, cut off, or dead" in text


async def test_a_ring_that_is_being_deleted_is_not_called_well(env: SharderEnvironment) -> None:
    await owned(env)
    finalizers = MergePatch({"metadata": {"finalizers": ["ringleader.dev/test"]}})
    await env.client.patch(CONTROLLER_RINGS, RING, finalizers, type=bytes)
    await env.client.delete(CONTROLLER_RINGS, RING)
    found, text = await described_ring(env)
    assert found.releasing
    assert text.startswith(f"controllerring/{RING} is being deleted: its objects are given up\n")
    await env.client.delete(LEASES, ELECTION_LEASE, namespace="default")
    assert "waits: no sharder leads" in (await described_ring(env))[1]


async def test_handoffs_that_may_not_be_read_are_not_called_none(env: SharderEnvironment) -> None:
    await owned(env)
    await env.plane.faults.add(Fault(what="error", code=403, verb="list", resource="websites.example.com"))
    found, text = await described_ring(env)
    assert found.handoffs is None
    assert "unread   handoffs: " in text
    assert text.endswith("\nhandoffs in flight: not read")


# ---- the command ----------------------------------------------------------------------------------------------


async def run(env: SharderEnvironment, *words: str) -> tuple[int, str]:
    """The command as a process of its own."""
    done = await asyncio.to_thread(
        subprocess.run,
        [warm_python(), "-m", "ringleader", "describe", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "KUBECONFIG": str(env.plane.kubeconfig)},
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


async def test_kind_and_name_are_one_word_or_two_and_the_exit_code_says_whether_it_is_well(
    env: SharderEnvironment,
) -> None:
    await owned(env)
    assert await run(env, "website", "blog", "-o", "name") == (0, f"{SITE}\n")
    assert (await run(env, "website/blog"))[1].startswith(f"{SITE} is where it belongs: ")
    assert await run(env, f"ring/{RING}", "-o", "name") == (0, f"controllerring.ringleader.dev/{RING}\n")
    await env.ring(minMembers=3)
    code, out = await run(env, "ring", RING, "-o", "wide")
    assert code == 5
    assert out.startswith(
        f"controllerring/{RING} waits: ring {RING} waits for 3 members (spec.minMembers), 1 live"
    )
    assert "POD" in out
    await env.site("new")
    code, out = await run(env, "website/new", "-o", "yaml")
    assert (code, yaml.safe_load(out)["cause"]["reason"]) == (5, "MinMembers")
