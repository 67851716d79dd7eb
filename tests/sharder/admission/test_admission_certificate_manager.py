"""The Secret that all sharders share, on an API server in memory, and the certificates on real sockets."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from prometheus_client import CollectorRegistry

from devcluster.embedded import EmbeddedPlane
from devcluster.faults import Fault
from kubeio.clock import SystemClock
from kubeio.errors import KubeError
from kubeio.patch import MergePatch
from kubeio.program.http_server import HttpRequest, HttpServer, Reply
from kubeio.rest.client import Client
from sharder.admission.certificate_manager import SECRETS, CertificateManager, server_context
from sharder.admission.metrics import AdmissionMetrics
from sharder.admission.settings import Lifetimes

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOST = "127.0.0.1"


class Sharder:
    """One sharder's keys, and a server that uses them."""

    def __init__(self, client: Client, namespace: str, *, lifetimes: Lifetimes | None = None) -> None:
        self.tls = server_context()
        self.registry = CollectorRegistry()
        self.certificates = CertificateManager(
            client,
            namespace=namespace,
            name="keys",
            names=(HOST,),
            lifetimes=lifetimes or Lifetimes(),
            clock=SystemClock(),
            tls=self.tls,
            expires_at=AdmissionMetrics(self.registry).certificate_expires_at,
        )
        self.port = 0

    @asynccontextmanager
    async def running(self, *, leads: bool) -> AsyncIterator[Sharder]:
        async def answer(request: HttpRequest) -> Reply:
            return Reply(200, b"")

        async with (
            HttpServer(HOST, 0, answer, tls=self.tls, methods=("POST",), flag="--webhook-bind") as server,
            asyncio.TaskGroup() as tasks,
        ):
            self.port = server.port
            if leads:
                self.certificates.lead()
            running = tasks.create_task(self.certificates.run())
            yield self
            running.cancel()

    async def bundle(self, other_than: bytes = b"") -> bytes:
        return await asyncio.wait_for(self.certificates.wait_bundle(other_than), 10)

    async def is_trusted(self, bundle: bytes) -> bool:
        """Whether somebody who trusts *bundle* alone would talk to this server."""
        context = ssl.create_default_context(cadata=bundle.decode())
        try:
            _, writer = await asyncio.open_connection(HOST, self.port, ssl=context)
        except (ssl.SSLError, ConnectionError):
            return False
        writer.close()
        with suppress(ssl.SSLError, ConnectionError):
            await writer.wait_closed()
        return True


async def secret(client: Client, namespace: str) -> dict[str, bytes]:
    found = await client.get(SECRETS, "keys", namespace=namespace, type=dict[str, object])
    data = found.get("data", {})
    assert isinstance(data, dict)
    return {name: base64.b64decode(value) for name, value in data.items()}


async def test_the_leader_makes_keys_and_a_standby_serves_with_them(client: Client, namespace: str) -> None:
    standby, leader = Sharder(client, namespace), Sharder(client, namespace)
    async with standby.running(leads=False), leader.running(leads=True):
        bundle = await leader.bundle()
        assert await leader.is_trusted(bundle)
        assert await standby.bundle() == bundle
        assert await standby.is_trusted(bundle)
        until = leader.registry.get_sample_value("ringleader_webhook_certificate_expiry_timestamp_seconds")
        assert until == pytest.approx(SystemClock().wall().timestamp() + 60 * 86_400, abs=100)


async def test_a_standby_alone_writes_nothing_and_serves_nothing(client: Client, namespace: str) -> None:
    standby = Sharder(client, namespace)
    async with standby.running(leads=False):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(standby.certificates.wait_bundle(b""), 0.5)
        with pytest.raises(KubeError):
            await secret(client, namespace)


async def test_of_two_leaders_one_makes_the_authority(client: Client, namespace: str) -> None:
    first, second = Sharder(client, namespace), Sharder(client, namespace)
    async with first.running(leads=True), second.running(leads=True):
        bundle = await first.bundle()
        assert await second.bundle() == bundle
        assert (await secret(client, namespace))["ca.crt"] == bundle
        assert await second.is_trusted(bundle)


async def test_of_two_leaders_one_fills_a_secret_that_was_made_beforehand(
    client: Client, namespace: str, embedded: EmbeddedPlane
) -> None:
    empty = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": namespace}}
    await client.create(SECRETS, empty, namespace=namespace, type=bytes)
    first, second = Sharder(client, namespace), Sharder(client, namespace)
    slow = Fault(what="latency", verb="patch", resource="secrets", delay_s=0.5)  # both have read by then
    fault = await embedded.faults.add(slow)
    async with first.running(leads=True), second.running(leads=True):
        assert await first.bundle() == await second.bundle()
    await embedded.faults.clear(fault)


async def test_an_empty_secret_that_was_made_beforehand_is_filled_and_keeps_its_labels(
    client: Client, namespace: str
) -> None:
    meta = {"name": "keys", "namespace": namespace, "labels": {"app": "x"}}
    empty = {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
    await client.create(SECRETS, empty, namespace=namespace, type=bytes)
    leader = Sharder(client, namespace)
    async with leader.running(leads=True):
        assert await leader.is_trusted(await leader.bundle())
    found = await client.get(SECRETS, "keys", namespace=namespace, type=dict[str, dict[str, object] | str])
    metadata = found["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["labels"] == {"app": "x"}


async def test_the_next_leader_goes_on_with_the_same_keys(client: Client, namespace: str) -> None:
    before = Sharder(client, namespace)
    async with before.running(leads=True):
        bundle = await before.bundle()
    after = Sharder(client, namespace)
    async with after.running(leads=True):
        assert await after.bundle() == bundle
        assert await after.is_trusted(bundle)


@pytest.mark.parametrize("damage", ["deleted", "edited"])
async def test_a_secret_that_was_deleted_or_edited_is_made_anew(
    client: Client, namespace: str, damage: str
) -> None:
    leader = Sharder(client, namespace, lifetimes=Lifetimes(serving_s=10))
    async with leader.running(leads=True):
        bundle = await leader.bundle()
        if damage == "deleted":
            await client.delete(SECRETS, "keys", namespace=namespace)
        else:
            patch = MergePatch({"data": {"tls.key": base64.b64encode(b"x").decode()}})
            await client.patch(SECRETS, "keys", patch, namespace=namespace, type=bytes)
        other = await leader.bundle(bundle)
        assert await leader.is_trusted(other)
        assert not await leader.is_trusted(bundle)


async def test_keys_that_cannot_be_read_are_tried_again(
    client: Client, namespace: str, embedded: EmbeddedPlane
) -> None:
    fault = await embedded.faults.add(Fault(what="error", code=403, resource="secrets"))
    leader = Sharder(client, namespace)
    try:
        async with leader.running(leads=True):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(leader.certificates.wait_bundle(b""), 0.5)
            await embedded.faults.clear(fault)
            assert await leader.is_trusted(await leader.bundle())
    finally:
        await embedded.faults.clear()


async def test_rotations_are_never_seen_by_those_who_call(client: Client, namespace: str) -> None:
    """An API server that learns of each bundle half a second late talks to both sharders all the time."""
    lifetimes = Lifetimes(authority_s=8, serving_s=4, spread_s=1.5)
    leader = Sharder(client, namespace, lifetimes=lifetimes)
    standby = Sharder(client, namespace, lifetimes=lifetimes)
    seen: list[bytes] = []

    async def publish() -> None:
        """As the leader does: confirmed when it is written, known half a second later."""
        bundle = b""
        leader.certificates.trust.expect("r")
        while True:
            bundle = await leader.certificates.wait_bundle(bundle)
            leader.certificates.trust.confirm("r", bundle, at=SystemClock().now())
            await asyncio.sleep(0.5)
            seen.append(bundle)

    async with standby.running(leads=False), leader.running(leads=True), asyncio.TaskGroup() as tasks:
        publishing = tasks.create_task(publish())
        await standby.bundle()
        until = SystemClock().now() + 14
        handshakes = 0
        while SystemClock().now() < until:
            if seen:
                for sharder in (leader, standby):
                    assert await sharder.is_trusted(seen[-1]), f"after {handshakes}, {len(seen)} bundles"
                    handshakes += 1
            await asyncio.sleep(0.05)
        publishing.cancel()
    assert len(seen) >= 4, "two authorities joined, and the one before each left"
    assert handshakes > 100
