"""Assignment at admission on a real kube-apiserver: objects are born with an owner, and nothing stops their birth."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from devcluster.real import BinariesMissing, real_plane
from devcluster.real.real_plane import RealPlane
from kubeio.access.cluster import load_cluster
from kubeio.http.tls import load_key_pair
from kubeio.patch import MergePatch
from kubeio.program.certificates import make_authority, make_serving
from kubeio.program.http_server import HttpRequest, HttpServer, Reply
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.rest.client import Client
from ringleader.testing.single_task import single_task
from sharder.admission.certificate_manager import server_context
from sharder.admission.webhook_controller import LANDING_S
from tests.sharder.admission.reviews import answered, review, website
from tests.sharder.admission.webhook_environment import HOST, WebhookEnvironment, free_port
from tests.sharder.io.environment import KEYS, RING, WEBSITES, eventually

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]
SHARDS = {"web-a-00000001", "web-b-00000001"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealPlane]:
    try:
        async with single_task(real_plane(tmp_path_factory.mktemp("plane"), audit=True)) as plane:
            yield plane
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(plane: RealPlane) -> AsyncIterator[Client]:
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client:
        await WebhookEnvironment(plane, client).install()
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def env(plane: RealPlane, client: Client) -> AsyncIterator[WebhookEnvironment]:
    env = WebhookEnvironment(plane, client)
    yield env
    await env.clear()


async def test_an_object_is_created_with_its_owner_and_no_write_follows(env: WebhookEnvironment) -> None:
    async with env.asked():
        born = await env.born(20)
        assert set(born.values()) == SHARDS
        for name in born:
            assert [write.verb for write in await env.writes_to(name)] == ["create"]
        owners = await env.owners()
        assert not [name for name in owners if name.startswith("probe")], "dry runs left nothing"
        assert {name: owners[name] for name in born} == born


async def test_what_is_born_is_where_the_sharder_would_have_put_it(env: WebhookEnvironment) -> None:
    async with env.asked():
        born = await env.born(20)
    for number in range(20):
        await env.client.delete(WEBSITES, f"site-{number}", namespace="default")
    async with env.sharder():
        await env.sites(20)
        await eventually(env.owners, are_all_owned)
        owners = await env.owners()
        assert {name: owners[name] for name in born} == born


async def test_a_controlled_object_is_born_with_its_controllers_owner(env: WebhookEnvironment) -> None:
    async with env.asked():
        await env.born(10)
        pages = {name: await env.page(await env.read(name)) for name in await env.owners()}
        labelled = {
            name: page.labels[KEYS.shard] for name, page in pages.items() if KEYS.shard in page.labels
        }
        assert len(labelled) >= 8
        owners = await env.owners()
        assert labelled == {name: owners[name] for name in labelled}


async def test_a_generated_name_is_assigned_the_ordinary_way(env: WebhookEnvironment) -> None:
    async with env.asked() as server:
        obj = website("", generateName="site-")
        del obj["metadata"]["namespace"]
        await env.client.create(WEBSITES, obj, namespace="default", type=bytes)
        await eventually(env.owners, are_all_owned)
        assert server.count("generated_name") == 1


async def test_namespaces_that_the_ring_does_not_select_are_not_asked_about(env: WebhookEnvironment) -> None:
    await env.namespace("outside", {"tier": "other"})
    await env.label_namespace("default", {"tier": "web"})
    async with env.asked(namespaceSelector={"matchLabels": {"tier": "web"}}) as server:
        assert await env.born(10)
        before = server.count("not_selected")  # asked before the sharder had listed the namespaces
        assert KEYS.shard not in (await env.site("outside", namespace="outside")).labels
        assert server.count("not_selected") == before, "the API server itself does not ask"


async def test_a_standby_answers_as_the_leader_does(env: WebhookEnvironment) -> None:
    async with env.serving("sharder-2", leads=False) as standby, env.asked():
        bundle = await standby.webhook.certificates.wait_bundle(b"")
        born = await env.born(10)
        for name, owner in born.items():
            patch = answered_patch(await standby.ask(review(website(name), namespace="default"), bundle))
            assert f'"{owner}"'.encode() in patch
        assert standby.count("labelled") == len(born)


# -- what goes wrong


async def test_a_webhook_that_is_away_delays_nothing_and_the_ordinary_way_assigns(
    env: WebhookEnvironment,
) -> None:
    async with env.asked():
        await env.edit_configuration(url=f"https://{HOST}:{free_port()}/assign/{RING}")
        meta, took_s = await env.timed_site("site")
        assert KEYS.shard not in meta.labels
        assert took_s < 1.0
        await eventually(env.owners, are_all_owned)


async def test_a_webhook_that_hangs_costs_a_second_and_the_ordinary_way_assigns(
    env: WebhookEnvironment,
) -> None:
    async with env.asked():
        async with hanging() as port:
            await env.edit_configuration(url=f"https://{HOST}:{port}/assign/{RING}")
            meta, took_s = await env.timed_site("site")
        assert KEYS.shard not in meta.labels
        assert 0.9 < took_s < 10
        await eventually(env.owners, are_all_owned)


async def test_a_certificate_that_has_expired_stops_nothing(env: WebhookEnvironment) -> None:
    past = datetime.now(UTC) - timedelta(days=2)
    authority = make_authority("webhook", now=past, lifetime=timedelta(days=9))
    expired = make_serving(authority, names=(HOST,), now=past, lifetime=timedelta(days=1))
    context = server_context()
    load_key_pair(context, expired)

    async def never(request: HttpRequest) -> Reply:
        raise AssertionError("nobody trusts this certificate")

    refusing = HttpServer(HOST, 0, never, tls=context, methods=("POST",), flag="--webhook-bind")
    async with env.asked(), refusing as old:
        bundle = base64.b64encode(authority.certificate).decode()
        await env.edit_configuration(url=f"https://{HOST}:{old.port}/x", caBundle=bundle)
        meta, _ = await env.timed_site("site")
        assert KEYS.shard not in meta.labels
        await eventually(env.owners, are_all_owned)


async def test_a_bundle_that_does_not_fit_stops_nothing(env: WebhookEnvironment) -> None:
    other = make_authority("webhook", now=datetime.now(UTC), lifetime=timedelta(days=9))
    async with env.asked() as server:
        await env.edit_configuration(caBundle=base64.b64encode(other.certificate).decode())
        asked = server.count("labelled")
        meta, _ = await env.timed_site("site")
        assert KEYS.shard not in meta.labels
        assert server.count("labelled") == asked
        await eventually(env.owners, are_all_owned)


async def test_a_name_that_dies_between_the_answer_and_the_birth_is_taken_over(
    env: WebhookEnvironment,
) -> None:
    """A label with a dead name, however late it is stored: the unowned watch shows it."""
    async with env.asked():
        dead = env.shards[0]
        await dead.release()
        await eventually(dead.holder, lambda holder: holder.startswith("sharder:"))
        await env.site("late", labels={KEYS.shard: dead.name})
        await eventually(env.owners, lambda owners: owners["late"] == env.shards[1].name)


# -- when it is not wanted any more


async def test_the_configuration_goes_with_the_flag(env: WebhookEnvironment) -> None:
    async with env.asked():
        await env.ring(assignAtAdmission=False, maxLeaseDurationSeconds=10)
        await eventually(env.is_asked_for, False)
        assert KEYS.shard not in (await env.site("site")).labels
        await eventually(env.owners, are_all_owned)
        assert await env.configuration() is not None, "the next leader has to know of it"
        await eventually(env.configuration, None, within_s=LANDING_S + 10)


async def test_the_configuration_goes_when_the_sharder_that_leads_serves_no_webhook(
    env: WebhookEnvironment,
) -> None:
    async with env.asked():
        pass
    async with env.sharder():
        await eventually(env.is_asked_for, False)


async def test_a_ring_that_is_deleted_is_not_asked_about_from_then_on_and_stays_until_all_has_landed(
    env: WebhookEnvironment,
) -> None:
    async with env.asked():
        await env.client.delete(CONTROLLER_RINGS, RING)
        await eventually(env.is_asked_for, False)
        assert KEYS.shard not in (await env.site("site")).labels
        edited = MergePatch({"spec": {"assignAtAdmission": False}})
        await env.client.patch(CONTROLLER_RINGS, RING, edited, type=bytes)
        for shard in env.shards:
            await shard.release()
        await asyncio.sleep(3)
        assert await env.exists(CONTROLLER_RINGS, RING), "what was answered just before may still be stored"


async def test_a_ring_that_is_gone_takes_its_configuration_along_even_without_a_sharder(
    env: WebhookEnvironment,
) -> None:
    """The garbage collector learns kinds every 30 s, and waits as long for their lists: then it begins anew."""
    async with env.asked():
        assert await env.configuration() is not None
    await env.remove_ring()
    await eventually(env.configuration, None, within_s=70)


# -- messages


def are_all_owned(owners: dict[str, str]) -> bool:
    return bool(owners) and set(owners.values()) <= SHARDS


def answered_patch(response: dict[str, object]) -> bytes:
    return base64.b64decode(answered(json.dumps(response).encode())["patch"])


@asynccontextmanager
async def hanging() -> AsyncIterator[int]:
    """A port that accepts and says nothing."""
    gone = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gone.wait()
        writer.close()

    server = await asyncio.start_server(hold, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        gone.set()
        server.close()
