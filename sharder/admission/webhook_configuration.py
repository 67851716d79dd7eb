"""The MutatingWebhookConfiguration of a ring: written by the leader; emptied, then removed, when it is not wanted.

Written by server-side apply, so that the account needs no right but on this very name. It belongs to the ring: when
the ring is gone, so is it, even if no sharder runs. Failures are logged and retried; the ring is
worked all the same.
"""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from kubeio.errors import Forbidden, KubeError, NotFound
from kubeio.models import HasMeta, Meta
from kubeio.patch import ApplyPatch, MergePatch
from kubeio.program.failures import failure
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import ApiResource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kubeio.clock import Clock
    from kubeio.rest.client import Client
    from sharder.admission.certificate_manager import CertificateManager
    from sharder.admission.settings import Target
    from sharder.ringspec.spec import LabelSelector, RingSpec

log = structlog.get_logger("sharder")

CONFIGURATIONS: Final = ApiResource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
FIELD_MANAGER: Final = "ringleader-sharder"
REPEAT_S: Final = 60.0
"""The configuration is applied again this often: edits by hand do not last."""
RETRY_S: Final = 10.0
TIMEOUT_S: Final = 1


class _Configuration(msgspec.Struct):
    metadata: Meta
    webhooks: tuple[object, ...] = ()


def configuration_name(ring: str) -> str:
    return f"ringleader-{ring}"


def assign_path(ring: str) -> str:
    """URL path of the webhook of *ring*."""
    return f"/assign/{ring}"


def configuration(
    spec: RingSpec, resources: Sequence[ApiResource], *, ring_uid: str, target: Target, bundle: bytes
) -> dict[str, object]:
    """The whole object. Every create of *resources* without an owner is asked about, in whatever version it comes."""
    rules = [
        {
            "apiGroups": [resource.group],
            "apiVersions": ["*"],
            "resources": [resource.plural],
            "operations": ["CREATE"],
            "scope": "*",
        }
        for resource in resources
    ]
    unlabelled = [{"key": spec.keys.shard, "operator": "DoesNotExist"}]
    webhook = {
        "name": f"{spec.name}.admission.ringleader.dev",
        "clientConfig": {
            **target.client_config(assign_path(spec.name)),
            "caBundle": base64.b64encode(bundle).decode(),
        },
        "rules": rules,
        "objectSelector": {"matchExpressions": unlabelled},
        "namespaceSelector": _selector(spec.namespace_selector),
        "failurePolicy": "Ignore",
        "timeoutSeconds": TIMEOUT_S,
        "sideEffects": "None",
        "matchPolicy": "Equivalent",
        "reinvocationPolicy": "Never",
        "admissionReviewVersions": ["v1"],
    }
    owner = {
        "apiVersion": CONTROLLER_RINGS.api_version,
        "kind": CONTROLLER_RINGS.kind,
        "name": spec.name,
        "uid": ring_uid,
    }
    return {
        "apiVersion": CONFIGURATIONS.api_version,
        "kind": CONFIGURATIONS.kind,
        "metadata": {
            "name": configuration_name(spec.name),
            "labels": {"app.kubernetes.io/part-of": "ringleader"},
            **({"ownerReferences": [owner]} if ring_uid else {}),
        },
        "webhooks": [webhook],
    }


def _selector(selector: LabelSelector | None) -> Mapping[str, object]:
    if selector is None:
        return {}
    expressions = [
        {
            "key": found.key,
            "operator": found.operator,
            **({"values": list(found.values)} if found.values else {}),
        }
        for found in selector.expressions
    ]
    return {"matchLabels": dict(selector.labels), "matchExpressions": expressions}


async def keep_configuration(
    client: Client,
    certificates: CertificateManager,
    spec: RingSpec,
    resources: Sequence[ApiResource],
    *,
    ring_uid: str,
    target: Target,
    clock: Clock,
) -> None:
    """Have the API server ask, as soon as there is a certificate to answer with; until cancelled."""
    certificates.trust.expect(spec.name)
    bundle, logged = b"", ""
    try:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(REPEAT_S if bundle else None):
                    bundle = await certificates.wait_bundle(bundle)
            wanted = configuration(spec, resources, ring_uid=ring_uid, target=target, bundle=bundle)
            problem = await _apply(client, configuration_name(spec.name), wanted)
            if problem:
                if problem != logged:
                    log.warning("webhook configuration could not be written", ring=spec.name, error=problem)
                bundle, logged = b"", problem
                await asyncio.sleep(RETRY_S)
                continue
            if logged or not certificates.trust.has(spec.name, bundle):
                log.info("objects are assigned at admission", ring=spec.name)
            certificates.trust.confirm(spec.name, bundle, at=clock.now())
            logged = ""
    finally:
        certificates.trust.forget(spec.name)


async def _apply(client: Client, name: str, wanted: Mapping[str, object]) -> str:
    """Apply the configuration. Gives the reason if it cannot be written, else an empty text."""
    patch = ApplyPatch(wanted, force=True)
    try:
        await client.patch(CONFIGURATIONS, name, patch, type=bytes, field_manager=FIELD_MANAGER)
    except KubeError as error:
        return failure(error).message
    return ""


async def empty_configuration(client: Client, ring: str) -> bool:
    """Have the API server ask no more; true if there is a configuration. Raises KubeError.

    It stays, without webhooks: the next leader waits if it finds it. An account without the right to patch it, of a
    sharder without a webhook, deletes it at once; one without the right to read it had none to write it either.
    """
    name = configuration_name(ring)
    try:
        found = await client.get(CONFIGURATIONS, name, type=_Configuration)
    except (NotFound, Forbidden):
        return False
    if not found.webhooks:
        return True
    empty = MergePatch({"metadata": {"uid": found.metadata.uid}, "webhooks": []})
    try:
        await client.patch(CONFIGURATIONS, name, empty, type=bytes, field_manager=FIELD_MANAGER)
    except NotFound:
        pass
    except Forbidden:
        await remove_configuration(client, ring)
    log.info("objects are no longer assigned at admission", ring=ring, configuration=name)
    return True


async def remove_configuration(client: Client, ring: str) -> None:
    """Delete it, if it is there. Raises KubeError."""
    with suppress(NotFound):
        found = await client.get(CONFIGURATIONS, configuration_name(ring), type=HasMeta, metadata_only=True)
        await client.delete(CONFIGURATIONS, found.metadata.name, uid=found.metadata.uid)
