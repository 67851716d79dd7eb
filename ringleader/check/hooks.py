"""Reads the webhooks of rings that are assigned at admission: configuration, whether it answers, its certificates.

A webhook with a URL is asked by a TLS handshake from here; one behind a Service by whether a ready address stands
behind it, since that network is the cluster's own.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from kubeio.errors import NotFound
from kubeio.resource import ApiResource
from ringleader.check.evidence import Hook

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringleader.check.evidence import Evidence
    from ringleader.cluster.reader import ClusterReader

CONFIGURATIONS: Final = ApiResource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
ENDPOINT_SLICES: Final = ApiResource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
HANDSHAKE_S: Final = 5.0


async def read_hooks(reader: ClusterReader, evidence: Evidence) -> None:
    """One `Hook` for each ring with assignAtAdmission."""
    for ring in evidence.rings:
        if ring.ring.spec.assign_at_admission:
            hook = await reader.attempt(f"hooks:{ring.name}", _hook(reader, ring.name))
            if hook is not None:
                evidence.hooks.append(hook)


async def _hook(reader: ClusterReader, ring: str) -> Hook:
    try:
        found = await reader.client.get(
            CONFIGURATIONS, f"ringleader-{ring}", type=dict, timeout_s=reader.timeout_s
        )
    except NotFound:
        return Hook(ring, None)
    hook = Hook(ring, found)
    for webhook in found.get("webhooks") or []:
        config = webhook.get("clientConfig") or {}
        bundle = base64.b64decode(config.get("caBundle") or "")
        _note_end(hook, _authorities_end(bundle), "the authority in its caBundle")
        if "url" in config:
            await _ask(hook, str(config["url"]), bundle)
        elif "service" in config:
            await _look_behind(reader, hook, config["service"])
    return hook


def _note_end(hook: Hook, end: datetime | None, what: str) -> None:
    if end is not None and (hook.not_after is None or end < hook.not_after):
        hook.not_after, hook.certificate = end, what


def _authorities_end(bundle: bytes) -> datetime | None:
    """When the last of the authorities in *bundle* ends: until then one of them is trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=bundle.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        return None
    ends = [_end(certificate) for certificate in context.get_ca_certs()]
    return max((end for end in ends if end is not None), default=None)


def _end(certificate: Mapping[str, Any]) -> datetime | None:
    text = certificate.get("notAfter")
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC) if text else None


async def _ask(hook: Hook, url: str, bundle: bytes) -> None:
    """Shake hands as the API server does: trusting *bundle* only, under the URL's own name."""
    parts = urlsplit(url)
    hook.target = f"{parts.hostname}:{parts.port or 443}"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=bundle.decode("ascii", "replace"))
        async with asyncio.timeout(HANDSHAKE_S):
            _, writer = await asyncio.open_connection(
                parts.hostname, parts.port or 443, ssl=context, server_hostname=parts.hostname
            )
    except TimeoutError:
        hook.unreachable = f"no answer within {HANDSHAKE_S:g} s"
    except ssl.SSLCertVerificationError as error:
        hook.unreachable = f"its certificate is refused: {error.verify_message}"
    except (OSError, ValueError) as error:
        hook.unreachable = str(error)
    else:
        _note_end(hook, _end(writer.get_extra_info("peercert") or {}), "the certificate that it serves")
        writer.close()


class _Conditions(msgspec.Struct):
    ready: bool | None = None


class _Endpoint(msgspec.Struct):
    addresses: list[str] = []
    conditions: _Conditions = msgspec.field(default_factory=_Conditions)


class _Slice(msgspec.Struct):
    endpoints: list[_Endpoint] | None = None


async def _look_behind(reader: ClusterReader, hook: Hook, service: Mapping[str, Any]) -> None:
    namespace, name = str(service.get("namespace", "")), str(service.get("name", ""))
    hook.target = f"service {namespace}/{name}"
    pages = reader.client.pages(
        ENDPOINT_SLICES,
        namespace=namespace,
        label_selector=f"kubernetes.io/service-name={name}",
        timeout_s=reader.timeout_s,
    )
    slices = [msgspec.json.decode(found.raw, type=_Slice) async for page in pages for found in page.objects]
    ready = [each for found in slices for each in found.endpoints or () if each.conditions.ready is not False]
    if not any(each.addresses for each in ready):
        hook.unreachable = "no ready address stands behind it"
