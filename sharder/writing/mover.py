"""Gives every waiting object to its owner: evidence that is young enough, one conditional patch each.

Owns the path of an object from its turn on the agenda to the answer of the server. What to write is
`sharder.planning.planner`'s decision, whose turn it is `sharder.unowned.agenda`'s, how many at once
`sharder.writing.limiter`'s, and on which evidence `sharder.writing.proofs`'. A write that met another version is
decided anew on a fresh read and with fresh evidence.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

import structlog

from kubeio.errors import KubeError
from kubeio.models import ObjectKey
from kubeio.watches.versions import order
from sharder.membership.view import Standing, WaitReason
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
from sharder.planning.keys import Controlled
from sharder.planning.planner import ControllerSeen, Subject, plan
from sharder.ringspec.spec import Pace
from sharder.unowned.agenda import Agenda
from sharder.unowned.waiting import Lane, WaitingObject, WorkKey
from sharder.writing.limiter import WriteLimiter
from sharder.writing.objects import Outcome
from sharder.writing.proofs import Proof, Proofs

if TYPE_CHECKING:
    from sharder.unowned.waiting import Waiting
    from sharder.unowned.watches import Unowned
    from sharder.writing.duty import Duty

log = structlog.get_logger("sharder")

UNATTENDED: Final = (Lane.NEW, Lane.ORPHANED)
"""Objects without a worker that somebody misses; of the backlog of a first assignment none was ever worked."""
LOOK_AGAIN_S: Final = 0.5
FEW_OBJECTS: Final = 16
FEW_OWNERS: Final = 4
"""Up to so many objects for so many owners, these owners' Leases are read one by one: quicker than a list of all."""
REST: Final = 4
"""So many times as long as a look at everything took, the next one waits: 10 us an object, and membership may change
many times a second while names are forged."""
SOME: Final = 8
"""Objects brought to try a resource again: one of them is written, some may wait for their owners."""
_GRAIN_S: Final = 0.001
"""Timers are no finer: what is due within this is due."""
MOST_AHEAD: Final = 10_000
CHILDREN_AT_ONCE: Final = 100
"""Controlled objects that go first because their controller is wanted: each costs a search of its lane."""


class Work(NamedTuple):
    """An object in its turn, as it was when *proof* covered it; None if it waits no more."""

    name: str
    waiting: WaitingObject | None
    proof: Proof


class Mover:
    """Works off *waiting* until cancelled. Inside, objects go by their names in *waiting*."""

    def __init__(
        self, duty: Duty, waiting: Waiting, *, rng: random.Random, limiter: WriteLimiter | None = None
    ) -> None:
        self._duty = duty
        self._keys = duty.keys
        self._waiting = waiting
        self._rng = rng
        self._agenda = Agenda(waiting, rng=rng)
        self._limiter = limiter or WriteLimiter(clock=duty.clock, rng=rng)
        self._proofs = Proofs(duty, self._agenda, self._limiter, few_owners=self._few_owners, rng=rng)
        self._due_changed = asyncio.Event()
        self._waited_s = duty.metrics.assign_s.labels(ring=duty.spec.name)
        self._idle: list[asyncio.Future[Work]] = []
        self._ahead: set[str] = set()
        """Uids of wanted controllers that went before their controlled objects were known."""
        self.unowned: Unowned | None = None

    def to_do(self) -> int:
        """How much is to be looked at now."""
        return len(self._agenda)

    def backlog(self) -> int:
        """How much of a first assignment is to be looked at now."""
        return self._agenda.count(Lane.BACKLOG)

    def look_at(self, work: WorkKey) -> None:
        """Decide about *work* soon."""
        self.look_at_name(self._waiting.name(work))

    def look_at_name(self, name: str) -> None:
        """`look_at` by the object's name in *waiting*."""
        if self._add(name):
            self._proofs.stir()

    def _add(self, name: str, *, is_wanted: bool = False) -> bool:
        """Give *name* a turn, in the first lane if it *is_wanted* or was written since its owner was last heard of.

        Not if it names a shard whose Lease has to be judged first: nothing can be written before, and anybody may
        write such a name: it costs no turn and no evidence.
        """
        owner = self._waiting.label(name, self._keys.shard)
        if owner is not None:
            view = self._duty.roster.view
            standing = view.standing(owner)
            if standing is Standing.UNKNOWN and not (view.hold and view.hold.reason is WaitReason.NOT_SYNCED):
                self._duty.roster.unknown_name_seen(owner)
            if standing in (Standing.UNKNOWN, Standing.CONTESTED) or not self._waiting.knows(name):
                return False
            life = view.lives.get(owner)
            is_news = life is not None and 0 < life.heard < self._waiting.version(name)
            if is_wanted or is_news or self._waits_for(name):
                self._agenda.hurry(name)
        self._agenda.add(name)
        return True

    def _waits_for(self, name: str) -> bool:
        """Whether the controller of *name* was wanted, and went ahead before its controlled objects were known."""
        if self._ahead and (self.unowned is None or self.unowned.knows_controlled):
            self._ahead.clear()
        return bool(self._ahead) and self._waiting.controller(name) in self._ahead

    def look_at_some(self, resource: str, namespace: str) -> None:
        """Decide about some objects of *resource* in *namespace*, if any wait: writing is to be tried again.

        Never the same ones: those that came first may be the ones that cannot be written.
        """
        begins = self._waiting.area(resource, namespace)
        found = [name for name in self._waiting.names() if name.startswith(begins)]
        for name in self._rng.sample(found, min(len(found), SOME)):
            self.look_at_name(name)

    def look_at_all(self) -> None:
        """Decide about everything that waits: membership, namespaces or terms changed."""
        for name in tuple(self._waiting.names()):
            self._add(name)
        self._proofs.stir()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_views(), name="replan on view")
            tasks.create_task(self._proofs.run(), name="evidence")
            tasks.create_task(self._wake_when_due(), name="look again")
            tasks.create_task(self._assign(UNATTENDED, Pace.URGENT, tasks), name="unattended objects")
            tasks.create_task(self._assign((Lane.BACKLOG,), Pace.BACKGROUND, tasks), name="backlog")

    async def _assign(self, lanes: tuple[Lane, ...], pace: Pace, tasks: asyncio.TaskGroup) -> None:
        """Take the objects of *lanes* one after the other, at the ring's own pace if it names one."""
        pace, ahead = self._duty.spec.pace or pace, lanes == UNATTENDED
        while True:
            await self._proofs.next(lanes)
            await self._limiter.enter(pace, ahead=ahead)
            proof = self._proofs.current(lanes)  # the turn may have come late
            name = self._agenda.take(proof.covered, lanes) if proof is not None else None
            if proof is None or name is None:
                self._limiter.leave()
                self._look_for_room()  # all that was on the agenda may have gone
                continue
            work = Work(name, self._waiting.by_name(name), proof)  # a version that comes later is not covered
            if self._idle:
                self._idle.pop().set_result(work)
            else:
                tasks.create_task(self._work(work), name="assign")

    async def _follow_views(self) -> None:
        version = self._duty.roster.view.version
        while True:
            view = await self._duty.roster.wait_newer(version)
            version = view.version
            began_at = self._duty.clock.now()
            self.look_at_all()
            await asyncio.sleep(REST * (self._duty.clock.now() - began_at))

    async def _wake_when_due(self) -> None:
        while True:
            now = self._duty.clock.now()
            self._agenda.wake(now + _GRAIN_S)
            self._proofs.stir()
            self._due_changed.clear()
            due_at = self._agenda.next_due_at
            try:
                async with asyncio.timeout(None if due_at is None else due_at - now):
                    await self._due_changed.wait()
            except TimeoutError:
                pass

    # ---- one object, in its turn ------------------------------------------------------------------------------

    async def _work(self, work: Work) -> None:
        """Work one object after the other, each in a turn that `run` waited for: a task for each would cost more."""
        while True:
            try:
                await self._work_one(work)
            finally:
                self._limiter.leave()
            idle: asyncio.Future[Work] = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            work = await idle

    async def _work_one(self, work: Work) -> None:
        name, waiting, proof = work
        try:
            if waiting is None:
                self._agenda.done(name)
            else:
                await self._decide_and_write(name, waiting, proof)
        except KubeError as error:
            log.warning("object could not be read", object=str(self._waiting.work(name)), error=str(error))
            self._retry(name)
        self._look_for_room()

    def _look_for_room(self) -> None:
        if self.unowned is not None:
            self.unowned.look_for_room()

    async def _decide_and_write(self, name: str, waiting: WaitingObject, proof: Proof) -> None:
        decision = self._plan(waiting, None)
        if isinstance(decision, NeedController):
            seen = await self._duty.objects.read_controller(decision.controller)
            decision = self._plan(waiting, seen)
        match decision:
            case Assign(to=to) if to not in proof.evidence.held:
                self._later(name, self._duty.clock.now() + LOOK_AGAIN_S)
            case Assign() if not proof.is_valid(self._duty.clock.now()):
                self._agenda.done(name)
                self.look_at_name(name)
            case Assign() | Strip():
                self._raise_children(name, waiting)  # those that it was not held back for
                resource = self._duty.resource(waiting.work)
                outcome = await self._duty.objects.write_in_turn(resource, waiting.meta, decision)
                await self._settle(name, waiting, decision, outcome)
            case Wait(reason=WaitReason.CHILDREN_FIRST, until=until):
                self._raise_children(name, waiting)
                self._later(name, until)
            case Wait(until=until):
                self._later(name, until)
            case ReportUnknown(name=unknown):
                self._duty.roster.unknown_name_seen(unknown)
                self._agenda.done(name)
            case Drain() | UpdateDrain() | ReleaseDrain() | Nothing() | NeedController():
                self._dismiss(name, waiting)
            case _:
                assert_never(decision)

    def _raise_children(self, name: str, waiting: WaitingObject) -> None:
        """If *name* is wanted: some at a time, since each that gets an owner gives its controller a turn again."""
        if not self._is_wanted(name):
            return
        children = (self._waiting.name(child.work) for child in self._waiting.controlled_by(waiting.meta.uid))
        late = (child for child in children if self._waiting.lane(child) is not Lane.NEW)
        for child in islice(late, CHILDREN_AT_ONCE):
            self._add(child, is_wanted=True)

    def _plan(self, waiting: WaitingObject, controller: ControllerSeen | None) -> Decision:
        duty = self._duty
        view = duty.roster.view
        children_since = self._held_back_since(waiting)
        if children_since is not None:
            view = replace(view, at=duty.clock.now())  # it was published at its last change
        role = duty.kinds.role(duty.resource(waiting.work), waiting.meta)
        subject = Subject(
            waiting.meta,
            role,
            selected=duty.namespaces.selects(waiting.meta.namespace),
            controller=controller,
            children_since=children_since,
        )
        return plan(subject, view=view, terms=duty.terms(), keys=self._keys)

    def _few_owners(self) -> frozenset[str] | None:
        """To whom all that is on the agenda would be given now; None if that is many, or cannot be said yet."""
        if len(self._agenda) > FEW_OBJECTS:
            return None
        owners = set()
        for name in self._agenda.names():
            waiting = self._waiting.by_name(name)
            match self._plan(waiting, None) if waiting is not None else None:
                case NeedController():
                    return None
                case Assign(to=to):
                    owners.add(to)
                case _:
                    pass
        return frozenset(owners) if 0 < len(owners) <= FEW_OWNERS else None

    def _held_back_since(self, waiting: WaitingObject) -> float | None:
        """Since when a dead shard's object waits for its controlled objects; None if none of them waits."""
        keys, view = self._keys, self._duty.roster.view
        name = waiting.meta.labels.get(keys.shard)
        if name is None or view.standing(name) is not Standing.DEAD:
            return None
        if not self._duty.kinds.may_control(self._duty.resource(waiting.work)):
            return None
        are_known = self.unowned is None or self.unowned.knows_controlled
        children = self._waiting.controlled_by(waiting.meta.uid)
        if are_known and not any(child.meta.labels.get(keys.shard) == name for child in children):
            return None
        life = view.lives.get(name)
        return max(waiting.since, life.since) if life is not None else waiting.since

    # ---- what came of it --------------------------------------------------------------------------------------

    def _dismiss(self, name: str, waiting: WaitingObject) -> None:
        """Nobody has to be found for it: a live owner has it, or it is no business of the ring's. Forget it.

        What could change that shows it again: an owner's death switches the watch or is met by a pass, a change
        of the object is an event, a change of the selected namespaces lists anew (`Unowned.refresh`).
        """
        self._waiting.drop_named_up_to(name, order(waiting.meta.resource_version))
        self._agenda.done(name)

    async def _settle(
        self, name: str, waiting: WaitingObject, decision: Assign | Strip, outcome: Outcome
    ) -> None:
        match outcome:
            case Outcome.DONE:
                self._waited_s.observe(self._duty.clock.now() - waiting.since)
                if self._is_ahead(name):
                    self._ahead.add(waiting.meta.uid)
                self._waiting.drop_named_up_to(name, order(waiting.meta.resource_version))
                self._look_at_controller(waiting)
                self._agenda.done(name)
            case Outcome.GONE:
                self._waiting.drop_named_up_to(name, order(waiting.meta.resource_version))
                self._agenda.done(name)
            case Outcome.STALE:
                await self._read_again(name, waiting)
            case Outcome.LATER:
                self._retry(name)
            case Outcome.DENIED:
                self._agenda.done(name)  # `denials.try_again` brings it back
            case Outcome.REFUSED:
                again_at = self._duty.objects.refusals.again_at(waiting.work)
                self._later(name, again_at or self._duty.clock.now() + LOOK_AGAIN_S)
            case _:
                assert_never(outcome)

    async def _read_again(self, name: str, waiting: WaitingObject) -> None:
        meta = await self._duty.objects.read(self._duty.resource(waiting.work), waiting.meta)
        if meta is None:
            self._waiting.drop_named_up_to(name, order(waiting.meta.resource_version))
            self._agenda.done(name)
            return
        owner = meta.labels.get(self._keys.shard)
        if owner is not None and self._duty.roster.view.standing(owner) is Standing.LIVE:
            self._waiting.drop_named_up_to(name, order(meta.resource_version))
            self._agenda.done(name)
            return
        self._waiting.put(waiting.work, meta, at=self._duty.clock.now())
        self._retry(name)

    def _is_ahead(self, name: str) -> bool:
        """Whether *name*, which was wanted, may control objects that no list has shown yet."""
        if self.unowned is None or self.unowned.knows_controlled or len(self._ahead) >= MOST_AHEAD:
            return False
        return self._is_wanted(name)

    def _is_wanted(self, name: str) -> bool:
        """Whether *name* is new, or was written since its owner was last heard of."""
        return self._waiting.knows(name) and self._waiting.lane(name) is Lane.NEW

    def _look_at_controller(self, waiting: WaitingObject) -> None:
        """A child was moved: its parent may have been held back for it."""
        if waiting.meta.controller is None:
            return
        role = self._duty.kinds.role(self._duty.resource(waiting.work), waiting.meta)
        if isinstance(role, Controlled):
            parent = WorkKey(
                role.controller.resource.group_resource,
                ObjectKey(role.controller.namespace, role.controller.name),
            )
            self.look_at(parent)

    def _later(self, name: str, due_at: float | None) -> None:
        """Look again at *due_at*; None: when something changes."""
        if due_at is None:
            self._agenda.done(name)
        else:
            self._agenda.done_until(name, due_at)
            self._due_changed.set()

    def _retry(self, name: str) -> None:
        self._agenda.failed(name, now=self._duty.clock.now())
        self._due_changed.set()
