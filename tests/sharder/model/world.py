"""A small world that can be explored completely: one object, three lives, two sharders, the real planner.

Time is abstract: what the protocol's waits buy is written as conditions (a silent Lease is taken only when its process
has stopped by its own clock; a contest ends only when it has). Everything else may happen in any order: each patch is
on its way for as long as it likes and may be lost, each sharder acts on an old view of the Leases, each process on an
old version of the object. `Rules` switches single rules off, to see that the exploration notices.

Versions are not counted: a patch for a version that is no longer the newest can never apply and is forgotten, and what
a process saw is either the newest version or an old one. So the world is finite, however many writes there are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from kubeio.patch import JsonPatch
from sharder.decisions import Assign, Drain, ReleaseDrain, Strip, UpdateDrain
from sharder.lives import State
from sharder.patches import patch_of
from sharder.planner import Terms, plan
from sharder.view import View
from tests.sharder.pure.views import KEYS, make_view, website

LIVES = ("a-1", "b-1", "c-1")
SHARDERS = (0, 1)
_STATES = {"held": State.READY, "contested": State.CONTESTED, "missing": State.MISSING, "dead": State.DEAD}


class Object(NamedTuple):
    shard: str | None
    drain: str | None


NOTHING = Object(None, None)


class Process(NamedTuple):
    """One life: `up` works and renews, `expired` stopped for lack of renewals, `gone` ended; and what it last saw.

    Only versions that carry its own name matter to it. `newest`: what it saw is the newest version.
    """

    mode: str
    working: bool
    seen: Object
    newest: bool


class Patch(NamedTuple):
    """Something on its way: who sent it, what must hold (None: whatever), what it sets.

    `versioned`: it applies to the newest version at the time it was decided, and to no later one.
    """

    sender: str
    versioned: bool
    owner: str | None
    drain_was: str | None
    shard: str | None
    drain: str | None


class World(NamedTuple):
    object: Object
    leases: tuple[str, ...]
    processes: tuple[Process, ...]
    views: tuple[tuple[str, ...], ...]
    patches: frozenset[Patch]
    faults: int


@dataclass(frozen=True)
class Rules:
    """The protocol's rules that the exploration can do without, one at a time."""

    contested_waits: bool = True
    assign_is_conditional: bool = True
    acknowledgement_is_conditional: bool = True
    take_waits_for_silence: bool = True
    drain_ends_work_first: bool = True


def begin(*, faults: int) -> World:
    """Two lives are up, the third has not come yet; the object has no owner."""
    up, absent = Process("up", False, NOTHING, False), Process("absent", False, NOTHING, False)
    leases = ("held", "held", "absent")
    return World(NOTHING, leases, (up, up, absent), (leases, leases), frozenset(), faults)


@cache
def view_of(leases: tuple[str, ...]) -> View:
    """What a sharder that saw these Leases knows; places settle at once here."""
    known = dict(zip(LIVES, leases, strict=True))
    lives = {name: _STATES[lease] for name, lease in known.items() if lease != "absent"}
    return make_view(lives, {name[0]: name for name, lease in known.items() if lease == "held"})


@cache
def decided(name: str, item: Object, leases: tuple[str, ...]) -> tuple[Patch, str | None] | None:
    """The real planner's patch for *item*, and the name it needs evidence for; None if it writes nothing."""
    subject = website(name, shard=item.shard, drain=item.drain)
    decision = plan(subject, view=view_of(leases), terms=Terms(), keys=KEYS)
    if not isinstance(decision, Assign | Drain | UpdateDrain | ReleaseDrain | Strip):
        return None
    encoded = patch_of(decision, subject.meta, keys=KEYS)
    evidence = decision.to if isinstance(decision, Assign) else None
    if isinstance(encoded, JsonPatch):
        tests = {op["path"]: op["value"] for op in json.loads(encoded.encode()) if op["op"] == "test"}
        (added,) = (op["value"] for op in json.loads(encoded.encode()) if op["op"] == "add")
        owner = next(value for path, value in tests.items() if "/shard." in path)
        was = next((value for path, value in tests.items() if "/drain." in path), None)
        return Patch("", False, owner, was, owner, added), evidence
    metadata = json.loads(encoded.encode())["metadata"]
    assert metadata["resourceVersion"] == subject.meta.resource_version
    return Patch("", True, None, None, metadata["labels"][KEYS.shard], None), evidence


def steps(world: World, *, name: str, rules: Rules) -> Iterator[tuple[str, World]]:
    """Everything that can happen next. Which sharder is which does not matter: such worlds are one."""
    for what, following in _all_steps(world, name=name, rules=rules):
        yield what, _in_order(following)


def may_recover(world: World) -> bool:
    """Whether some life is there, or can still come, that could own the object without another fault."""
    return any(
        lease == "absent" or (lease == "held" and process.mode != "gone")
        for lease, process in zip(world.leases, world.processes, strict=True)
    )


def is_attended(world: World) -> bool:
    """The object's owner is at work on it."""
    return any(
        process.working and world.object == Object(name, None)
        for name, process in zip(LIVES, world.processes, strict=True)
    )


def _in_order(world: World) -> World:
    def of(sharder: int) -> str:
        mine = [str(patch) for patch in world.patches if patch.sender == f"sharder-{sharder}"]
        return f"{world.views[sharder]} {mine}".replace(f"sharder-{sharder}", "")

    if of(0) <= of(1):
        return world
    names = {"sharder-0": "sharder-1", "sharder-1": "sharder-0"}
    patches = frozenset(p._replace(sender=names.get(p.sender, p.sender)) for p in world.patches)
    return world._replace(views=world.views[::-1], patches=patches)


def _all_steps(world: World, *, name: str, rules: Rules) -> Iterator[tuple[str, World]]:
    yield from _deliveries(world)
    for sharder in SHARDERS:
        yield from _sharder_steps(world, sharder, name=name, rules=rules)
    for life in range(len(LIVES)):
        yield from _lease_steps(world, life, rules=rules)
        yield from _process_steps(world, life, rules=rules)
        if world.faults:
            yield from _faults(world, life)


def overlap(world: World) -> bool:
    """Two processes work on the object at once."""
    return sum(process.working for process in world.processes) > 1


def _deliveries(world: World) -> Iterator[tuple[str, World]]:
    for patch in world.patches:
        rest = world.patches - {patch}
        yield f"lost {patch}", world._replace(patches=rest)
        item = world.object
        if patch.owner in (None, item.shard) and patch.drain_was in (None, item.drain):
            yield (
                f"done {patch}",
                world._replace(
                    object=Object(patch.shard, patch.drain),
                    patches=frozenset(other for other in rest if not other.versioned),
                    processes=tuple(process._replace(newest=False) for process in world.processes),
                ),
            )


def _sharder_steps(world: World, sharder: int, *, name: str, rules: Rules) -> Iterator[tuple[str, World]]:
    me = f"sharder-{sharder}"
    if world.views[sharder] != world.leases:
        views = tuple(world.leases if k == sharder else view for k, view in enumerate(world.views))
        yield f"{me} looks", world._replace(views=views)
    if any(patch.sender == me for patch in world.patches):
        return
    view = world.views[sharder]
    if not rules.contested_waits:
        view = tuple("dead" if lease in ("contested", "missing") else lease for lease in view)
    found = decided(name, world.object, view)
    if found is None:
        return
    patch, evidence = found
    if evidence is not None and world.leases[LIVES.index(evidence)] != "held":
        return
    if not rules.assign_is_conditional:
        patch = patch._replace(versioned=False)
    yield f"{me} decides {patch}", world._replace(patches=world.patches | {patch._replace(sender=me)})


def _lease_steps(world: World, life: int, *, rules: Rules) -> Iterator[tuple[str, World]]:
    lease, process = world.leases[life], world.processes[life]
    stopped = process.mode != "up"
    if lease == "absent":
        yield f"{LIVES[life]} joins", _with(world, life, lease="held", mode="up")
    if lease == "held" and (stopped or not rules.take_waits_for_silence):
        yield f"{LIVES[life]} is taken", _with(world, life, lease="dead")
    if lease == "missing":
        yield f"{LIVES[life]} gets a tombstone", _with(world, life, lease="contested")
    if lease == "contested" and stopped:
        yield f"{LIVES[life]} is cleared", _with(world, life, lease="dead")


def _process_steps(world: World, life: int, *, rules: Rules) -> Iterator[tuple[str, World]]:
    name, process = LIVES[life], world.processes[life]
    if process.mode == "expired" and world.leases[life] == "held":
        yield f"{name} renews again", _with(world, life, mode="up")
    if process.mode != "up":
        return
    if world.leases[life] not in ("held", "absent"):
        yield f"{name} finds its Lease lost", _with(world, life, mode="gone", working=False)
    seen = world.object if world.object.shard == name else NOTHING
    newest = seen is not NOTHING
    if (seen, newest) != (process.seen, process.newest):
        yield f"{name} sees", _with(world, life, seen=seen, newest=newest)
    if process.working:
        yield f"{name} finishes", _with(world, life, working=False)
    elif process.seen.shard == name and process.seen.drain is None:
        yield f"{name} works", _with(world, life, working=True)
    may_answer = not process.working or not rules.drain_ends_work_first
    if may_answer and process.seen.shard == name and process.seen.drain is not None:
        yield from _acknowledgement(world, name, process, rules=rules)


def _acknowledgement(
    world: World, name: str, process: Process, *, rules: Rules
) -> Iterator[tuple[str, World]]:
    """Pass the object on: to whom the drain label names if that one's Lease is held, else to nobody."""
    if rules.acknowledgement_is_conditional and not process.newest:
        return
    if any(patch.sender == name for patch in world.patches):
        return
    drain = process.seen.drain
    target = drain if drain in LIVES and world.leases[LIVES.index(drain)] == "held" else None
    patch = Patch(name, rules.acknowledgement_is_conditional, name, None, target, None)
    yield f"{name} passes on to {target}", world._replace(patches=world.patches | {patch})


def _faults(world: World, life: int) -> Iterator[tuple[str, World]]:
    name, process, less = LIVES[life], world.processes[life], world._replace(faults=world.faults - 1)
    if process.mode == "up":
        yield f"{name} crashes", _with(less, life, mode="gone", working=False)
        yield f"{name} is cut off", _with(less, life, mode="expired", working=False)
    if world.leases[life] == "held":
        yield f"{name}'s Lease is deleted", _with(less, life, lease="missing")
        yield f"{name} is forced", _with(less, life, lease="contested")


def _with(world: World, life: int, *, lease: str = "", mode: str = "", **process: object) -> World:
    leases, processes = list(world.leases), list(world.processes)
    leases[life] = lease or leases[life]
    changed = processes[life]._replace(**process)  # type: ignore[arg-type]  # fields of Process by name
    processes[life] = changed._replace(mode=mode or changed.mode)
    if processes[life].mode == "gone":
        processes[life] = Process("gone", False, NOTHING, False)
    return world._replace(leases=tuple(leases), processes=tuple(processes))
