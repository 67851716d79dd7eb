"""Keeps the webhook's keys: reads the Secret that all sharders share, lets the leader change it, loads what is served.

The Secret is the only state. Every write is conditional on the version that was read, so that two leaders cannot make
two authorities; a Secret that was deleted, or cannot be used, is made anew. The API server ignores a webhook whose
certificate it does not trust: nothing here can stop an object from being created.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from kubeio.errors import AlreadyExists, Conflict, KubeError, NotFound
from kubeio.http.tls import load_key_pair
from kubeio.models import Meta
from kubeio.patch import MergePatch
from kubeio.program.certificates import read_certificate
from kubeio.program.failures import failure
from kubeio.resource import ApiResource
from sharder.admission.certificate_set import (
    CertificateSet,
    Step,
    carry_out,
    plan_rotation,
    read_certificate_set,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from prometheus_client import Gauge

    from kubeio.clock import Clock
    from kubeio.rest.client import Client
    from sharder.admission.settings import Lifetimes

log = structlog.get_logger("sharder")

SECRETS: Final = ApiResource("", "v1", "secrets", "Secret")
READ_EVERY_S: Final = 30.0
FIRST_READ_S: Final = 2.0
"""Read interval until there is a certificate to serve."""


class _Secret(msgspec.Struct, rename="camel"):
    metadata: Meta
    data: dict[str, bytes] = {}
    """Base64 in JSON, which is what msgspec takes bytes for."""


class WebhookTrust:
    """CA bundle in each ring's webhook configuration, and since when (seconds of the sharder's clock). Pure."""

    def __init__(self, *, spread_s: float) -> None:
        self._spread_s = spread_s
        self._confirmed: dict[str, tuple[bytes, float] | None] = {}

    def expect(self, ring: str) -> None:
        """*ring* has a configuration, or is to have one."""
        self._confirmed.setdefault(ring, None)

    def forget(self, ring: str) -> None:
        """*ring* has no configuration any more."""
        self._confirmed.pop(ring, None)

    def confirm(self, ring: str, bundle: bytes, *, at: float) -> None:
        """The API server said at *at* that the configuration of *ring* has *bundle*."""
        if not self.has(ring, bundle):
            self._confirmed[ring] = (bundle, at)

    def has(self, ring: str, bundle: bytes) -> bool:
        """Whether the configuration of *ring* is known to have *bundle*."""
        known = self._confirmed.get(ring)
        return known is not None and known[0] == bundle

    def is_everywhere(self, bundle: bytes, *, at: float) -> bool:
        """Whether every configuration has had *bundle* long enough for every API server to know.

        False while none is known: a leader that starts has not asked for any yet.
        """
        return bool(self._confirmed) and all(
            known is not None and known[0] == bundle and at >= known[1] + self._spread_s
            for known in self._confirmed.values()
        )


class CertificateManager:
    """Keeps the webhook's keys until cancelled. *names*: the hosts by which the API server calls the webhook."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        names: Collection[str],
        lifetimes: Lifetimes,
        clock: Clock,
        tls: ssl.SSLContext,
        expires_at: Gauge,
    ) -> None:
        self.trust = WebhookTrust(spread_s=lifetimes.spread_s)
        self._client = client
        self._namespace = namespace
        self._name = name
        self._names = names
        self._lifetimes = lifetimes
        self._clock = clock
        self._tls = tls
        self._expires_at = expires_at
        self._certificate_set: CertificateSet | None = None
        self._is_leading = False
        self._logged = ""
        self._woken = asyncio.Event()
        self._changed = asyncio.Condition()

    @property
    def bundle(self) -> bytes:
        """CA bundle that the API server has to trust; empty while no certificate can be served."""
        return self._certificate_set.bundle if self._certificate_set is not None else b""

    async def wait_bundle(self, other_than: bytes) -> bytes:
        """The bundle, once it is not *other_than*; the certificate that goes with it is served by then."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.bundle not in (b"", other_than))
            return self.bundle

    def lead(self) -> None:
        """This sharder makes and renews the keys from now on."""
        self._is_leading = True
        self._woken.set()

    async def run(self) -> None:
        while True:
            self._woken.clear()
            pause_s = await self._sync()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._woken.wait()

    async def _sync(self) -> float:
        """Read the Secret once, with one step if this sharder leads; the seconds to wait for the next."""
        try:
            secret = await self._read()
            certificate_set = read_certificate_set(secret.data) if secret is not None else None
            step = self._plan(certificate_set) if self._is_leading else Step.NONE
            if step is not Step.NONE:
                certificate_set = self._carried_out(step, certificate_set)
                await self._write(certificate_set, secret)
                log.info("webhook keys changed", step=step.value, secret=f"{self._namespace}/{self._name}")
        except (Conflict, AlreadyExists):
            return 0.0  # another sharder was faster: read what it wrote
        except KubeError as error:
            self._log(failure(error).message)
            return FIRST_READ_S if self._certificate_set is None else READ_EVERY_S
        self._logged = ""
        if certificate_set is not None:
            await self._use(certificate_set)
        is_busy = self._certificate_set is None or step is not Step.NONE
        return min(FIRST_READ_S if is_busy else READ_EVERY_S, self._lifetimes.serving_s / 20)

    def _log(self, problem: str) -> None:
        """Log *problem* once, while it lasts."""
        if problem != self._logged:
            log.warning("webhook keys could not be read or written", error=problem)
        self._logged = problem

    def _plan(self, certificate_set: CertificateSet | None) -> Step:
        is_trusted = certificate_set is not None and self.trust.is_everywhere(
            certificate_set.bundle, at=self._clock.now()
        )
        return plan_rotation(
            certificate_set,
            now=self._clock.wall(),
            names=self._names,
            is_trusted=is_trusted,
            lifetimes=self._lifetimes,
        )

    def _carried_out(self, step: Step, certificate_set: CertificateSet | None) -> CertificateSet:
        return carry_out(
            step, certificate_set, now=self._clock.wall(), names=self._names, lifetimes=self._lifetimes
        )

    async def _read(self) -> _Secret | None:
        try:
            return await self._client.get(SECRETS, self._name, namespace=self._namespace, type=_Secret)
        except NotFound:
            return None

    async def _write(self, certificate_set: CertificateSet, secret: _Secret | None) -> None:
        """Only on the version that was read, or on none."""
        data = certificate_set.data()
        if secret is None:
            meta = {"name": self._name, "namespace": self._namespace}
            fresh = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "data": data}
            await self._client.create(SECRETS, fresh, namespace=self._namespace, type=bytes)
            return
        version = secret.metadata.resource_version
        patch = MergePatch({"metadata": {"resourceVersion": version}, "data": data})
        await self._client.patch(SECRETS, self._name, patch, namespace=self._namespace, type=bytes)

    async def _use(self, certificate_set: CertificateSet) -> None:
        """Serve with *certificate_set* from now on, then notify the waiters for its bundle."""
        if certificate_set == self._certificate_set:
            return
        if self._certificate_set is None or certificate_set.serving != self._certificate_set.serving:
            load_key_pair(self._tls, certificate_set.serving)
            until = read_certificate(certificate_set.serving.certificate).not_after
            self._expires_at.set(until.timestamp())
            log.info("webhook certificate loaded", until=until.isoformat())
        async with self._changed:
            self._certificate_set = certificate_set
            self._changed.notify_all()


def server_context() -> ssl.SSLContext:
    """TLS for a server that has no certificate yet: handshakes fail until `load_key_pair`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
