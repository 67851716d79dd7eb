"""Writes to objects: one patch per decision, and what its answer means for the one who decided.

Every write takes a turn of the process's `Pace`, which learns from its answer.
"""

from __future__ import annotations

import random
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.clock import SystemClock
from kubeio.errors import ApiError, Conflict, Invalid, KubeError, NotFound
from kubeio.models import HasMeta
from sharder.keys import ControllerName
from sharder.pace import Pace
from sharder.patches import patch_of
from sharder.planner import ControllerSeen

if TYPE_CHECKING:
    from prometheus_client import Counter

    from kubeio.client import Client
    from kubeio.labels import RingKeys
    from kubeio.models import Meta
    from kubeio.resource import Resource
    from sharder.decisions import Write
    from sharder.metrics import SharderMetrics

log = structlog.get_logger("sharder")

FIELD_MANAGER: Final = "ringleader-sharder"
WRITE_TIMEOUT_S: Final = 30.0
TELL_EVERY_S: Final = 5.0
"""Writes that fail are told as often as this at most, with their number: an outage fails thousands."""


class Outcome(StrEnum):
    """DONE: written. STALE: the object changed, decide anew on a fresh read. GONE: deleted. LATER: try again."""

    DONE = "done"
    STALE = "stale"
    GONE = "gone"
    LATER = "later"


class ObjectWriter:
    """Sends what the planner decided; every failure comes back as an `Outcome`."""

    def __init__(
        self, client: Client, keys: RingKeys, metrics: SharderMetrics, *, pace: Pace | None = None
    ) -> None:
        self._client = client
        self._keys = keys
        self._metrics = metrics
        self.pace = pace or Pace(clock=SystemClock(), rng=random.Random())  # noqa: S311 - jitter, no secret
        self._counters: dict[tuple[type, Outcome], Counter] = {}
        self._told_at = -TELL_EVERY_S
        self._untold = 0

    async def write(self, resource: Resource, meta: Meta, decision: Write) -> Outcome:
        """Carry out *decision* on the version of the object that *meta* is, when its turn comes."""
        await self.pace.enter()
        try:
            return await self.write_in_turn(resource, meta, decision)
        finally:
            self.pace.leave()

    async def write_in_turn(self, resource: Resource, meta: Meta, decision: Write) -> Outcome:
        """`write` for one who has a turn of `pace` already."""
        outcome = await self._patch(resource, meta, decision)
        key = (type(decision), outcome)
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters[key] = self._metrics.writes.labels(
                ring=self._keys.ring, kind=type(decision).__name__, outcome=outcome.value
            )
        counter.inc()
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
        began = time.monotonic()
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
        except KubeError as error:
            self.pace.failed(time.monotonic() - began, error)
            return self._failed(meta, error)
        self.pace.answered(time.monotonic() - began)
        return Outcome.DONE

    def _failed(self, meta: Meta, error: KubeError) -> Outcome:
        match error:
            case Conflict() | Invalid():
                return Outcome.STALE
            case NotFound():
                return Outcome.GONE
            case _:
                self._tell(meta, error)
                return Outcome.LATER

    def _tell(self, meta: Meta, error: KubeError) -> None:
        self._untold += 1
        now = time.monotonic()
        if now - self._told_at >= TELL_EVERY_S:
            log.warning(
                "objects could not be written",
                ring=self._keys.ring,
                writes=self._untold,
                last=str(meta.key),
                error=str(error),
                after_s=error.retry_after_s if isinstance(error, ApiError) else None,
            )
            self._told_at, self._untold = now, 0
