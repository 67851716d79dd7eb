"""Controller of one ring: composes its components, starts them when this sharder leads, and when the spec changes.

Standbys run the membership controller too, so that a new leader knows since when each Lease has been silent. An
obstacle (a resource that is not served, a missing permission) becomes a condition and is retried.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.cancellation import cancellable
from kubeio.errors import Conflict, InputError, KubeError, NotFound, first_error
from kubeio.program.failures import failure
from sharder.errors import RingRefused
from sharder.membership.controller import MembershipController
from sharder.planning.keys import RingKinds
from sharder.rings.acting import ActingRing
from sharder.rings.finalizer import WORKED_AS, ensure_finalizer
from sharder.rings.status import IMPLEMENTATION, refused_conditions, unserved
from sharder.rings.status_writer import StatusWriter
from sharder.ringspec.parsing import immutable_changes, parse_spec, worked_as
from sharder.ringspec.worked import united

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kubeio.models import GroupResource
    from kubeio.resource import ApiResource
    from sharder.rings.store import Ring, RingStore
    from sharder.ringspec.scope import Scope
    from sharder.ringspec.spec import RingResource, RingSpec
    from sharder.sharder_context import SharderContext

log = structlog.get_logger("sharder")

RETRY_S: Final = 5.0
CONFLICT_RETRY_S: Final = 0.2
NOT_FOUND_RETRY_S: Final = 1.0
UNSERVED_RETRY_S: Final = 10.0
"""Two GETs; a definition that comes back is noticed within this."""


class RingController:
    """Controller of one ring. `run` lasts until cancelled; `change` and `lead` report a newer ring and leadership."""

    def __init__(
        self,
        context: SharderContext,
        ring: Ring,
        *,
        store: RingStore,
        scope: Scope,
    ) -> None:
        self._context = context
        self._ring = ring
        self._store = store
        self._scope = scope
        self._changed = asyncio.Event()
        self._remedies: dict[GroupResource, str] = {}
        """Suggestions for the resources that were not served."""
        self._is_leading = False
        self._worked_as = ""
        self._membership: MembershipController | None = None
        self.name = ring.name
        self.uid = ring.metadata.uid

    def change(self, ring: Ring) -> None:
        """A newer version of the ring was seen."""
        old, self._ring = self._ring, ring
        if self._membership is not None:
            self._membership.note_longest_lease(ring.longest_lease_s)
        if _substance(old) != _substance(ring):
            self._changed.set()

    def why_not_alive(self) -> str | None:
        """Problem that a restart would cure; None if there is none."""
        return self._membership.reads.why_not_alive() if self._membership is not None else None

    def lead(self) -> None:
        """This sharder acts from now on."""
        self._is_leading = True
        self._changed.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            running = asyncio.create_task(self._run_spec(), name=f"ring {self.name}")
            changed = asyncio.create_task(self._changed.wait(), name=f"ring changes {self.name}")
            try:
                await asyncio.wait({running, changed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _end(running, changed)

    async def _run_spec(self) -> None:
        """Run under the present spec; an obstacle is reported, and the run retried."""
        while True:
            try:
                await cancellable(self._run_once(), name=f"ring run {self.name}")
            except RingRefused as refused:
                log.error("ring refused", ring=self.name, problems=[str(p) for p in refused.problems])
                await self._report_refusal("InvalidSpec", "; ".join(str(p) for p in refused.problems))
                await asyncio.Event().wait()  # only another spec can help: `run` starts anew then
            except (KubeError, ExceptionGroup) as raised:
                error = first_error(raised)
                if not isinstance(error, KubeError):
                    raise
                if isinstance(error, Conflict):  # another client wrote to the ring at the same time
                    await asyncio.sleep(CONFLICT_RETRY_S)
                    continue
                if isinstance(error, NotFound):  # a resource, in this version: is another one served?
                    log.warning("resource not found, repeating discovery", ring=self.name, error=str(error))
                    self._context.discovery.forget()
                    await asyncio.sleep(NOT_FOUND_RETRY_S)
                    continue
                message = failure(error).message
                log.error("ring cannot be worked", ring=self.name, error=message)
                await self._report_refusal(type(error).__name__, message)
            await asyncio.sleep(RETRY_S)

    async def _run_once(self) -> None:
        spec = self._parse()
        resolved = await self._resolve(spec.resources)
        if not self._ring.is_deleted and not any(entry.main in resolved for entry in spec.resources):
            await self._context.discovery.resolve(str(spec.resources[0].main))  # raises, with suggestions
        is_acting = self._is_leading and self._is_ours()
        if is_acting:
            worked = await ensure_finalizer(self._store, spec)
        else:
            worked = united(self._ring.worked, spec.resources)
        resolved |= await self._resolve(worked)
        kinds = RingKinds(spec, resolved, worked=worked, releasing=self._ring.is_deleted)
        self._scope.check(self.name, kinds.labelled)
        membership = self._configure_membership(spec, kinds)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(membership.run(), name=f"membership {self.name}")
            if kinds.unserved:
                tasks.create_task(self._watch_unserved(kinds.unserved), name=f"unserved {self.name}")
            if self._context.webhook is not None and spec.assign_at_admission and self._is_ours():
                serve = self._context.webhook.serve(spec, kinds, membership, releasing=self._ring.is_deleted)
                tasks.create_task(serve, name=f"admission {self.name}")
            ring_view = self._context.live.open(spec, kinds, membership)
            tasks.create_task(ring_view.follow(), name=f"live view {self.name}")
            if is_acting:
                acting = ActingRing(
                    self._context,
                    self._store,
                    scope=self._scope,
                    spec=spec,
                    kinds=kinds,
                    membership=membership,
                    releasing=self._ring.is_deleted,
                    ring_view=ring_view,
                )
                has_former = worked != united((), spec.resources)
                sentences = [unserved(kind, self._remedies[kind]) for kind in kinds.unserved]
                run = acting.run(lambda: self._ring, has_former=has_former, unserved=sentences)
                tasks.create_task(run, name=f"acting {self.name}")

    async def _resolve(self, entries: Iterable[RingResource]) -> dict[GroupResource, ApiResource]:
        """Kinds of *entries* that the server serves, each with its resource."""
        found = {}
        for kind in dict.fromkeys(kind for entry in entries for kind in (entry.main, *entry.controlled)):
            try:
                found[kind] = await self._context.discovery.resolve(str(kind))
            except InputError as error:
                log.warning("resource is not served", ring=self.name, resource=str(kind))
                self._remedies[kind] = error.remedy
        return found

    async def _served(self, kind: GroupResource) -> ApiResource | None:
        try:
            return await self._context.discovery.resolve(str(kind))
        except InputError:
            return None

    async def _watch_unserved(self, kinds: Iterable[GroupResource]) -> None:
        """Begin the run anew when one of *kinds* is served."""
        while True:
            await asyncio.sleep(UNSERVED_RETRY_S)
            try:
                served = [str(kind) for kind in kinds if await self._served(kind) is not None]
            except KubeError as error:
                log.warning("discovery failed", ring=self.name, error=str(error))
                continue
            if served:
                log.info("resource is served again", ring=self.name, resources=served)
                self._changed.set()
                return

    def _parse(self) -> RingSpec:
        spec = parse_spec(self.name, self._ring.spec)
        before = self._ring.metadata.annotations.get(WORKED_AS) or self._worked_as
        problems = immutable_changes(before, spec)
        if problems:
            raise RingRefused(self.name, problems)
        self._worked_as = worked_as(spec)
        return spec

    def _configure_membership(self, spec: RingSpec, kinds: RingKinds) -> MembershipController:
        """The ring's one membership controller: its memory outlives changes of the spec and of leadership."""
        if self._membership is None:
            self._membership = MembershipController(
                self._context.lease_client,
                self._context.client,
                spec,
                kinds.labelled,
                identity=self._context.identity,
                scope=self._scope,
                clock=self._context.clock,
                rng=self._context.rng,
            )
        self._membership.configure(spec, kinds.labelled, releasing=self._ring.is_deleted)
        self._membership.note_longest_lease(self._ring.longest_lease_s)
        self._membership.act(self._is_leading and self._is_ours())
        return self._membership

    def _is_ours(self) -> bool:
        """Another implementation's ring is left alone (protocol, section 2)."""
        is_ours = _is_ours(self._ring)
        if not is_ours:
            log.warning("ring is worked by another sharder", ring=self.name, sharder=self._ring.sharder)
        return is_ours

    async def _report_refusal(self, reason: str, message: str) -> None:
        self._context.live.refuse(self.name, message)
        if not self._is_leading or not self._is_ours():
            return
        status_writer = StatusWriter(self._store, lambda: self._ring, clock=self._context.clock)
        generation = self._ring.metadata.generation
        conditions = refused_conditions(reason, message)
        self._context.metrics.refuse(self.name, {each.type: each.status for each in conditions})
        dated = status_writer.dated(conditions, generation=generation)
        await status_writer.write(
            {"observedGeneration": generation, "sharder": IMPLEMENTATION, "conditions": dated}
        )


def _is_ours(ring: Ring) -> bool:
    return ring.sharder in ("", IMPLEMENTATION)


def _substance(ring: Ring) -> object:
    """Parts of a ring whose change begins the run anew: of its status only which implementation works it."""
    return ring.spec, ring.is_deleted, _is_ours(ring)


async def _end(*tasks: asyncio.Task[object]) -> None:
    """Cancel *tasks* and wait; an error that one of them raised by itself is passed on."""
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
