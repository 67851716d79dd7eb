"""The guard beside assignment at admission: what the sharder's webhook adds to a create passes, what a create brings
does not. The real sharder answers; below Kubernetes 1.36 the guard refuses, from then on it mends as well.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from benchmarks.measuring.policies import POLICIES, install_guard
from devcluster.real.real_plane import RealPlane
from kubeio.access.cluster import load_cluster
from kubeio.rest.client import Client
from ringleader.testing.client import Doc, IndependentClient, RequestFailedError
from tests.chart.guarded import (
    CONFIGMAPS,
    IS_MENDED,
    KEYS,
    RING_VALUES,
    TURN,
    WEBSITES,
    is_refused,
    kubeconfig_of,
    make_accounts,
    type_warnings,
    website,
)
from tests.sharder.admission.reviews import managed
from tests.sharder.admission.webhook_environment import HOST, Server, WebhookEnvironment, free_port
from tests.sharder.io.environment import wait_until

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

NAMESPACE = "default"
SHARDER = f"system:serviceaccount:{NAMESPACE}:sharder"
"""Whom `install_guard` lets through."""
FORGED = "web-0-aaaaaaaa"
SHARDS = {"web-a-00000001", "web-b-00000001"}
RING: Doc = {"name": KEYS.ring, "spec": {**RING_VALUES, "assignAtAdmission": True}}
_numbers = count()
OWNED: Doc = {"labels": {KEYS.shard: FORGED}}
MANY = {f"{'.'.join(['x' * 60] * 4)}/label-{number}": "" for number in range(3_200)}
"""0.8 MB, with managedFields 1.7 MB: etcd takes 1.5 MiB."""


class Guarded(NamedTuple):
    """A ring whose objects are assigned at admission, and who creates them."""

    env: WebhookEnvironment
    server: Server
    tenant: IndependentClient
    backup: IndependentClient
    is_mended: bool


BRINGS: dict[str, Doc] = {
    "an owner": OWNED,
    "an owner and its first turn": {**OWNED, "annotations": {TURN: "0"}},
    "a turn": {"annotations": {TURN: "0"}},
    "a drain label": {"labels": {KEYS.drain: FORGED}},
    "an owner and an empty list of fields": {**OWNED, "managedFields": [{}]},
    "an owner and a list of other fields": {**OWNED, "managedFields": [managed({"f:spec": {}})]},
    "an owner and a list too long to read": {
        **OWNED,
        "managedFields": [managed({"f:spec": {}}, manager=f"m-{n}", operation="Apply") for n in range(200)],
    },
    "an owner, too large for a list": {"labels": {KEYS.shard: FORGED, **MANY}},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def env(plane: RealPlane) -> AsyncIterator[WebhookEnvironment]:
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client:
        env = WebhookEnvironment(plane, client)
        await env.install()
        yield env


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def clients(plane: RealPlane, admin: IndependentClient) -> AsyncIterator[dict[str, IndependentClient]]:
    await make_accounts(plane, admin)
    async with AsyncExitStack() as stack:
        yield {
            who: await stack.enter_async_context(IndependentClient(await kubeconfig_of(plane, admin, who)))
            for who in ("tenant", "a backup")
        }


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[False, True], ids=["refuses", "mends"])
async def guarded(
    request: pytest.FixtureRequest,
    env: WebhookEnvironment,
    clients: dict[str, IndependentClient],
    admin: IndependentClient,
    helm_binary: Path,
) -> AsyncIterator[Guarded]:
    is_mended: bool = request.param
    if is_mended and not IS_MENDED:
        pytest.skip("MutatingAdmissionPolicy is served from Kubernetes 1.36 on")
    templates = ("labels", "mutating") if is_mended else ("labels",)
    await install_guard(env.client, RING, namespace=NAMESPACE, templates=templates)
    async with env.asked(SHARDER) as server:
        guarded = Guarded(env, server, clients["tenant"], clients["a backup"], is_mended)
        await env.site("probe")
        await wait_until(lambda: in_force(guarded), within_s=40)
        yield guarded
    await env.clear()
    for resource in POLICIES.values() if IS_MENDED else list(POLICIES.values())[:2]:
        for found in await admin.list_all(resource):
            await admin.delete(resource, found["metadata"]["name"])


async def in_force(guarded: Guarded) -> bool:
    """Whether a forged owner is refused in a patch, and, where the guard mends, taken off a create."""
    forged = {"metadata": {"labels": {KEYS.shard: f"forged-{next(_numbers)}"}}}
    if not await is_refused(lambda: guarded.tenant.merge(WEBSITES, "probe", forged, namespace=NAMESPACE)):
        return False
    if not guarded.is_mended:
        return True
    name = f"probe-{next(_numbers)}"
    with suppress(RequestFailedError):  # refused: the other policy alone is in force
        return owner_of(await create(guarded.tenant, name, OWNED)) == ""
    return False


async def create(client: IndependentClient, name: str, meta: Doc) -> Doc:
    return await client.create(WEBSITES, website(name, **meta), namespace=NAMESPACE)


def owner_of(obj: Doc) -> str:
    return str((obj["metadata"].get("labels") or {}).get(KEYS.shard, ""))


async def wait_assigned(guarded: Guarded, name: str) -> None:
    """Until the sharder has given it an owner by the watch."""

    async def is_assigned() -> bool:
        return (await guarded.env.owners()).get(name) in SHARDS

    await wait_until(is_assigned, within_s=20)


@pytest.mark.parametrize("brings", BRINGS, ids=lambda text: text.replace(" ", "_"))
async def test_what_a_create_brings_of_the_rings_keys_is_refused_or_taken_off(
    guarded: Guarded, brings: str
) -> None:
    name = f"forged-{list(BRINGS).index(brings)}"
    if not guarded.is_mended:
        assert await is_refused(lambda: create(guarded.tenant, name, BRINGS[brings]))
        return
    assert owner_of(await create(guarded.tenant, name, BRINGS[brings])) == ""
    await wait_assigned(guarded, name)


async def test_what_the_webhook_adds_passes(guarded: Guarded) -> None:
    for number in range(10):
        made = await create(guarded.tenant, f"site-{number}", {"labels": {"app": "x"}})
        assert owner_of(made) in SHARDS
        assert made["metadata"]["annotations"][TURN] == "0"


async def test_server_side_apply_is_guarded_alike(guarded: Guarded) -> None:
    made = await apply(guarded.tenant, "applied", {"labels": {"app": "x"}})
    assert owner_of(made) in SHARDS
    if guarded.is_mended:
        assert owner_of(await apply(guarded.tenant, "applied-forged", OWNED)) == ""
    else:
        assert await is_refused(lambda: apply(guarded.tenant, "applied-forged", OWNED))


async def apply(client: IndependentClient, name: str, meta: Doc) -> Doc:
    path = WEBSITES.path(namespace=NAMESPACE, name=name)
    query = {"fieldManager": "tenant"}
    body = website(name, **meta)
    return await client.request(
        "PATCH", path, query=query, body=body, content_type="application/apply-patch+yaml"
    )


async def test_an_export_whose_keys_were_taken_out_is_created_and_assigned_by_the_watch(
    guarded: Guarded,
) -> None:
    """Its managedFields still name them."""
    fields: Doc = {"f:metadata": {"f:labels": {f"f:{KEYS.shard}": {}}, "f:annotations": {f"f:{TURN}": {}}}}
    assert owner_of(await create(guarded.tenant, "export", {"managedFields": [managed(fields)]})) == ""
    await wait_assigned(guarded, "export")


async def test_an_object_that_is_too_large_with_its_managed_fields_is_created(guarded: Guarded) -> None:
    """The API server leaves these out, and asks its policies anew."""
    made = await create(guarded.tenant, "large", {"labels": MANY})
    assert "managedFields" not in made["metadata"]


async def test_a_backup_restores_as_on_any_ring(guarded: Guarded) -> None:
    assert owner_of(await create(guarded.backup, "restored", OWNED)) == ("" if guarded.is_mended else FORGED)


async def test_controlled_kinds_are_guarded_as_mains_are(guarded: Guarded) -> None:
    async def forge() -> Doc:
        child: Doc = {"metadata": {"name": "forged", **OWNED}}
        return await guarded.tenant.create(CONFIGMAPS, child, namespace=NAMESPACE)

    assert await is_refused(forge) if not guarded.is_mended else owner_of(await forge()) == ""


async def test_the_server_warns_of_no_type(guarded: Guarded, admin: IndependentClient) -> None:
    assert await type_warnings(admin) == []


async def test_without_the_webhook_forged_creates_are_refused_and_others_are_not(guarded: Guarded) -> None:
    found = await guarded.env.configuration()
    assert found is not None
    config = found["webhooks"][0]["clientConfig"]
    try:
        await guarded.env.edit_configuration(url=f"https://{HOST}:{free_port()}/assign/x")
        assert owner_of(await create(guarded.tenant, "unasked", {})) == ""
        if not guarded.is_mended:
            assert await is_refused(lambda: create(guarded.tenant, "unasked-forged", OWNED))
    finally:
        await guarded.env.edit_configuration(**config)
