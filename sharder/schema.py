"""CustomResourceDefinition of ControllerRing: a leader replaces an older one by the packaged one, once per life.

Helm creates what lies in a chart's `crds/` and never upgrades it (docs/adr/0046). The annotation SCHEMA numbers the
schemas; a number is never lowered, so an older sharder and a rollback leave the newer definition alone.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
from prometheus_client import Gauge

from kubeio.errors import Invalid, KubeError
from kubeio.labels import json_pointer
from kubeio.models import HasMeta, Meta
from kubeio.patch import JsonPatch
from kubeio.program.failures import failure
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import CRDS

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from kubeio.rest.client import Client

log = structlog.get_logger("sharder")

SCHEMA: Final = "ringleader.dev/schema"
"""Annotation of the definition: a number that rises with every change of its spec."""
PACKAGED: Final = Path(__file__).with_name("controllerrings.yaml")
FIELD_MANAGER: Final = "ringleader-crd"
REMEDY: Final = "ringleader crds | kubectl apply --server-side --force-conflicts -f -"


def crd_gauge(registry: CollectorRegistry) -> Gauge:
    """The gauge that `upgrade_crd` sets."""
    return Gauge(
        "ringleader_crd_outdated",
        "1 if the cluster's ControllerRing resource is older than the sharder's and was not replaced.",
        registry=registry,
    )


def packaged_schema() -> int:
    """Number of the packaged schema. Found by its text: a parser of YAML costs memory for ever (docs/adr/0008)."""
    found = re.search(rf'^    {re.escape(SCHEMA)}: "(\d+)"', PACKAGED.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"{PACKAGED} has no annotation {SCHEMA}")
    return int(found[1])


def schema_of(meta: Meta) -> int | None:
    """Number of a cluster's schema; 0 if it has none yet, None if it is no number."""
    text = meta.annotations.get(SCHEMA, "0")
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


async def upgrade_crd(client: Client, outdated: Gauge) -> None:
    """Replace the cluster's definition if it is older. A failure is logged, and *outdated* is 1.

    A definition that changed after it was read is judged once more.
    """
    packaged = packaged_schema()
    try:
        try:
            await _upgrade(client, packaged, outdated)
        except Invalid:
            await _upgrade(client, packaged, outdated)
    except KubeError as error:
        outdated.set(1)
        log.error(
            "the ControllerRing resource could not be upgraded",
            error=failure(error).message,
            schema=packaged,
            remedy=REMEDY,
        )


async def _upgrade(client: Client, packaged: int, outdated: Gauge) -> None:
    """One try. Raises: KubeError; Invalid also if the definition changed between the read and the patch."""
    name = CONTROLLER_RINGS.group_resource
    meta = (await client.get(CRDS, name, type=HasMeta, metadata_only=True)).metadata
    live = schema_of(meta)
    if live is None:
        outdated.set(1)
        log.error(
            "the ControllerRing resource has no readable schema number",
            annotation=SCHEMA,
            value=meta.annotations[SCHEMA],
            remedy=REMEDY,
        )
        return
    if live < packaged:
        outdated.set(1)
        await client.patch(CRDS, name, _replacement(meta, packaged), type=bytes, field_manager=FIELD_MANAGER)
        log.info("ControllerRing resource upgraded", schema=packaged, was=live)
    outdated.set(0)


def _replacement(meta: Meta, schema: int) -> JsonPatch:
    """The packaged spec in the place of the one that *meta* is of.

    It fails if that spec has changed since, or another definition has the name.

    Server-side apply would leave what other managers own: fields and rules that the new schema has dropped.
    """
    import yaml

    spec = yaml.safe_load(PACKAGED.read_bytes())["spec"]
    patch = JsonPatch().test("/metadata/uid", meta.uid).test("/metadata/generation", meta.generation)
    patch = patch.replace("/spec", spec)
    if not meta.annotations:
        return patch.add("/metadata/annotations", {SCHEMA: str(schema)})
    return patch.add(json_pointer("metadata", "annotations", SCHEMA), str(schema))
