"""Acknowledges drain requests by giving objects up: the I/O of protocol 5.4. The decision comes from `decisions`.

Owns the order (children before their parent), the acknowledging patch, and the evidence that a directed target lives.
"""

from __future__ import annotations

import structlog

from kubeio.errors import Conflict, Invalid, NotFound
from kubeio.leases.shared_reads import SharedLeaseReads
from kubeio.models import Meta, Object, ObjectKey
from kubeio.program.failures import refusal
from kubeio.shard.errors import ShardError
from kubeio.shard.handoff import Directed, HandoffMode, KeepOwner, Plain, acknowledgement, is_held
from shard_controller.objects.caches import Caches, ResourceCache, version_of
from shard_controller.observe.metrics import ControllerMetrics
from shard_controller.shard.ownership import ShardOwnership
from shard_controller.shard.writer import FencedWriter

log = structlog.get_logger("shard_controller")

_ATTEMPTS = 10
"""Reads and patches of one object in a row: enough for an object that is written 200 times a second."""
READS_APART_S = 0.1
"""Between the beginnings of two reads of one Lease: without, they were a third of all requests in a join."""


class NotAcknowledged(ShardError):
    """The object moved under the acknowledgement, or the API server refuses it: to be retried."""

    def __init__(self, what: str, reason: str) -> None:
        self.what = what
        self.reason = reason
        super().__init__(f"{what} not given up: {reason}")


class DrainAcknowledger:
    """Acknowledges drains of single objects and of whole trees, children first."""

    def __init__(
        self,
        caches: Caches,
        ownership: ShardOwnership,
        writer: FencedWriter,
        leases: SharedLeaseReads,
        metrics: ControllerMetrics,
    ) -> None:
        self._caches = caches
        self._ownership = ownership
        self._keys = ownership.keys
        self._writer = writer
        self._leases = leases
        self._metrics = metrics

    async def read(self, kind: ResourceCache, key: ObjectKey) -> Object | None:
        """The object as a consistent read shows it: an acknowledgement of it got no answer. Raises: KubeError."""
        return await self._writer.read(kind, key)

    def waits_s(self, meta: Meta, handoff: HandoffMode) -> float:
        """For how many seconds a *handoff* to others waits: a lost CREATE of the object's reconciles may arrive."""
        if isinstance(handoff, KeepOwner):
            return 0.0
        return self._writer.unanswered.creates_settled_in_s(meta.uid)

    async def hand_over(self, kind: ResourceCache, meta: Meta, handoff: HandoffMode) -> None:
        """Give up the object that *meta* shows: what it controls goes first. Raises: NotAcknowledged, KubeError."""
        if isinstance(handoff, Directed) and not await is_held(self._leases, handoff.to, self._keys):
            handoff = Plain()
        if not isinstance(handoff, KeepOwner):
            for child_kind, child in self._caches.tree(kind, meta):
                await self._pass_on(child_kind, child, handoff)
        await self._pass_on(kind, meta, handoff)
        way = _metric_kind(handoff)
        self._metrics.handoffs[way].inc()
        log.debug(
            "object handed over",
            object=f"{kind.name} {meta.key}",
            way=way,
            to=handoff.to if isinstance(handoff, Directed) else "",
        )

    async def _pass_on(self, kind: ResourceCache, meta: Meta, handoff: HandoffMode) -> None:
        """Pass one object on, in whatever version it is by now, unless it is not ours any more.

        Raises: NotAcknowledged if it is asked for otherwise by now, keeps changing, or is refused in that very version.
        """
        asked, error = meta.labels.get(self._keys.drain), None
        for _ in range(_ATTEMPTS):
            if version_of(meta) < self._ownership.floor(kind, meta.key):
                if not self._ownership.is_unanswered(kind, meta.key):
                    return
                found = await self._writer.read(kind, meta.key)
                if found is None or found.meta.uid != meta.uid:
                    return
                # perhaps still the version tested: then the same patch is sent again, unless it was refused
                if isinstance(error, Invalid) and found.meta.resource_version == meta.resource_version:
                    raise NotAcknowledged(_what(kind, meta), f"the API server refuses that: {refusal(error)}")
                meta = found.meta
            if not self._ownership.may_write(meta):
                return
            if meta.labels.get(self._keys.drain) != asked:
                raise NotAcknowledged(_what(kind, meta), "it changed meanwhile")
            error = await self._acknowledge(kind, meta, handoff)
            if error is None:
                return
        raise NotAcknowledged(_what(kind, meta), "it keeps changing")

    async def _acknowledge(
        self, kind: ResourceCache, meta: Meta, handoff: HandoffMode
    ) -> Invalid | Conflict | None:
        """Send one acknowledgement; what it met if it was not taken. Lost answers are raised."""
        self._ownership.acknowledging(kind, meta)
        try:
            answer = await self._writer.acknowledge(kind, meta, acknowledgement(meta, handoff, self._keys))
        except NotFound:
            self._ownership.left(kind, meta.key)
            kind.removed(meta.key)
            return None
        except (Invalid, Conflict) as error:
            return error
        self._ownership.acknowledged(kind, answer.meta)
        if not isinstance(handoff, KeepOwner):
            kind.removed(meta.key)
        return None


def _metric_kind(handoff: HandoffMode) -> str:
    match handoff:
        case Directed():
            return "directed"
        case Plain():
            return "plain"
        case KeepOwner():
            return "kept"


def _what(kind: ResourceCache, meta: Meta) -> str:
    return f"{kind.name} {meta.key}"
