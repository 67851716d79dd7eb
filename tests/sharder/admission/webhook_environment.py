"""A real kube-apiserver that asks the real webhook: what a test does there, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import msgspec
from prometheus_client import CollectorRegistry

from devcluster.embedded import EmbeddedPlane
from devcluster.plane import Write
from devcluster.real.real_plane import RealPlane
from kubeio.access.cluster import load_cluster
from kubeio.errors import NotFound
from kubeio.models import HasMeta, Meta
from kubeio.patch import MergePatch
from kubeio.program.host import Host
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import LEASES
from kubeio.rest.client import Client
from sharder.admission.certificate_manager import SECRETS
from sharder.admission.metrics import AdmissionMetrics
from sharder.admission.settings import UrlTarget, WebhookSettings
from sharder.admission.webhook import Webhook
from sharder.admission.webhook_configuration import CONFIGURATIONS, configuration_name
from sharder.metrics import SharderMetrics
from sharder.rings.manager import RingManager
from tests.sharder.admission.reviews import website
from tests.sharder.io.environment import (
    CONFIGMAPS,
    KEYS,
    RING,
    WEBSITES,
    SharderEnvironment,
    running,
    sharder_context,
    wait_until,
)

NAME = configuration_name(RING)
HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class Server:
    """One sharder with its webhook, in this process."""

    def __init__(self, webhook: Webhook, registry: CollectorRegistry, port: int) -> None:
        self.webhook = webhook
        self.port = port
        self._registry = registry

    def count(self, outcome: str) -> float:
        """Answers so far."""
        labels = {"ring": RING, "outcome": outcome}
        return self._registry.get_sample_value("ringleader_admissions_total", labels) or 0.0

    async def ask(self, body: bytes, bundle: bytes) -> dict[str, Any]:
        """Answer of this very sharder, as the API server would get it."""
        context = ssl.create_default_context(cadata=bundle.decode())
        reader, writer = await asyncio.open_connection(HOST, self.port, ssl=context)
        head = f"POST /assign/{RING} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}"
        writer.write(f"{head}\r\n\r\n".encode() + body)
        answer = await reader.read()
        writer.close()
        return cast(dict[str, Any], json.loads(answer.partition(b"\r\n\r\n")[2]))


class WebhookEnvironment(SharderEnvironment):
    """`SharderEnvironment` on a real control plane, with sharders that serve the webhook."""

    def __init__(self, plane: RealPlane, client: Client) -> None:
        super().__init__(cast(EmbeddedPlane, plane), client)

    @asynccontextmanager
    async def asked(self, identity: str = "sharder-1", **spec: object) -> AsyncIterator[Server]:
        """The ring with two shards, and a leading sharder whose webhook the API server asks."""
        await self.ring(assignAtAdmission=True, maxLeaseDurationSeconds=10, **spec)
        await self.join(["web-a", "web-b"], duration_s=5)
        async with self.serving(identity) as server:
            await self.wait_asked(server)
            yield server

    @asynccontextmanager
    async def serving(self, identity: str = "sharder-1", *, leads: bool = True) -> AsyncIterator[Server]:
        """The components of a sharder, and its webhook at an address of its own."""
        user = await self.plane.kubeconfig_for(identity)
        cluster = load_cluster(kubeconfig=str(user))
        port, registry = free_port(), CollectorRegistry()
        settings = WebhookSettings(
            host=HOST, port=port, target=UrlTarget(f"https://{HOST}:{port}", HOST), namespace="default"
        )
        metrics, host = AdmissionMetrics(registry), Host(rng=random.Random(7))
        async with (
            Client(cluster) as client,
            Client(cluster) as own,
            Webhook(own, settings, metrics=metrics, host=host) as webhook,
        ):
            context = sharder_context(
                client, identity=identity, metrics=SharderMetrics(registry), webhook=webhook
            )
            rings = RingManager(context, names=())
            if leads:
                rings.lead()
                webhook.lead()
            async with running(rings.run()), running(webhook.run()):
                yield Server(webhook, registry, port)

    async def wait_asked(self, server: Server) -> None:
        """Return when the API server asks, and the sharder has an owner to name."""
        tried = 0

        async def labels() -> bool:
            nonlocal tried
            tried += 1
            return KEYS.shard in (await self.dry_run(f"probe-{tried}")).labels

        await wait_until(labels, within_s=20)
        assert server.count("labelled") >= 1

    async def dry_run(self, name: str) -> Meta:
        """A Website as it would be created."""
        body = {**website(name), "metadata": {"name": name}}
        found = await self.client.request(
            "POST",
            WEBSITES.path(namespace="default"),
            query={"dryRun": "All"},
            body=msgspec.json.encode(body),
        )
        return msgspec.json.decode(found.body, type=HasMeta).metadata

    async def born(self, count: int) -> dict[str, str]:
        """Create Websites `site-0` ...; those that have an owner in the create's answer. A busy machine may be late."""
        metas = [await self.site(f"site-{number}") for number in range(count)]
        born = {meta.name: meta.labels[KEYS.shard] for meta in metas if KEYS.shard in meta.labels}
        assert len(born) >= 0.8 * count
        return born

    async def read(self, name: str) -> Meta:
        return (await self.client.get(WEBSITES, name, namespace="default", type=HasMeta)).metadata

    async def timed_site(self, name: str) -> tuple[Meta, float]:
        """A Website, and how long its creation took."""
        began = time.monotonic()
        return await self.site(name), time.monotonic() - began

    async def configuration(self) -> dict[str, Any] | None:
        with suppress(NotFound):
            return await self.client.get(CONFIGURATIONS, NAME, type=dict[str, Any])
        return None

    async def is_asked_for(self) -> bool:
        """Whether the API server is to ask about the ring's objects."""
        found = await self.configuration()
        return found is not None and bool(found.get("webhooks"))

    async def edit_configuration(self, **client_config: str) -> None:
        """What a person might do to it; the next repetition of the leader puts it right."""
        found = await self.configuration()
        assert found is not None
        found["webhooks"][0]["clientConfig"] |= client_config
        patch = MergePatch({"webhooks": found["webhooks"]})
        await self.client.patch(CONFIGURATIONS, NAME, patch, type=bytes)
        await asyncio.sleep(0.5)  # until the API server's own watch shows it

    async def writes_to(self, name: str) -> list[Write]:
        """Every accepted write to the Website *name*."""
        await asyncio.sleep(0.2)  # the audit log is written after the answer
        found = [write for write in self.plane.writes() if write.name == name and write.code < 300]
        return [write for write in found if write.resource == WEBSITES.group_resource]

    async def remove_ring(self) -> None:
        """Remove the ring as a person does without a sharder."""
        with suppress(NotFound):
            without = MergePatch({"metadata": {"finalizers": []}})
            await self.client.patch(CONTROLLER_RINGS, RING, without, type=bytes)
            await self.client.delete(CONTROLLER_RINGS, RING)

    async def clear(self) -> None:
        """Undo everything but the kinds."""
        await self.close()
        await self.remove_ring()
        for resource, name in ((CONFIGURATIONS, NAME), (SECRETS, "ringleader-webhook")):
            with suppress(NotFound):
                await self.client.delete(resource, name, namespace="default")
        for resource in (WEBSITES, CONFIGMAPS, LEASES):
            async for page in self.client.pages(resource, namespace="default", metadata_only=True):
                for item in page.objects:
                    if item.meta.name != "kube-root-ca.crt":
                        with suppress(NotFound):
                            await self.client.delete(resource, item.meta.name, namespace="default")
