"""Writes to objects: one patch per decision, and the outcome that its answer means.

Every write takes a slot of the process's `WriteLimiter`, which learns from its answer.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from kubeio.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    ServerFailure,
)
from kubeio.models import HasMeta, ObjectRef
from kubeio.program.failures import refusal
from sharder.planning.controllers import read_controller
from sharder.planning.decisions import Assign, Drain, ReleaseDrain, Strip, Touch, UpdateDrain, reason_of
from sharder.planning.keys import Controlled
from sharder.planning.patches import patch_of
from sharder.ringspec.spec import Pace
from sharder.unowned.permissions import Permission, is_missing_right
from sharder.writing.limiter import WriteLimiter
from sharder.writing.move_stats import MoveStats

if TYPE_CHECKING:
    from prometheus_client import Counter, Histogram

    from kubeio.models import Meta
    from kubeio.protocol import RingKeys
    from kubeio.resource import ApiResource
    from sharder.metrics import SharderMetrics
    from sharder.planning.decisions import ObjectWrite
    from sharder.planning.keys import ControllerName, RingKinds
    from sharder.planning.planner import ControllerSeen
    from sharder.ringspec.spec import RingSpec
    from sharder.unowned.access import ObjectAccess
    from sharder.writing.refusals import Refusals

log = structlog.get_logger("sharder")

FIELD_MANAGER: Final = "ringleader-sharder"
WRITE_TIMEOUT_S: Final = 30.0
MOVES: Final = ("rebalance", "owner_dead")
"""Reasons of writes that begin a move from one shard to another."""
LOG_EVERY_S: Final = 5.0
"""Writes that fail are logged as often as this at most, with their number: an outage fails thousands."""


class WriteOutcome(StrEnum):
    """Outcome of a write.

    DONE: written. STALE: the object changed, decide anew on a fresh read. GONE: deleted. LATER: try again.
    DENIED: the permission to write this resource is missing, or such writes fail.
    `MissingPermissions` says when to retry.
    REFUSED: this object may not be changed (policy, webhook, schema); `Refusals` says when to retry.
    """

    DONE = "done"
    STALE = "stale"
    GONE = "gone"
    LATER = "later"
    DENIED = "denied"
    REFUSED = "refused"


class MoveObserver(Protocol):
    """Observer of label writes and of handoffs that ended: the live view."""

    def wrote(self, resource: ApiResource, meta: Meta, decision: ObjectWrite) -> None: ...

    def handed_over(self, ref: ObjectRef, meta: Meta) -> None: ...


class ObjectWriter:
    """Sends what the planner decided; every failure comes back as an `WriteOutcome`."""

    def __init__(
        self,
        access: ObjectAccess,
        spec: RingSpec,
        *,
        kinds: RingKinds,
        refusals: Refusals,
        metrics: SharderMetrics,
        limiter: WriteLimiter,
        observer: MoveObserver | None = None,
    ) -> None:
        self._client = access.client
        self._keys = spec.keys
        self._pace = spec.pace or Pace.BACKGROUND
        self._kinds = kinds
        self._permissions = access.permissions
        self.refusals = refusals
        self._tally = _Tally(metrics, spec.name)
        self._clock = access.clock
        self.moves = MoveStats()
        self.stripped = 0
        """Objects, without what they control, whose labels were taken off though no owner was asked to give them up."""
        self.limiter = limiter
        self._logged_at = -LOG_EVERY_S
        self._unlogged = 0
        self._observer = observer

    async def write(self, resource: ApiResource, meta: Meta, decision: ObjectWrite) -> WriteOutcome:
        """Carry out *decision* on the version of the object that *meta* is, when it gets a slot.

        A move, a release, a repair: the object has a worker, so the default pace is the polite one.
        """
        await self.limiter.enter(self._pace)
        try:
            return await self.write_with_slot(resource, meta, decision)
        finally:
            self.limiter.leave()

    async def write_with_slot(self, resource: ApiResource, meta: Meta, decision: ObjectWrite) -> WriteOutcome:
        """`write` for a caller that has a slot of `limiter` already."""
        right = Permission("patch", resource.group_resource, meta.namespace)
        if not self._permissions.may_try(right):
            return WriteOutcome.DENIED
        ref = ObjectRef(resource.group_resource, meta.key)
        if self.refusals.again_at(ref, uid=meta.uid) is not None:
            return WriteOutcome.REFUSED
        began = self._clock.now()
        try:
            await self._patch(resource, meta, decision)
        except KubeError as error:
            took_s = self._clock.now() - began
            if not (isinstance(error, ServerFailure) and self._permissions.is_failing(right)):
                self.limiter.failed(took_s, error)  # else the resource is unwell, not the server
            outcome = self._failed(meta, right, error)
            if isinstance(error, Invalid):
                outcome = await self._judged(resource, meta, decision)
            if outcome is WriteOutcome.REFUSED and isinstance(error, ApiError):
                self.refusals.refused(resource, meta, refusal(error))
        else:
            took_s = self._clock.now() - began
            self.limiter.answered(took_s)
            self._permissions.granted(right)
            outcome = WriteOutcome.DONE
        self._tally.note(decision, outcome, took_s)
        if outcome in (WriteOutcome.DONE, WriteOutcome.GONE):
            self.refusals.over(ref)
        if outcome is WriteOutcome.DONE:
            self._note(resource, meta, decision)
        return outcome

    async def _judged(self, resource: ApiResource, meta: Meta, decision: ObjectWrite) -> WriteOutcome:
        """Outcome of a 422: a `test` failed, or the server refuses the object's content, whichever client writes."""
        try:
            found = await self.read(resource, meta)
        except KubeError:
            return WriteOutcome.STALE
        if found is None:
            return WriteOutcome.GONE
        return WriteOutcome.REFUSED if _applies(decision, meta, found, self._keys) else WriteOutcome.STALE

    def _note(self, resource: ApiResource, meta: Meta, decision: ObjectWrite) -> None:
        if reason_of(decision) in MOVES and self._kinds.is_main(resource):
            self.moves.note(at=self._clock.now())
        if isinstance(decision, Strip) and self._is_unrequested(resource, meta):
            self.stripped += 1
        if self._observer is not None:
            self._observer.wrote(resource, meta, decision)

    def _is_unrequested(self, resource: ApiResource, meta: Meta) -> bool:
        """Whether *meta* had an owner that was not asked to give it up; `Handoffs` counts the others."""
        is_asked = meta.labels.get(self._keys.drain) == ""
        follows = isinstance(self._kinds.role(resource, meta), Controlled)
        return self._keys.shard in meta.labels and not is_asked and not follows

    async def read(self, resource: ApiResource, meta: Meta) -> Meta | None:
        """The newest version of the object, by a consistent read; None if it is gone or another took its name."""
        try:
            found = await self._client.get(
                resource, meta.name, namespace=meta.namespace, type=HasMeta, metadata_only=True
            )
        except NotFound:
            return None
        return found.metadata

    async def read_controller(self, controller: ControllerName) -> ControllerSeen:
        """Read the owner of an object's controller, and the key of its tree, by consistent reads."""
        return await read_controller(self._client, controller, kinds=self._kinds, keys=self._keys)

    async def _patch(self, resource: ApiResource, meta: Meta, decision: ObjectWrite) -> None:
        await self._client.patch(
            resource,
            meta.name,
            patch_of(decision, meta, keys=self._keys),
            namespace=meta.namespace,
            type=bytes,
            metadata_only=True,
            field_manager=FIELD_MANAGER,
            timeout_s=WRITE_TIMEOUT_S,
        )

    def _failed(self, meta: Meta, right: Permission, error: KubeError) -> WriteOutcome:
        match error:
            case Conflict() | Invalid():
                return WriteOutcome.STALE
            case NotFound():
                return WriteOutcome.GONE
            case BadRequest():
                return WriteOutcome.REFUSED
            case Forbidden() if not is_missing_right(error):
                return WriteOutcome.REFUSED  # a policy or webhook: of this object, not of the resource
            case Forbidden():
                self._permissions.failed(right, error)
                return WriteOutcome.DENIED
            case ServerFailure():
                self._permissions.failed(right, error)
                self._log(meta, error)
                return WriteOutcome.LATER
            case _:
                self._log(meta, error)
                return WriteOutcome.LATER

    def _log(self, meta: Meta, error: KubeError) -> None:
        self._unlogged += 1
        now = self._clock.now()
        if now - self._logged_at >= LOG_EVERY_S:
            log.warning(
                "objects could not be written",
                ring=self._keys.ring,
                writes=self._unlogged,
                last=str(meta.key),
                error=str(error),
                after_s=error.retry_after_s if isinstance(error, ApiError) else None,
            )
            self._logged_at, self._unlogged = now, 0


def _applies(decision: ObjectWrite, meta: Meta, found: Meta, keys: RingKeys) -> bool:
    """Whether what the patch of *decision* tests holds for *found*: then it was refused for another reason."""
    if found.uid != meta.uid:
        return False
    match decision:
        case Assign() | Strip() | Touch():
            return found.resource_version == meta.resource_version
        case Drain(owner=owner) | ReleaseDrain(owner=owner):
            return found.labels.get(keys.shard) == owner
        case UpdateDrain(owner=owner, was=was):
            return (found.labels.get(keys.shard), found.labels.get(keys.drain)) == (owner, was)


class _Tally:
    """Metrics of writes: the counter of each kind and outcome is looked up once, not for every write."""

    def __init__(self, metrics: SharderMetrics, ring: str) -> None:
        self._metrics = metrics
        self._ring = ring
        self._writes: dict[tuple[str, WriteOutcome], Counter] = {}
        self._moves: dict[str, Counter] = {}
        self._patch_s: dict[str, Histogram] = {}

    def note(self, decision: ObjectWrite, outcome: WriteOutcome, took_s: float) -> None:
        kind = type(decision).__name__
        writes = self._writes.get((kind, outcome))
        if writes is None:
            writes = self._metrics.writes.labels(ring=self._ring, kind=kind, outcome=outcome.value)
            self._writes[kind, outcome] = writes
        writes.inc()
        self._latency(kind).observe(took_s)
        if outcome is WriteOutcome.DONE:
            self._move(reason_of(decision)).inc()

    def _latency(self, kind: str) -> Histogram:
        found = self._patch_s.get(kind)
        if found is None:
            found = self._patch_s[kind] = self._metrics.patch_s.labels(ring=self._ring, kind=kind)
        return found

    def _move(self, reason: str) -> Counter:
        found = self._moves.get(reason)
        if found is None:
            found = self._moves[reason] = self._metrics.moves.labels(ring=self._ring, reason=reason)
        return found
