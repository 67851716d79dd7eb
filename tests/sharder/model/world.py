"""A small world that can be explored completely: one object, three lives, two sharders, the real planner.

Time is abstract: what the protocol's waits buy is written as conditions (a silent Lease is taken only when its process
has stopped by its own clock; a contest that a sharder watched to its end outlasted the process). Everything else may
happen in any order: each message is on its way for as long as it likes and may be lost, each sharder acts on an old
view of the Leases, each process on an old version of the object. `Rules` switches single rules off, to see that the
exploration notices; `Setting` says who is there and how often each fault may strike.

Versions are not counted: a patch for a version that is no longer the newest can never apply and is forgotten, and what
a process saw is either the newest version or an old one. So the world is finite, however many writes there are.
What the lives do is in `lives`, what the sharders do in `sharders`, how it is explored in `exploration`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

NONE = "-"
"""No label. A drain label may be empty: the object is to be given up."""
ANY = "*"
"""Not tested."""
HELD = ("held", "filling")
"""States of a Lease that its shard holds; `filling`: it has not said yet that its caches are full."""


class Object(NamedTuple):
    """The object in one version; one that was deleted and created again has another uid."""

    uid: int
    shard: str
    drain: str


NOTHING = Object(0, NONE, NONE)


class Process(NamedTuple):
    """One life.

    `mode`: absent; unborn: its Lease is there, and it does not know; filling: it renews, and its caches never become
    full; up: works and renews; expired: stopped for lack of
    renewals; frozen: suspended within its Lease's duration, lapsed: beyond it; gone: ended. `working`: the uid that it
    works on, or 0. `seen`: the last version with its own name in it; `newest`: that is the newest version. `knew`:
    it saw an older one without a drain label. `acked`: it has sent an acknowledgement since. `target`: what a read
    said of the target's Lease: "", "held", "no".
    """

    mode: str = "absent"
    working: int = 0
    seen: Object = NOTHING
    newest: bool = False
    knew: bool = False
    acked: bool = False
    target: str = ""

    @property
    def is_executing(self) -> int:
        """The uid that it works on by right of its Lease, as far as it can know; 0 if none."""
        return self.working if self.mode in ("up", "frozen") else 0


class Patch(NamedTuple):
    """New labels: what must hold (`ANY`: whatever), what it sets.

    `versioned`: it applies to the newest version at the time it was decided, and to no later one.
    """

    uid: int
    versioned: bool
    owner: str
    was: str
    shard: str
    drain: str

    @property
    def is_assignment(self) -> bool:
        """Whether it gives an object without an owner one."""
        return self.versioned and self.owner == ANY and self.shard != NONE


class Letter(NamedTuple):
    """Something of a life on its way. `patch` is an acknowledgement; None: a fenced write of a reconcile.

    `late`: of an acknowledgement, its sender has given up waiting for the answer; of a write, somebody else has begun
    to work on the object, or the sender's name is worn by another process. `is_past`: of a write, the object has had
    another owner since.
    """

    sender: int
    uid: int
    patch: Patch | None
    late: bool
    is_past: bool = False


class Sharder(NamedTuple):
    """`view` of the Leases; `watched`: those whose wait, contested or missing, it saw from begin to end; `order`: what
    it has on its way; `knows`: that the object is given up; `touches`: it has yet to write the object for that."""

    view: tuple[str, ...]
    watched: tuple[int, ...] = ()
    order: tuple[Patch, ...] = ()
    knows: bool = False
    touches: bool = False


class World(NamedTuple):
    """`faults` that are left, by kind; `given_up`: the object, with its ring, namespace or resource; `outsider`:
    another controller works on it since."""

    object: Object
    leases: tuple[str, ...]
    processes: tuple[Process, ...]
    sharders: tuple[Sharder, Sharder]
    letters: frozenset[Letter]
    faults: tuple[int, ...]
    given_up: str = ""
    outsider: bool = False
    broken: str = ""


FAULTS = (
    "crash",
    "cut",
    "suspend",
    "delete",
    "force",
    "lose_answer",
    "stale_list",
    "recreate",
    "stop",
    "release",
    "edit",
    "lose_birth",
    "deselect",
    "remove",
    "end_sharder",
    "lag",
    "never_full",
)
"""crash: a process ends; cut: it cannot renew; suspend: it stands still; delete: its Lease is deleted by hand; force:
its Lease is taken by policy; lose_answer: of an acknowledgement that still arrives some time; stale_list: an old
version is seen again; recreate: the object is deleted and created again; stop: a process stops in good order;
release: the ring is deleted; edit: a Lease's duration is edited, so that its silence is misjudged; lose_birth: a
Lease is created and its shard does not hear of it; deselect, remove: the ring goes on without the object's namespace,
without its resource; end_sharder: a sharder ends, and another one begins to act; lag: a sharder assigns the object in a
version that was made when it had been given up, which that sharder does not know; never_full: a life renews, and its
caches never become full."""


@dataclass(frozen=True)
class Rules:
    """The protocol's rules that the exploration can do without, one at a time."""

    contested_waits: bool = True
    take_waits_for_silence: bool = True
    names_live_once: bool = True
    assign_is_conditional: bool = True
    assign_has_evidence: bool = True
    acknowledgement_is_conditional: bool = True
    acknowledgement_has_evidence: bool = True
    drain_ends_work_first: bool = True
    nothing_older_counts: bool = True
    writes_are_fenced: bool = True
    writes_test_the_uid: bool = True
    writes_test_the_turn: bool = True
    requests_test_the_uid: bool = True
    release_waits_for_answers: bool = True
    succession_is_proven: bool = True
    given_up_by_the_owner: bool = True
    given_back_after_the_last_life: bool = True
    edited_take_is_contested: bool = True
    birth_adopts_what_it_holds: bool = True
    deselected_is_touched: bool = True
    place_waits_for_full_caches: bool = True
    unshown_name_waits: bool = True
    unshown_wait_begins_with_the_deletion: bool = True
    given_back_on_evidence: bool = True


@dataclass(frozen=True)
class Setting:
    """Who is there. The object belongs to the first life, and its place on the ring is the last one's member.

    `owner`: whom the object's label names at first instead, `NONE` or a life that is not there yet. `present`: how many
    lives are up at first; the others may come. `wears_again`: the next life of a member may take over the Lease that
    the one before released. `is_born_labelled`: an object that is created anew may carry any name whose Lease was there
    once: the answer of an admission webhook, stored however late. `has_unanswered`: a write of the first life, which
    does not work any more, is still on its way.
    """

    faults: Mapping[str, int] = field(default_factory=dict)
    lives: tuple[str, str, str] = ("a-1", "b-1", "c-1")
    present: int = 2
    wears_again: bool = False
    is_born_labelled: bool = False
    has_unanswered: bool = False
    owner: str = ""

    def begin(self) -> World:
        """The first life owns the object and has seen it, unless it has another `owner`; nothing is on its way."""
        owned = Object(1, self.owner or self.lives[0], NONE)
        up = Process("up")
        processes = [up if k < self.present else Process() for k in range(len(self.lives))]
        if not self.owner:
            processes[0] = up._replace(seen=owned, newest=True, knew=True)
        leases = tuple("held" if k < self.present else "absent" for k in range(len(self.lives)))
        sharder = Sharder(leases)
        faults = tuple(self.faults.get(kind, 0) for kind in FAULTS)
        letters = frozenset({Letter(0, owned.uid, None, late=False)} if self.has_unanswered else ())
        return World(owned, leases, tuple(processes), (sharder, sharder), letters, faults)


def with_lease(world: World, life: int, state: str) -> World:
    """A Lease changed: whoever watched its wait has to begin anew. A late CREATE shows only when a sharder looks."""
    leases = tuple(state if k == life else lease for k, lease in enumerate(world.leases))
    sharders = world.sharders
    is_created = (world.leases[life], state) == ("missing", "held")
    if not is_created and any(life in sharder.watched for sharder in sharders):
        first, second = (
            sharder._replace(watched=tuple(k for k in sharder.watched if k != life)) for sharder in sharders
        )
        sharders = (first, second)
    return world._replace(leases=leases, sharders=sharders)


def with_process(world: World, life: int, process: Process) -> World:
    processes = world.processes
    return world._replace(processes=(*processes[:life], process, *processes[life + 1 :]))


def with_object(world: World, changed: Object) -> World:
    """A write was applied: what was decided for the version before can never apply now, and no touch is needed."""
    first, second = (
        sharder._replace(order=tuple(k for k in sharder.order if not k.versioned), touches=False)
        if sharder.order or sharder.touches
        else sharder
        for sharder in world.sharders
    )
    return world._replace(
        object=changed,
        sharders=(first, second),
        letters=frozenset(k for k in world.letters if k.patch is None or not k.patch.versioned),
        processes=tuple(p._replace(newest=False) if p.newest else p for p in world.processes),
    )


def patched(world: World, patch: Patch, *, rules: Rules) -> World | None:
    """The world after the server carried *patch* out; None if it refuses it."""
    item = world.object
    is_other = patch.uid != item.uid
    if patch.owner not in (ANY, item.shard) or patch.was not in (ANY, item.drain):
        return None
    if is_other and rules.requests_test_the_uid:
        return None
    after = with_object(world, Object(item.uid, patch.shard, patch.drain))
    if patch.shard not in (NONE, item.shard):
        past = {k._replace(is_past=True) if k.patch is None else k for k in after.letters}
        after = after._replace(letters=frozenset(past))
    return after._replace(broken="a patch reached another object of that name") if is_other else after


def struck(world: World, kind: str) -> World | None:
    """One fault of *kind* less; None if there is none left."""
    k = FAULTS.index(kind)
    if not world.faults[k]:
        return None
    return world._replace(faults=(*world.faults[:k], world.faults[k] - 1, *world.faults[k + 1 :]))


def trouble(world: World) -> str:
    """What is wrong in *world*; empty if nothing is."""
    if world.broken:
        return world.broken
    working = [uid for process in world.processes if (uid := process.is_executing)]
    if len(working) != len(set(working)):
        return "two lives work on the object at once"
    if world.outsider and world.object.uid in working:
        return "a life works on the object, which was given up to another controller"
    return ""


def is_attended(world: World, names: tuple[str, ...]) -> bool:
    """The object's owner is at work on it; or it was given up, as it should be."""
    if world.given_up:
        return world.object.shard == NONE
    return any(
        process.is_executing == world.object.uid and world.object.shard == name and world.object.drain == NONE
        for name, process in zip(names, world.processes, strict=True)
    )


def may_recover(world: World) -> bool:
    """Whether some life is there, or can still come, that could own the object without another fault."""
    return bool(world.given_up) or any(
        lease == "absent" or (lease == "held" and process.mode != "gone")
        for lease, process in zip(world.leases, world.processes, strict=True)
    )
