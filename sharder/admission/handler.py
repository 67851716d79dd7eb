"""One ring's answers to creates: the planner's decision, and evidence for the name it wants.

Leader and standbys answer alike, from what each of them sees: nothing here writes. Raises nothing that a caller
has to know; what takes too long is cut off by `sharder.admission.dispatcher`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

import msgspec
import structlog

from kubeio.errors import KubeError, NotFound
from kubeio.protocol import activated_holder
from sharder.admission.review import AdmissionRequest, Labelled, Skipped, Verdict
from sharder.membership.shards import shows_held
from sharder.planning.decisions import (
    Assign,
    Decision,
    Drain,
    NeedController,
    Nothing,
    ReleaseDrain,
    ReportUnknown,
    Strip,
    UpdateDrain,
    Wait,
)
from sharder.planning.planner import Subject, plan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kubeio.leases.shared_reads import SharedLeaseReads
    from kubeio.models import Lease, Meta
    from kubeio.resource import ApiResource
    from sharder.planning.keys import ControllerName, RingKinds
    from sharder.planning.planner import ControllerSeen
    from sharder.planning.state import RingStates
    from sharder.ringspec.spec import RingSpec
    from sharder.unowned.namespaces import Namespaces

log = structlog.get_logger("sharder")

MAX_STEPS: Final = 8
"""Controllers read for one object: each step goes up its tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionHandler:
    """*leases* reads those of the ring, *former* those of the namespace of the former controller's Lease."""

    spec: RingSpec
    kinds: RingKinds
    states: RingStates
    namespaces: Namespaces
    read_controller: Callable[[ControllerName], Awaitable[ControllerSeen]]
    leases: SharedLeaseReads
    former: SharedLeaseReads

    async def verdict(self, asked: AdmissionRequest) -> Verdict:
        """Decide the owner of the object that is being created, or the reason to leave it to the unowned watch."""
        resource = self._resource(asked.resource)
        if asked.operation != "CREATE" or asked.subresource:
            return Skipped.NOT_A_CREATE
        if resource is None or asked.meta is None:
            return Skipped.NOT_OURS
        if not asked.meta.name:
            return Skipped.GENERATED_NAME  # the key cannot be known
        if self.spec.keys.shard in asked.meta.labels:
            return Skipped.ALREADY_LABELLED
        if asked.may_bring(self.spec.keys):
            return Skipped.MAY_BRING_KEYS
        if not self.namespaces.synced.is_set() or not self.states.current.selects(asked.meta.namespace):
            return Skipped.NOT_SELECTED
        try:
            return await self._decide(resource, asked.meta)
        except KubeError:
            return Skipped.NO_EVIDENCE  # its controller could not be read

    async def _decide(self, resource: ApiResource, meta: Meta) -> Verdict:
        subject = Subject(meta, self.kinds.role(resource, meta))
        for _ in range(MAX_STEPS):
            decision = self._plan(subject)
            match decision:
                case Assign(to=to):
                    return Labelled(to) if await self._is_shown(to) else Skipped.NO_EVIDENCE
                case NeedController(controller=controller):
                    subject = msgspec.structs.replace(
                        subject, controller=await self.read_controller(controller)
                    )
                case Wait() | ReportUnknown():
                    return Skipped.WAITS
                case Nothing() | Drain() | UpdateDrain() | ReleaseDrain() | Strip():
                    return Skipped.NOT_OURS
                case _:
                    assert_never(decision)
        return Skipped.WAITS

    def _plan(self, subject: Subject) -> Decision:
        state = self.states.current
        return plan(subject, view=state.view, terms=state.terms, keys=self.spec.keys)

    async def _is_shown(self, to: str) -> bool:
        """Whether reads begun now show the Lease of *to* held, and the former one ours if there is one."""
        former = self.spec.activation
        if former is not None:
            lease = await _read(self.former, former.name)
            if lease is None or lease.spec.holder_identity != activated_holder(self.spec.name):
                return False
        lease = await _read(self.leases, to)
        return lease is not None and shows_held(lease, keys=self.spec.keys)

    def _resource(self, name: str) -> ApiResource | None:
        found = self.kinds.by_name.get(name)
        return found if found in self.kinds.resources else None


async def _read(leases: SharedLeaseReads, name: str) -> Lease | None:
    """Lease *name*; None if there is none, or it could not be read: then nothing is shown."""
    try:
        return await leases.get(name)
    except NotFound:
        return None
    except KubeError as error:
        log.warning("lease could not be read", lease=name, error=str(error))
        return None
