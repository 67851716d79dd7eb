"""Check of a page of objects with an owner: what is misplaced is requested, what the watches missed is enqueued."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from kubeio.errors import KubeError
from kubeio.models import ObjectRef
from sharder.moving.drain_requests import Misplaced
from sharder.planning.controllers import ControllerKeys
from sharder.planning.decisions import (
    Assign,
    Drain,
    NeedController,
    ReleaseDrain,
    ReportUnknown,
    Strip,
    UpdateDrain,
    Wait,
)
from sharder.planning.keys import Controlled, Outsider, Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubeio.models import Meta
    from kubeio.resource import ApiResource
    from sharder.moving.drain_requests import DrainRequests
    from sharder.moving.handoffs import Handoffs
    from sharder.moving.scan_pass import Pass
    from sharder.writing.assignment_queue import AssignmentQueue
    from sharder.writing.ring_context import RingContext

log = structlog.get_logger("sharder")


class PageCheck:
    """Plans every object of a page; the findings go to the pass that it belongs to."""

    def __init__(
        self, context: RingContext, handoffs: Handoffs, requests: DrainRequests, queue: AssignmentQueue
    ) -> None:
        self._context = context
        self._handoffs = handoffs
        self._requests = requests
        self._queue = queue
        self._controller_keys = ControllerKeys(context.kinds, context.objects.read_controller)

    def forget_controllers(self) -> None:
        """Begin a new pass: keys of controllers are read anew."""
        self._controller_keys.forget()

    async def check(self, resource: ApiResource, metas: Sequence[Meta], pass_: Pass) -> None:
        """Check *metas*. An object whose controller cannot be read makes the pass unclean, and nothing else."""
        found = await self._controller_keys.resolved(
            self._context.kinds.role(resource, meta) for meta in metas
        )
        unread: list[tuple[Meta, KubeError]] = []
        for meta, role in zip(metas, found, strict=True):
            if isinstance(role, KubeError):
                unread.append((meta, role))
                pass_.clean = pass_.whole = False
                pass_.deferred = True
                continue
            self._controller_keys.remember(resource, meta, role)
            self._plan_object(resource, meta, role, pass_)
        if unread:
            log.warning(
                "controllers could not be read",
                ring=self._context.spec.name,
                objects=len(unread),
                first=f"{resource.group_resource}/{unread[0][0].key}",
                error=str(unread[0][1]),
            )

    def _plan_object(self, resource: ApiResource, meta: Meta, role: Role, pass_: Pass) -> None:
        ref = ObjectRef(resource.group_resource, meta.key)
        pass_.seen += 1
        subject = self._context.subject(resource, meta, role=role)
        if resource in self._context.kinds.former or (not isinstance(role, Outsider) and role.given_up):
            pass_.former += 1
        if isinstance(role, Controlled) and self._context.may_be_left_behind(subject):
            self._check_left_behind(Misplaced(ref, meta, role, self._owner(meta), role.controller), pass_)
            return
        if self._context.states.current.view.is_unknown_name(self._owner(meta)):
            self._check_unknown_name(ref, meta, pass_)
            return
        match self._context.plan(subject):
            case Drain(owner=owner) | ReleaseDrain(owner=owner):
                self._requests.add(Misplaced(ref, meta, role, owner), pass_)
            case Assign(was=was) if was and not self._queue.knows(ref):
                # It may have an owner by now: later pages are as old as the first one, a minute under load.
                if pass_.confirms(ref, meta.resource_version):
                    self._queue.enqueue_unshown(ref, meta)
            case Assign() | Strip() | ReportUnknown() | NeedController():
                self._queue.enqueue_unshown(ref, meta)
            case UpdateDrain():
                self._handoffs.redirect_all()
            case Wait():
                pass_.deferred = True
            case _:
                if self._context.keys.drain in meta.labels:
                    pass_.displace(meta.uid)
                return
        pass_.clean = False
        pass_.displace(meta.uid)

    def _check_unknown_name(self, ref: ObjectRef, meta: Meta, pass_: Pass) -> None:
        """Enqueue an object whose label names no shard that ever had a Lease.

        The pass stays clean, unless the ring has to become free of labels.
        """
        self._queue.enqueue_unshown(ref, meta)
        context = self._context
        if (
            context.states.current.terms.releasing
            or context.kinds.former
            or context.scope.former
            or self._queue.is_full(ref.resource)
        ):
            pass_.clean = False

    def _check_left_behind(self, misplaced: Misplaced, pass_: Pass) -> None:
        """Request a controlled object once its controller was read. A controller on its way takes it along."""
        controller = misplaced.controller
        is_taken_along = controller is not None and controller.uid in pass_.displaced
        if is_taken_along or not pass_.knows_displaced:
            pass_.clean, pass_.deferred = False, True
        else:
            self._requests.add(misplaced, pass_)
        pass_.displace(misplaced.meta.uid)

    def _owner(self, meta: Meta) -> str:
        return meta.labels.get(self._context.keys.shard, "")
