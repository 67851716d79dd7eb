"""Fenced writes of reconciles; creates are settled. The only writer to objects besides `drain`.

Owns the translation of the server's refusals (`Refused`, `Elsewhere`, `NotOurs`) and which requests are still
unanswered. Knows no user code.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, nullcontext
from types import TracebackType
from typing import Any

import msgspec
import structlog

from kubeio.backoff import exponential_s, jittered_s
from kubeio.clock import Clock
from kubeio.decoding import object_from
from kubeio.errors import AlreadyExists, Conflict, Invalid, KubeError, NotFound, ServerFailure, Unreachable
from kubeio.labels import json_pointer
from kubeio.leases.lease import Leases
from kubeio.models import Meta, Object, ObjectKey
from kubeio.patch import JsonPatch, MergePatch, Patch
from kubeio.rest.client import Client
from shard_controller.declare.errors import Elsewhere, LeaseNotHeld, NotOurs, Refused, StatusMissing
from shard_controller.declare.request import Request
from shard_controller.objects.caches import ResourceCache
from shard_controller.observe.observer import Observers
from shard_controller.observe.tracing import Spans
from shard_controller.shard.identities import Identities
from shard_controller.shard.ownership import Ownership

log = structlog.get_logger("shard_controller")

ANSWER_WITHIN_S = 60.0
"""A request that got no answer for this long will not be carried out any more."""


class Unanswered:
    """Requests whose fate is unknown: those under way, and those that failed without an answer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._under_way = 0
        self._lost_at = -math.inf
        """Instant of the last loss of an answer. A request waits for credentials and a connection before it is sent."""
        self._lost_creates: dict[str, float] = {}
        """Instant of the last loss of an answer to a CREATE, by the uid of the reconciled object; in order."""

    @asynccontextmanager
    async def request(self, *, creates_for: str = "") -> AsyncIterator[None]:
        """Around one write; around a CREATE by a reconcile of the object with the uid *creates_for*."""
        self._under_way += 1
        try:
            yield
        except Unreachable as error:
            if error.maybe_done:
                self._lose(creates_for)
            raise
        except ServerFailure as error:
            if error.status >= 500:  # a server that gives up on a write may still have stored it
                self._lose(creates_for)
            raise
        except asyncio.CancelledError:
            self._lose(creates_for)
            raise
        finally:
            self._under_way -= 1

    def _lose(self, creates_for: str) -> None:
        self._lost_at = self._clock.now()
        self._lost_creates.pop(creates_for, None)
        while (oldest := next(iter(self._lost_creates), "")) and not self.creates_settled_in_s(oldest):
            del self._lost_creates[oldest]
        if creates_for:
            self._lost_creates[creates_for] = self._lost_at

    def settled_in_s(self) -> float | None:
        """In how many seconds every request sent is answered or too old; None while some are under way."""
        return None if self._under_way else max(0.0, self._lost_at - self._horizon)

    def creates_settled_in_s(self, uid: str) -> float:
        """In how many seconds no lost CREATE can arrive any more that a reconcile of the object with *uid* sent."""
        return max(0.0, self._lost_creates.get(uid, -math.inf) - self._horizon)

    @property
    def _horizon(self) -> float:
        """Whatever was lost at this instant or before is too old to arrive."""
        return self._clock.now() - ANSWER_WITHIN_S


class FencedWriter:
    """Writes of one process by *clients*, under the fence of its *ownership*. *leases*: the shards' own, on a ring.

    Creates run in its tasks while it is entered: they outlive the reconcile that asked for them.
    """

    def __init__(
        self,
        clients: Identities,
        ownership: Ownership,
        *,
        leases: Leases | None,
        field_manager: str,
        observers: Observers,
        spans: Spans | None,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.client = clients.plain
        self._named = clients.life
        self.ownership = ownership
        self._leases = leases
        self._field_manager = field_manager
        self._observers = observers
        self._spans = spans
        self.clock = clock
        self._rng = rng
        self.unanswered = Unanswered(clock)
        self._creates = asyncio.TaskGroup()

    async def __aenter__(self) -> FencedWriter:
        await self._creates.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._creates.__aexit__(exc_type, exc, trace)

    @asynccontextmanager
    async def _write(
        self, verb: str, kind: ResourceCache, key: ObjectKey, *, subresource: str = "", creates_for: str = ""
    ) -> AsyncIterator[None]:
        """Around one write: it is unanswered until it ends, and a span where there are spans."""
        spans = self._spans
        span = spans.write(verb, kind.name, key, subresource=subresource) if spans else nullcontext()
        with span:
            async with self.unanswered.request(creates_for=creates_for):
                yield

    async def read(self, kind: ResourceCache, key: ObjectKey) -> Object | None:
        """The object as a consistent read shows it; its state counts from now on. None: there is none."""
        shown = kind.meta(key)
        try:
            raw = await self.client.get(kind.resource, key.name, namespace=key.namespace, type=bytes)
        except NotFound:
            self.ownership.was_missing(kind, key, shown=shown)
            return None
        found = object_from(raw)
        self.ownership.was_read(kind, found.meta)
        return found

    async def patch(
        self, kind: ResourceCache, meta: Meta, patch: JsonPatch, *, subresource: str = ""
    ) -> Object:
        """Send *patch* behind the fence's tests. Raises: Refused, NotFound, StatusMissing, other KubeErrors."""
        fenced = JsonPatch(self.ownership.fence(meta).operations + patch.operations)
        try:
            answer = await self._send_patch(self._named, kind, meta, fenced, subresource=subresource)
        except (Invalid, Conflict) as error:
            await self._explain_refusal(kind, meta, error)
            raise
        except NotFound as error:
            if subresource and await self._has(kind, meta):
                raise StatusMissing(kind.name) from error
            self.ownership.was_missing(kind, meta.key, shown=meta)
            raise
        kind.wrote(answer)
        return answer

    async def _has(self, kind: ResourceCache, meta: Meta) -> bool:
        """Whether the object is still there: then it was its subresource that was not found."""
        found = await self.read(kind, meta.key)
        return found is not None and found.meta.uid == meta.uid

    async def acknowledge(self, kind: ResourceCache, meta: Meta, patch: MergePatch) -> Object:
        """Send *patch* of a handoff; it carries its own test. Raises what the client raises."""
        return await self._send_patch(self.client, kind, meta, patch)

    async def delete(self, kind: ResourceCache, meta: Meta) -> None:
        """Delete exactly the version that *meta* shows. Raises: Refused; an object that is gone is fine."""
        try:
            async with self._write("delete", kind, meta.key):
                await self._named.delete(
                    kind.resource,
                    meta.name,
                    namespace=meta.namespace,
                    uid=meta.uid,
                    resource_version=meta.resource_version,
                    propagation="Background",
                )
        except (Conflict, Invalid) as error:  # 422: a policy's
            await self._explain_refusal(kind, meta, error)
            raise Refused(_name(kind, meta.key), status=error.status, message=error.message) from error
        except NotFound:
            self.ownership.was_missing(kind, meta.key, shown=meta)

    def start_create(
        self,
        kind: ResourceCache,
        body: Mapping[str, object],
        *,
        key: ObjectKey,
        owner_uid: str,
        is_wanted: Callable[[], bool],
    ) -> asyncio.Task[Object | Exception]:
        """`create` in a task of the writer; an error is its result."""
        call = self.create(kind, body, key=key, owner_uid=owner_uid, is_wanted=is_wanted)
        return self._creates.create_task(_outcome(call), name=f"create {_name(kind, key)}")

    async def create(
        self,
        kind: ResourceCache,
        body: Mapping[str, object],
        *,
        key: ObjectKey,
        owner_uid: str,
        is_wanted: Callable[[], bool],
    ) -> Object:
        """Create a controlled object and return it, or the one of the same owner that is there already.

        After a lost answer a GET finds it, or else the CREATE is repeated as long as *is_wanted*. Neither says that
        the lost one will not arrive: `Unanswered` keeps it. Raises: NotOurs, Elsewhere, LeaseNotHeld, KubeError.
        """
        attempt = 0
        lost: KubeError | None = None
        while True:
            if lost is not None and not is_wanted():
                raise lost
            if not self.ownership.is_held():
                raise LeaseNotHeld(f"{_name(kind, key)} not created: the lease is too old")
            try:
                async with self._write("create", kind, key, creates_for=owner_uid):
                    raw = await self.client.create(
                        kind.resource,
                        body,
                        namespace=key.namespace,
                        type=bytes,
                        field_manager=self._field_manager,
                    )
                created = object_from(raw)
            except AlreadyExists as error:
                lost = error
            except Unreachable as error:
                if not error.maybe_done:
                    raise
                lost = error
            except ServerFailure as error:
                lost = error
            else:
                kind.wrote(created, is_new=True)
                return created
            found = await self._read_until_answered(kind, key, is_wanted)
            if found is not None:
                return await self._adopt(kind, found, owner_uid=owner_uid)
            await asyncio.sleep(self._pause_s(attempt))
            attempt += 1

    async def _read_until_answered(
        self, kind: ResourceCache, key: ObjectKey, is_wanted: Callable[[], bool]
    ) -> Object | None:
        """GET until the server answers, as long as *is_wanted*."""
        attempt = 0
        while True:
            try:
                return await self.read(kind, key)
            except (Unreachable, ServerFailure) as error:
                if not is_wanted():
                    raise
                log.warning("create not settled yet", object=_name(kind, key), error=str(error))
            await asyncio.sleep(self._pause_s(attempt))
            attempt += 1

    def _pause_s(self, attempt: int) -> float:
        return jittered_s(exponential_s(attempt, base_s=0.05, max_s=5.0), self._rng, jitter=0.2)

    async def _adopt(self, kind: ResourceCache, found: Object, *, owner_uid: str) -> Object:
        controller = found.meta.controller
        if controller is None or controller.uid != owner_uid:
            raise NotOurs(_name(kind, found.meta.key), controller=str(controller or ""))
        if not self.ownership.may_write(found.meta):
            await self._claim(kind, found.meta)
        kind.wrote(found, is_new=True)
        return found

    async def _claim(self, kind: ResourceCache, meta: Meta) -> None:
        """Ask the live shard that has our controlled object to pass it on (protocol, 5.8). Always raises Elsewhere."""
        keys, shard = self.ownership.keys, self.ownership.shard
        if keys is None:
            raise Elsewhere(_name(kind, meta.key), shard="")
        other = meta.labels.get(keys.shard, "")
        is_asked = meta.labels.get(keys.drain) == shard
        if other and not is_asked and await self._is_live(other):
            label = json_pointer("metadata", "labels", keys.shard)
            drain = json_pointer("metadata", "labels", keys.drain)
            patch = JsonPatch().test("/metadata/uid", meta.uid).test(label, other).add(drain, shard)
            try:
                await self._send_patch(self.client, kind, meta, patch)
                log.info("controlled object asked for", object=_name(kind, meta.key), owner=other)
            except (Invalid, NotFound):
                pass  # it moved meanwhile: the retry will see
        raise Elsewhere(_name(kind, meta.key), shard=other)

    async def _is_live(self, shard: str) -> bool:
        if self._leases is None:
            return False
        try:
            lease = await self._leases.get(shard)
        except NotFound:
            return False
        return (lease.spec.holder_identity or "") in ("", shard)

    async def _send_patch(
        self, client: Client, kind: ResourceCache, meta: Meta, patch: Patch, *, subresource: str = ""
    ) -> Object:
        async with self._write("patch", kind, meta.key, subresource=subresource):
            raw = await client.patch(
                kind.resource,
                meta.name,
                patch,
                namespace=meta.namespace,
                subresource=subresource,
                type=bytes,
                field_manager=self._field_manager,
            )
        return object_from(raw)

    async def _explain_refusal(self, kind: ResourceCache, meta: Meta, error: Invalid | Conflict) -> None:
        """Read again after a 422 or 409. Raises Refused unless the fence would hold: then the content was refused."""
        found = await self.read(kind, meta.key)
        is_still_ours = (
            found is not None and found.meta.uid == meta.uid and self.ownership.may_write(found.meta)
        )
        if (
            is_still_ours
            and isinstance(error, Invalid)
            and self.ownership.fence(meta) == self._tests_of(found)
        ):
            return
        for observer in self._observers:
            observer.refused(Request(kind.name, meta.key), error)
        raise Refused(_name(kind, meta.key), status=error.status, message=error.message) from error

    def _tests_of(self, found: Object | None) -> JsonPatch | None:
        return self.ownership.fence(found.meta) if found else None


async def _outcome(call: Coroutine[Any, Any, Object]) -> Object | Exception:
    """Result or error of *call* as a value: a failure must not end the task group that it runs in."""
    try:
        return await call
    except Exception as error:  # handed to the reconcile that asked
        return error


def _name(kind: ResourceCache, key: ObjectKey) -> str:
    return f"{kind.name} {key}"


def decode_map(raw: bytes) -> dict[str, object]:
    """The whole object as a map, for comparison."""
    return msgspec.json.decode(raw, type=dict[str, object])
