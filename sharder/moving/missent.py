"""Objects that may have been passed on to where they do not belong: no watch shows them there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.errors import KubeError
from kubeio.models import Meta, ObjectRef
from sharder.moving.drain_requests import DrainRequests
from sharder.moving.page_check import PageCheck
from sharder.moving.scan_pass import Pass

if TYPE_CHECKING:
    from collections.abc import Callable

    from sharder.moving.handoffs import Handoffs
    from sharder.writing.assignment_queue import AssignmentQueue
    from sharder.writing.ring_context import RingContext

log = structlog.get_logger("sharder")

MAX_MISSENT: Final = 1_000
"""Objects remembered that were passed on to where they do not belong; with more, a pass finds the rest."""
CORRECT_EVERY_S: Final = 0.5
"""Such an object is read this often at most: drain labels can be forged hundreds of times a second."""
PASS_EVERY_S: Final = 30.0
"""A pass is requested this often at most; one that is due earlier waits."""


class MissentObjects:
    """Queue of missent objects: the handoffs fill it, `MissentCheck` empties it."""

    def __init__(self) -> None:
        self._refs: dict[ObjectRef, None] = {}
        self._added = asyncio.Event()

    def add(self, ref: ObjectRef) -> None:
        """Have one object read and planned. A pass would cost far more."""
        if len(self._refs) < MAX_MISSENT:
            self._refs[ref] = None
        self._added.set()

    async def get_all(self) -> list[ObjectRef]:
        """All objects in their order, as soon as there are some."""
        await self._added.wait()
        self._added.clear()
        refs = list(self._refs)
        self._refs.clear()
        return refs


class MissentCheck:
    """Reads and requests the objects of *missent*, a batch at a time.

    *request_pass* is called for too many, and for those that could not be requested at once: a pass tries again.
    """

    def __init__(
        self,
        context: RingContext,
        missent: MissentObjects,
        handoffs: Handoffs,
        queue: AssignmentQueue,
        *,
        request_pass: Callable[[], None],
    ) -> None:
        self._context = context
        self._missent = missent
        self._requests = DrainRequests(context, handoffs)
        self._page_check = PageCheck(context, handoffs, self._requests, queue)
        self._request_pass = request_pass
        self._is_pass_due = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._request_passes(), name="passes for missent objects")
            while True:
                refs = await self._missent.get_all()
                if not await self._check_all(refs) or len(refs) >= MAX_MISSENT:
                    self._is_pass_due.set()
                await asyncio.sleep(CORRECT_EVERY_S)

    async def _request_passes(self) -> None:
        while True:
            await self._is_pass_due.wait()
            self._is_pass_due.clear()
            self._request_pass()
            await asyncio.sleep(PASS_EVERY_S)

    async def _check_all(self, refs: list[ObjectRef]) -> bool:
        """Whether every misplaced object of *refs* was requested."""
        pass_ = Pass(self._context.states.current.scan_version)
        self._page_check.forget_controllers()
        async with asyncio.TaskGroup() as tasks:
            for ref in refs:
                await self._check(ref, pass_)
            self._requests.send_allowed(pass_, tasks)
            pass_.deferred |= len(self._requests) > 0
            self._requests.clear()
        return not pass_.deferred

    async def _check(self, ref: ObjectRef, pass_: Pass) -> None:
        resource = self._context.resource(ref)
        named = Meta(name=ref.key.name, namespace=ref.key.namespace)
        try:
            meta = await self._context.objects.read(resource, named)
        except KubeError as error:
            log.warning("object could not be read", object=str(ref), error=str(error))
            self._missent.add(ref)
            return
        if meta is not None:
            pass_.suspected[ref] = meta.resource_version  # a read is not stale
            await self._page_check.check(resource, [meta], pass_)
