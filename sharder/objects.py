"""Writes to objects: one patch per decision, and what its answer means for the one who decided."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.errors import ApiError, Conflict, Invalid, KubeError, NotFound
from kubeio.models import HasMeta
from sharder.keys import ControllerName
from sharder.patches import patch_of
from sharder.planner import ControllerSeen

if TYPE_CHECKING:
    from kubeio.client import Client
    from kubeio.labels import RingKeys
    from kubeio.models import Meta
    from kubeio.resource import Resource
    from sharder.decisions import Write
    from sharder.metrics import SharderMetrics

log = structlog.get_logger("sharder")

FIELD_MANAGER: Final = "ringleader-sharder"
WRITE_TIMEOUT_S: Final = 30.0


class Outcome(StrEnum):
    """DONE: written. STALE: the object changed, decide anew on a fresh read. GONE: deleted. LATER: try again."""

    DONE = "done"
    STALE = "stale"
    GONE = "gone"
    LATER = "later"


class ObjectWriter:
    """Sends what the planner decided; every failure comes back as an `Outcome`."""

    def __init__(self, client: Client, keys: RingKeys, metrics: SharderMetrics) -> None:
        self._client = client
        self._keys = keys
        self._metrics = metrics

    async def write(self, resource: Resource, meta: Meta, decision: Write) -> Outcome:
        """Carry out *decision* on the version of the object that *meta* is."""
        outcome = await self._patch(resource, meta, decision)
        self._metrics.writes.labels(
            ring=self._keys.ring, kind=type(decision).__name__, outcome=outcome.value
        ).inc()
        return outcome

    async def read(self, resource: Resource, meta: Meta) -> Meta | None:
        """The newest version of the object, by a consistent read; None if it is gone or another took its name."""
        try:
            found = await self._client.get(
                resource, meta.name, namespace=meta.namespace, type=HasMeta, metadata_only=True
            )
        except NotFound:
            return None
        return found.metadata

    async def read_controller(self, controller: ControllerName) -> ControllerSeen:
        """The owner of an object's controller, by a consistent read."""
        try:
            found = await self._client.get(
                controller.resource,
                controller.name,
                namespace=controller.namespace,
                type=HasMeta,
                metadata_only=True,
            )
        except NotFound:
            return ControllerSeen(exists=False)
        if found.metadata.uid != controller.uid:
            return ControllerSeen(exists=False)
        return ControllerSeen(found.metadata.labels.get(self._keys.shard))

    async def _patch(self, resource: Resource, meta: Meta, decision: Write) -> Outcome:
        patch = patch_of(decision, meta, keys=self._keys)
        try:
            await self._client.patch(
                resource,
                meta.name,
                patch,
                namespace=meta.namespace,
                type=bytes,
                metadata_only=True,
                field_manager=FIELD_MANAGER,
                timeout_s=WRITE_TIMEOUT_S,
            )
        except (Conflict, Invalid):
            return Outcome.STALE
        except NotFound:
            return Outcome.GONE
        except KubeError as error:
            retry_after_s = error.retry_after_s if isinstance(error, ApiError) else None
            log.warning(
                "object could not be written", object=str(meta.key), error=str(error), after_s=retry_after_s
            )
            return Outcome.LATER
        return Outcome.DONE
