"""Acknowledges drain requests by giving objects up: the I/O of protocol 5.4. The decision comes from `decisions`.

Owns the order (children before their parent), the acknowledging patch, and the evidence that a directed target lives.
"""

from __future__ import annotations

import asyncio
import math
from typing import Protocol

import structlog

from kubeio.errors import ApiError, Conflict, Invalid, NotFound, ServerFailure, Unreachable
from kubeio.models import Lease, Meta
from kubeio.patch import MergePatch
from kubeio.program.failures import refusal
from kubeio.protocol import RingKeys
from shard_controller.declare.errors import ShardError
from shard_controller.objects.caches import Caches, ResourceCache, version_of
from shard_controller.objects.writer import FencedWriter
from shard_controller.observe.metrics import ControllerMetrics
from shard_controller.shard.decisions import Directed, Handoff, KeepOwner, Plain

log = structlog.get_logger("shard_controller")

_ATTEMPTS = 10
"""Reads and patches of one object in a row: enough for one that somebody writes 200 times a second."""
READS_APART_S = 0.1
"""Between the beginnings of two reads of one Lease: without, they were a third of all requests in a join."""


class NotAcknowledged(ShardError):
    """The object moved under the acknowledgement, or the API server refuses it: look again later."""

    def __init__(self, what: str, reason: str) -> None:
        self.what = what
        self.reason = reason
        super().__init__(f"{what} not given up: {reason}")


def acknowledgement(meta: Meta, handoff: Handoff, keys: RingKeys) -> MergePatch:
    """The patch that gives up exactly the version that *meta* shows: 409 or 422 otherwise. Pure.

    The version is stricter than a turn: it is tested alone. A merge patch does not care which annotations the cache
    was told to drop.
    """
    metadata: dict[str, object] = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    match handoff:
        case Directed(to=to):
            metadata["labels"] = {keys.shard: to, keys.drain: None}
            metadata["annotations"] = {keys.turn: meta.resource_version}
        case Plain():
            metadata["labels"] = {keys.shard: None, keys.drain: None}
            metadata["annotations"] = {keys.turn: None}
        case KeepOwner():
            metadata["labels"] = {keys.drain: None}
    return MergePatch({"metadata": metadata})


class LeaseReads(Protocol):
    """The part of `kubeio.leases.lease.Leases` that evidence needs."""

    async def get(self, name: str) -> Lease: ...


class Evidence:
    """Whether a shard's Lease is held, by a consistent read that begins after the question was asked.

    Questions that arrive while a read is under way, or soon after one began, share the next one: the cost of a drain
    of many objects is ten reads per second, not one per object.
    """

    def __init__(self, leases: LeaseReads, keys: RingKeys) -> None:
        self._leases = leases
        self._keys = keys
        self._reading: dict[str, asyncio.Lock] = {}
        self._begun: dict[str, int] = {}
        self._began_at: dict[str, float] = {}
        self._answers: dict[str, tuple[int, bool]] = {}

    async def is_held(self, shard: str) -> bool:
        """Raises what the read raises, but for refusals: without an answer there is no evidence."""
        needed = self._begun.get(shard, 0) + 1
        async with self._reading.setdefault(shard, asyncio.Lock()):
            number, held = self._answers.get(shard, (0, False))
            if number < needed:
                await self._keep_apart(shard)
                number = self._begun[shard] = self._begun.get(shard, 0) + 1
                held = await self._read(shard)
                self._answers[shard] = (number, held)
        return held

    async def _keep_apart(self, shard: str) -> None:
        loop = asyncio.get_running_loop()
        left_s = self._began_at.get(shard, -math.inf) + READS_APART_S - loop.time()
        if left_s > 0:
            await asyncio.sleep(left_s)
        self._began_at[shard] = loop.time()

    async def _read(self, shard: str) -> bool:
        try:
            lease = await self._leases.get(shard)
        except (ServerFailure, Unreachable):
            raise
        except ApiError:
            return False
        is_of_this_ring = lease.metadata.labels.get(self._keys.ring_label) == self._keys.ring
        return is_of_this_ring and lease.spec.holder_identity == shard


class DrainAcknowledger:
    """Acknowledges drains of single objects and of whole trees."""

    def __init__(
        self,
        caches: Caches,
        writer: FencedWriter,
        evidence: Evidence,
        *,
        keys: RingKeys,
        shard: str,
        metrics: ControllerMetrics,
    ) -> None:
        self._caches = caches
        self._writer = writer
        self._evidence = evidence
        self._keys = keys
        self._shard = shard
        self._metrics = metrics

    async def hand_over(self, kind: ResourceCache, meta: Meta, handoff: Handoff) -> None:
        """Give up the object that *meta* shows: what it controls goes first. Raises: NotAcknowledged, KubeError."""
        if isinstance(handoff, Directed) and not await self._evidence.is_held(handoff.to):
            handoff = Plain()
        if not isinstance(handoff, KeepOwner):
            for child_kind, child in self._caches.tree(kind, meta):
                await self._pass_on(child_kind, child, handoff)
        await self._pass_on(kind, meta, handoff)
        way = _way(handoff)
        self._metrics.handoffs[way].inc()
        log.debug(
            "object handed over",
            object=f"{kind.name} {meta.key}",
            way=way,
            to=handoff.to if isinstance(handoff, Directed) else "",
        )

    async def _pass_on(self, kind: ResourceCache, meta: Meta, handoff: Handoff) -> None:
        """Pass one object on, in whatever version it is by now, unless it is not ours any more.

        Raises: NotAcknowledged if it is asked for otherwise by now, keeps changing, or is refused in that very version.
        """
        asked, error = meta.labels.get(self._keys.drain), None
        for _ in range(_ATTEMPTS):
            if version_of(meta) < kind.min_versions.floor(meta.key):
                if not kind.min_versions.is_unanswered(meta.key):
                    return
                found = await self._writer.read(kind, meta.key)
                if found is None or found.meta.uid != meta.uid:
                    return
                # perhaps still the version tested: then the same patch is sent again, unless it was refused
                if isinstance(error, Invalid) and found.meta.resource_version == meta.resource_version:
                    raise NotAcknowledged(_what(kind, meta), f"the API server refuses that: {refusal(error)}")
                meta = found.meta
            if not self._is_ours(meta):
                return
            if meta.labels.get(self._keys.drain) != asked:
                raise NotAcknowledged(_what(kind, meta), "it changed meanwhile")
            error = await self._acknowledge(kind, meta, handoff)
            if error is None:
                return
        raise NotAcknowledged(_what(kind, meta), "it keeps changing")

    async def _acknowledge(
        self, kind: ResourceCache, meta: Meta, handoff: Handoff
    ) -> Invalid | Conflict | None:
        """Send one acknowledgement; what it met if it was not taken. Lost answers are raised."""
        kind.min_versions.acknowledging(meta.key, tested=version_of(meta))
        try:
            answer = await self._writer.acknowledge(kind, meta, acknowledgement(meta, handoff, self._keys))
        except NotFound:
            kind.min_versions.gone(meta.key)
            kind.removed(meta.key)
            return None
        except (Invalid, Conflict) as error:
            return error
        kind.min_versions.acknowledged(meta.key, version=version_of(answer.meta))
        if not isinstance(handoff, KeepOwner):
            kind.removed(meta.key)
        return None

    def _is_ours(self, meta: Meta) -> bool:
        return meta.labels.get(self._keys.shard) == self._shard


def _way(handoff: Handoff) -> str:
    match handoff:
        case Directed():
            return "directed"
        case Plain():
            return "plain"
        case KeepOwner():
            return "kept"


def _what(kind: ResourceCache, meta: Meta) -> str:
    return f"{kind.name} {meta.key}"
