"""An endless slow pass over all objects, labelled or not: it finds the remains of lost events and stale writes (6.8).

Pages are spread evenly over the ring's audit interval by the number of objects; one page is held at a time. A fault
that the watches would show a moment later is no finding: each suspect is read again after a pause. The audit writes
nothing: the assigner and the passes do.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.errors import Expired, KubeError
from kubeio.models import ObjectRef
from sharder.planning.controllers import ControllerKeys
from sharder.planning.decisions import (
    Assign,
    Decision,
    Drain,
    NeedController,
    ReleaseDrain,
    ReportUnknown,
    Strip,
    UpdateDrain,
)
from sharder.planning.keys import Controlled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kubeio.models import Meta
    from kubeio.resource import ApiResource
    from sharder.moving.scan import Scan
    from sharder.planning.keys import Role
    from sharder.writing.assignment_queue import AssignmentQueue
    from sharder.writing.ring_context import RingContext

log = structlog.get_logger("sharder")

PAGE: Final = 500
SKIPPED_PAGE: Final = 2000
"""Page size while a list that broke off is taken up again by names."""
REMEMBERED: Final = 1000
SHORTEST_PAUSE_S: Final = 0.2
GRACE_S: Final = 1.0
"""Watches may be so late."""


@dataclass(frozen=True, slots=True)
class AuditPosition:
    """One list of the pass, and the number of its objects by the server's count."""

    resource: ApiResource
    namespace: str
    count: int


class AuditPace:
    """Schedule of one audit pass: its objects are due evenly, over *interval_s* from *began_at*."""

    def __init__(self, *, interval_s: float, objects: int, began_at: float) -> None:
        self._interval_s = interval_s
        self._objects = max(1, objects)
        self._began_at = began_at
        self._done = 0

    def pause_s(self, looked_at: int, *, now: float) -> float:
        """Seconds to wait before the next objects, now that *looked_at* more are done."""
        self._done += looked_at
        due_at = self._began_at + self._interval_s * min(1.0, self._done / self._objects)
        return max(SHORTEST_PAUSE_S, due_at - now)

    def rest_s(self, *, now: float) -> float:
        """Seconds that the pass still has to last, at least `SHORTEST_PAUSE_S`."""
        return max(SHORTEST_PAUSE_S, self._began_at + self._interval_s - now)


class Audit:
    """Checks all objects of one ring, pass after pass, until cancelled."""

    def __init__(self, context: RingContext, scan: Scan, queue: AssignmentQueue) -> None:
        self._context = context
        self._scan = scan
        self._queue = queue
        self._controller_keys = ControllerKeys(
            context.kinds, context.objects.read_controller, most=REMEMBERED
        )

    async def run(self) -> None:
        for what in FINDINGS:  # the first increase of a series is seen only if it was scraped before
            self._context.metrics.audit_found.labels(ring=self._ring, what=what)
        while True:
            await self._run_pass()

    async def _run_pass(self) -> None:
        """Everything once, converged or not."""
        self._controller_keys.forget()
        began_at = self._context.clock.now()
        places = [place async for place in self._places()]
        objects = sum(place.count for place in places)
        pace = AuditPace(interval_s=self._context.spec.audit_interval_s, objects=objects, began_at=began_at)
        found: Counter[str] = Counter()
        for place in places:
            try:
                found += await self._go_over(place, pace)
            except KubeError as error:
                log.warning("audit cannot list", ring=self._ring, error=str(error))
                await asyncio.sleep(SHORTEST_PAUSE_S)
        if found:
            log.warning("audit found what no watch had shown", ring=self._ring, found=dict(found))
        await asyncio.sleep(pace.rest_s(now=self._context.clock.now()))

    async def _places(self) -> AsyncIterator[AuditPosition]:
        """Every list of the pass, counted by the server."""
        for namespace in self._context.scope.namespaces:
            for resource in self._context.kinds.labelled:
                try:
                    page = await self._context.client.list_page(
                        resource, namespace=namespace, limit=1, metadata_only=True
                    )
                except KubeError as error:
                    log.warning("audit cannot list", ring=self._ring, error=str(error))
                    continue
                yield AuditPosition(resource, namespace, len(page.objects) + (page.remaining or 0))

    async def _go_over(self, place: AuditPosition, pace: AuditPace) -> Counter[str]:
        found: Counter[str] = Counter()
        async for metas in self._pages(place):
            looked_at = len(metas)
            suspects = await self._suspects(place.resource, metas)
            del metas
            if suspects:
                found += await self._confirmed(place.resource, suspects)
            self._context.metrics.audited.labels(ring=self._ring).inc(looked_at)
            await asyncio.sleep(pace.pause_s(looked_at, now=self._context.clock.now()))
        return found

    async def _pages(self, place: AuditPosition) -> AsyncIterator[list[Meta]]:
        """The objects of *place*, a page at a time, to the last one however long that takes.

        Continue tokens die of age between two pages. Then the server says where to go on; if it does not, the list
        is begun anew and what was seen is skipped by its name: lists are in the order of names.
        """
        continue_, seen, is_behind = "", "", False
        while True:
            try:
                page = await self._context.client.list_page(
                    place.resource,
                    namespace=place.namespace,
                    limit=SKIPPED_PAGE if is_behind else PAGE,
                    continue_=continue_,
                    metadata_only=True,
                )
            except Expired as error:
                # the same token again would be an endless loop
                is_behind = error.continue_ in ("", continue_)
                continue_ = "" if is_behind else error.continue_
                await asyncio.sleep(SHORTEST_PAUSE_S)
                continue
            metas = [item.meta for item in page.objects if not is_behind or str(item.meta.key) > seen]
            if metas:
                seen, is_behind = str(metas[-1].key), False
                yield metas
            continue_ = page.continue_
            if not continue_:
                return

    # ---- findings ---------------------------------------------------------------------------------------------

    async def _suspects(self, resource: ApiResource, metas: Sequence[Meta]) -> list[Meta]:
        """Objects that look wrong although the assigner does not know them. A drain label excuses none of them."""
        roles = await self._controller_keys.resolved(
            self._context.kinds.role(resource, meta) for meta in metas
        )
        return [
            meta
            for meta, role in zip(metas, roles, strict=True)
            if not isinstance(role, KubeError) and self._is_suspect(resource, meta, role)
        ]

    def _is_suspect(self, resource: ApiResource, meta: Meta, role: Role) -> bool:
        context = self._context
        subject = context.subject(resource, meta, role=role)
        if context.may_be_left_behind(subject):
            return self._scan.is_converged
        what = finding(context.plan(subject))
        if what == MISPLACED:
            return self._scan.is_converged
        ref = ObjectRef(resource.group_resource, meta.key)
        return what is not None and not self._queue.knows(ref)

    async def _confirmed(self, resource: ApiResource, suspects: Sequence[Meta]) -> Counter[str]:
        """Confirm each suspect by a fresh read, and enqueue those that are still wrong."""
        await asyncio.sleep(GRACE_S)
        found: Counter[str] = Counter()
        for suspect in suspects:
            try:
                what = await self._confirm(resource, suspect)
            except KubeError as error:
                ref = ObjectRef(resource.group_resource, suspect.key)
                log.warning("object could not be read", object=str(ref), error=str(error))
                continue
            if what is not None:
                found[what] += 1
        for what, count in found.items():
            self._context.metrics.audit_found.labels(ring=self._ring, what=what).inc(count)
        if found[MISPLACED]:
            self._scan.request_pass()
        return found

    async def _confirm(self, resource: ApiResource, suspect: Meta) -> str | None:
        meta = await self._context.objects.read(resource, suspect)
        if meta is None:
            return None
        role, seen = self._context.kinds.role(resource, meta), None
        if isinstance(role, Controlled):
            seen = await self._context.objects.read_controller(role.controller)
        what = finding(self._context.plan(self._context.subject(resource, meta, role=role, controller=seen)))
        if what is None or what == MISPLACED:
            return what if self._scan.is_converged else None
        is_new = self._queue.enqueue_unshown(ObjectRef(resource.group_resource, meta.key), meta)
        return what if is_new else None

    @property
    def _ring(self) -> str:
        return self._context.spec.name


MISPLACED: Final = "misplaced"
FINDINGS: Final = ("unowned", "dead_owner", "left_over_label", "unknown_owner", MISPLACED)


def finding(decision: Decision) -> str | None:
    """Finding for an object with the planned *decision*; None if nothing is wrong, or if it waits. Pure."""
    match decision:
        case Assign(was=""):
            return "unowned"
        case Assign():
            return "dead_owner"
        case Strip():
            return "left_over_label"
        case ReportUnknown():
            return "unknown_owner"
        case NeedController():
            return "unowned"
        case Drain() | ReleaseDrain() | UpdateDrain():
            return MISPLACED
        case _:
            return None
