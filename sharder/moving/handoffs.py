"""The handoffs in flight: every object with a drain label, as a watch shows them.

Owns the drain budget. Points requests to where the ring wants the objects now, reports those past their timeout,
and, if the ring's policy says so, has the owner's Lease taken. `sharder.moving.drain_requests` starts handoffs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.models import Meta, ObjectRef
from kubeio.watches.reflector import Changed, ListDone, Listed, ListStarted, Removed, WatchEvent
from sharder.moving.budget import DrainBudget, Handoff
from sharder.planning.decisions import Decision, Nothing, ReleaseDrain, Strip, UpdateDrain, Wait
from sharder.planning.keys import Controlled, Root, essential
from sharder.ringspec.spec import DrainPolicy
from sharder.writing.object_writer import WriteOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kubeio.resource import ApiResource
    from sharder.moving.missent import MissentObjects
    from sharder.writing.object_writer import MoveObserver
    from sharder.writing.ring_context import RingContext

log = structlog.get_logger("sharder")

RETRY_S: Final = 1.0
SYNCS_WITHIN_S: Final = 10.0
"""Passes wait for the first lists of drain labels so long at most: one resource that fails stops no other."""


class Handoffs:
    """Handoffs in flight, followed until cancelled."""

    def __init__(
        self, context: RingContext, missent: MissentObjects, observer: MoveObserver | None = None
    ) -> None:
        """*missent* gets objects that may have been passed on to where they do not belong."""
        spec = context.spec
        self._missent = missent
        self._observer = observer
        self.budget = DrainBudget(
            max_in_flight=spec.max_in_flight,
            max_per_owner=spec.max_in_flight_per_owner,
            timeout_s=spec.drain_timeout_s,
        )
        self.synced = asyncio.Event()
        self._context = context
        self._took_s = context.metrics.handoff_s.labels(ring=spec.name)
        self._metas: dict[ObjectRef, Meta] = {}
        self._listing: dict[tuple[str, str], set[ObjectRef]] = {}
        self._listing_since: dict[tuple[str, str], float] = {}
        self._listed: set[tuple[str, str]] = set()
        self._denied: set[tuple[str, str]] = set()
        """Resources and namespaces that cannot be watched for now: the others do not wait for them."""
        self._changed = asyncio.Event()
        self._woken = asyncio.Event()
        self._unplanned: dict[ObjectRef, None] = {}  # in order
        """Objects whose present version has no plan yet that was carried out. One that ends before may be missent."""
        self._is_everything_due = True
        self._reported: set[str] = set()
        self._forced: set[str] = set()
        self._unshown: set[ObjectRef] = set()
        """Objects whose owner was asked to give them up, until a watch shows the request."""
        self.given_up = 0
        """Objects, without what they control, that were given up, or were gone before their owner answered."""
        self.answered_at = 0.0
        """Instant of an owner's last answer, on the sharder's clock."""

    def __len__(self) -> int:
        return len(self._metas)

    def __contains__(self, ref: ObjectRef) -> bool:
        return ref in self._metas

    def is_free_of_former(self) -> bool:
        """Whether no object of a resource that the ring gave up carries a drain label, as far as they can be seen."""
        names = {resource.group_resource for resource in self._context.kinds.former}
        former = {(name, namespace) for name in names for namespace in self._context.scope.namespaces}
        return former <= self._listed and not any(ref.resource in names for ref in self._metas)

    def oldest(self, count: int) -> list[tuple[ObjectRef, Handoff, Meta | None]]:
        """The first *count* handoffs under way, oldest first; None for what no watch has shown yet."""
        found = self.budget.oldest(count)
        return [(ref, each, self._metas.get(ref)) for ref, each in found]

    def begin(self, ref: ObjectRef, owner: str) -> None:
        """A drain is about to be sent: it counts before the watch shows it."""
        self.budget.begin(ref, owner=owner, at=self._context.clock.now())

    def failed(self, ref: ObjectRef) -> None:
        """The drain was not written after all."""
        if ref not in self._metas:
            self.budget.end(ref)
            self._changed.set()

    def asked_to_give_up(self, ref: ObjectRef) -> None:
        """Count the end of a drain that was just written, though no watch may ever show it."""
        if ref in self.budget and ref not in self._metas:
            self._unshown.add(ref)

    def redirect_all(self) -> None:
        """Plan everything in flight again: it may be wanted elsewhere, or be kept."""
        self._is_everything_due = True
        self._woken.set()

    async def wait_changed(self, *, at_most_s: float | None = None) -> None:
        """Return at the next change of what is in flight, when a handoff becomes overdue, or after *at_most_s*."""
        self._changed.clear()
        now = self._context.clock.now()
        deadline = self.budget.next_deadline(at=now)
        waits = [at_most_s] if at_most_s is not None else []
        if deadline is not None:
            waits.append(max(0.0, deadline - now))
        timeout_s = min(waits, default=None)
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def run(self) -> None:
        self._note_synced()
        async with asyncio.TaskGroup() as tasks:
            for namespace in self._context.scope.namespaces:
                for resource in self._context.kinds.labelled:
                    name = f"handoffs {resource.group_resource} {namespace}".rstrip()
                    tasks.create_task(self._watch(resource, namespace), name=name)
            tasks.create_task(self._sync_in_time(), name="handoffs synced")
            tasks.create_task(self._follow_states(), name="redirect on state")
            tasks.create_task(self._redirect(), name="redirect handoffs")
            tasks.create_task(self.report(), name="report handoffs")

    async def _watch(self, resource: ApiResource, namespace: str) -> None:
        def on_denied() -> None:
            self._denied.add((resource.group_resource, namespace))
            self._note_synced()

        events = self._context.access.watch(
            resource, namespace=namespace, label_selector=self._context.keys.drain, on_denied=on_denied
        )
        async with aclosing(events):
            async for event in events:
                self.take(resource, namespace, event)

    def take(self, resource: ApiResource, namespace: str, event: WatchEvent) -> None:
        """Take in what the watch of *resource* in *namespace* shows."""
        name = resource.group_resource
        where = name, namespace
        match event:
            case ListStarted():
                self._listing[where] = set()
                self._listing_since[where] = self._context.clock.now()
            case Listed(objects=objects):
                for item in objects:
                    self._listing[where].add(self._seen(name, item.meta))
            case ListDone():
                self._end_unlisted(where)
                self._listed.add(where)
                self._note_synced()
            case Changed(object=item):
                self._seen(name, item.meta)
            case Removed(object=item):
                self._ended(ObjectRef(name, item.meta.key))
            case _:
                return
        self._changed.set()

    def _end_unlisted(self, where: tuple[str, str]) -> None:
        """End the handoffs that a complete list did not show: these objects are handed over, or gone.

        Also those that no watch ever showed: requested, and answered while the watch was away.
        """
        name, namespace = where
        asked = self.budget.begun_before(self._listing_since.get(where, 0.0))
        for ref in {*self._metas, *asked}:
            is_here = ref.resource == name and namespace in ("", ref.key.namespace)
            if is_here and ref not in self._listing[where]:
                self._ended(ref)

    def _note_synced(self) -> None:
        known = self._listed | self._denied
        namespaces = self._context.scope.namespaces
        names = [resource.group_resource for resource in self._context.kinds.resources]
        if all((name, namespace) in known for name in names for namespace in namespaces):
            self.synced.set()

    async def _sync_in_time(self) -> None:
        await asyncio.sleep(SYNCS_WITHIN_S)
        if not self.synced.is_set():
            log.warning("passes begin although not all handoffs are known", ring=self._context.spec.name)
            self.synced.set()

    def _seen(self, resource: str, meta: Meta) -> ObjectRef:
        ref = ObjectRef(resource, meta.key)
        kept = self._metas[ref] = essential(meta, self._context.spec.labels_read)
        self._unshown.discard(ref)
        self.budget.begin(
            ref,
            owner=meta.labels.get(self._context.keys.shard, ""),
            at=self._context.clock.now(),
            asked=self._is_wanted(ref, kept),
        )
        self._unplanned[ref] = None
        self._woken.set()
        return ref

    def _is_wanted(self, ref: ObjectRef, meta: Meta) -> bool:
        """Whether a sharder would ask for it now: of roots, for where they belong. Any client may write labels."""
        role = self._context.kinds.role(self._context.resource(ref), meta)
        return isinstance(role, Root) and isinstance(self._plan(ref, meta), Nothing | Wait)

    def _ended(self, ref: ObjectRef) -> None:
        meta = self._metas.pop(ref, None)
        if meta is not None and ref in self._unplanned and isinstance(self._plan(ref, meta), UpdateDrain):
            self._missent.add(ref)
        self._unplanned.pop(ref, None)
        self.answered_at = self._context.clock.now()
        handoff = self.budget.answered(ref, at=self.answered_at)
        if handoff is not None and handoff.asked:
            self._took_s.observe(self.answered_at - handoff.since)
        if self._is_given_up(ref, meta):
            self.given_up += 1
        self._unshown.discard(ref)
        if meta is not None and self._observer is not None:
            self._observer.handed_over(ref, meta)

    def _is_given_up(self, ref: ObjectRef, last: Meta | None) -> bool:
        if last is None:
            return ref in self._unshown
        role = self._context.kinds.role(self._context.resource(ref), last)
        return last.labels.get(self._context.keys.drain) == "" and not isinstance(role, Controlled)

    async def _follow_states(self) -> None:
        state = self._context.states.current
        while True:
            state = await self._context.states.wait_newer(state)
            self.redirect_all()

    async def _redirect(self) -> None:
        """Point handoffs in flight to where their objects belong now, at each change of the ring or of a request."""
        await self.synced.wait()
        while True:
            self._woken.clear()
            if self._is_everything_due:
                self._unplanned = dict.fromkeys(self._metas)
                self._is_everything_due = False
            for ref in list(self._unplanned):
                meta = self._metas.get(ref)
                if meta is not None and await self._redirect_one(ref, meta) and self._metas.get(ref) is meta:
                    self._unplanned.pop(ref, None)
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if self._unplanned else None):
                    await self._woken.wait()

    async def _redirect_one(self, ref: ObjectRef, meta: Meta) -> bool:
        """False if what is to be written could not be written now."""
        context = self._context
        resource = context.resource(ref)
        decision = self._plan(ref, meta)
        is_of_former_kind = resource in context.kinds.former  # no unowned watch shows it
        match decision:
            case Strip(without_lease=owner) if not is_of_former_kind or owner:
                return True  # the assigner's, who has evidence
            case UpdateDrain() | ReleaseDrain() | Strip():
                pass
            case _:
                return True
        outcome = await context.objects.write(resource, meta, decision)
        return outcome in (WriteOutcome.DONE, WriteOutcome.GONE)  # STALE: the watch will show how it went on

    def _plan(self, ref: ObjectRef, meta: Meta) -> Decision:
        context = self._context
        return context.plan(context.subject(context.resource(ref), meta))

    async def report(self) -> None:
        """Name each owner that is late with handoffs once, and force it if the ring wants that; until cancelled.

        Status and metrics have the number of late handoffs.
        """
        while True:
            await self.wait_changed(at_most_s=self._forces_in_s())
            now = self._context.clock.now()
            late = Counter(h.owner for h in self.budget.overdue(at=now).values())
            self._report_late({owner: count for owner, count in late.items() if owner not in self._reported})
            self._force(owner for owner in late if self.budget.hangs(owner, at=now))
            self._forced &= late.keys()
            for owner in self._reported - late.keys():
                log.info("handoffs no longer overdue", ring=self._context.spec.name, shard=owner)
            self._reported = set(late)

    def _report_late(self, late: dict[str, int]) -> None:
        for owner, count in late.items():
            log.error("handoffs overdue", ring=self._context.spec.name, shard=owner, objects=count)
            self._context.events.record(
                self._context.ring,
                reason="DrainTimeout",
                action="Drain",
                note=f"shard {owner} has not passed objects on within {self._context.spec.drain_timeout_s:g} s",
                type="Warning",
            )

    def _force(self, owners: Iterable[str]) -> None:
        """Have the Leases of *owners* taken, if the ring wants that: they answered nothing for the whole timeout.

        An owner that answers, and keeps one object back, is not the reason: it would cost all its others a minute.
        """
        if self._context.spec.drain_policy is not DrainPolicy.FORCE:
            return
        for owner in owners:
            if owner not in self._forced and self._context.membership.force(owner):
                self._forced.add(owner)

    def _forces_in_s(self) -> float | None:
        """Seconds until some late owner may have to be forced; None if none may."""
        if self._context.spec.drain_policy is not DrainPolicy.FORCE:
            return None
        now = self._context.clock.now()
        waits = [self.budget.hangs_at(owner) - now for owner in self._reported - self._forced]
        wait_s = min(waits, default=None)
        return wait_s if wait_s is None or wait_s > 0 else RETRY_S
