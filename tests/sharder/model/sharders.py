"""What sharders do in the model: look at Leases, take and clear them, decide by the real planner, send one patch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

from kubeio.patch import JsonPatch
from sharder.membership.shards import ShardState
from sharder.membership.view import View
from sharder.planning.decisions import Assign, Drain, ObjectWrite, ReleaseDrain, Strip, Touch, UpdateDrain
from sharder.planning.keys import Root
from sharder.planning.patches import patch_of
from sharder.planning.planner import Subject, Terms, plan
from tests.sharder.model.world import (
    ANY,
    HELD,
    NONE,
    Patch,
    Rules,
    Setting,
    Sharder,
    World,
    patched,
    struck,
    with_lease,
    with_process,
)
from tests.sharder.pure.views import KEYS, make_meta, make_view, name_for

Step = tuple[str, World]
_STATES = {
    "held": ShardState.READY,
    "filling": ShardState.READY,
    "released": ShardState.RELEASED,
    "contested": ShardState.CONTESTED,
    "missing": ShardState.MISSING,
    "dead": ShardState.DEAD,
}
_WAITING = ("contested", "missing")
"""States of a Lease that end after a time."""


@cache
def view_of(names: tuple[str, ...], leases: tuple[str, ...]) -> View:
    """What a sharder that saw these Leases knows; places settle at once here."""
    known = dict(zip(names, leases, strict=True))
    lives = {name: _STATES[lease] for name, lease in known.items() if lease in _STATES}
    return make_view(lives, {name[0]: name for name, lease in known.items() if lease == "held"})


@cache
def site(names: tuple[str, ...]) -> str:
    """An object whose place is the last life's member's when all are there."""
    return name_for(view_of(names, ("held",) * len(names)), names[-1][0])


@cache
def decided(
    names: tuple[str, ...], leases: tuple[str, ...], labels: tuple[str, str], given_up: str
) -> tuple[Patch, str | None] | None:
    """The real planner's patch, and the name it needs evidence for; None if it writes nothing."""
    subject = _subject(names, labels, given_up)
    terms = Terms(releasing=given_up == "ring")
    decision = plan(subject, view=view_of(names, leases), terms=terms, keys=KEYS)
    if not isinstance(decision, Assign | Drain | UpdateDrain | ReleaseDrain | Strip):
        return None
    return _patch(decision, subject), decision.to if isinstance(decision, Assign) else None


def _subject(names: tuple[str, ...], labels: tuple[str, str], given_up: str) -> Subject:
    shard, drain = (None if label == NONE else label for label in labels)
    meta = make_meta(site(names), shard=shard, drain=drain)
    role = Root(f"example.com_ns_{meta.name}", given_up=given_up == "resource")
    return Subject(meta, role, selected=given_up != "namespace")


def _patch(decision: ObjectWrite, subject: Subject) -> Patch:
    encoded = patch_of(decision, subject.meta, keys=KEYS)
    if isinstance(encoded, JsonPatch):
        operations = json.loads(encoded.encode())
        tests = {op["path"]: op["value"] for op in operations if op["op"] == "test"}
        assert tests.pop("/metadata/uid") == subject.meta.uid
        (added,) = (op["value"] for op in operations if op["op"] == "add")
        owner = next(value for path, value in tests.items() if "/shard." in path)
        was = next((value for path, value in tests.items() if "/drain." in path), ANY)
        return Patch(1, False, owner, was, owner, added)
    metadata = json.loads(encoded.encode())["metadata"]
    assert metadata["resourceVersion"] == subject.meta.resource_version
    assert metadata["uid"] == subject.meta.uid
    to, asks = (metadata["labels"].get(key) for key in (KEYS.shard, KEYS.drain))
    turn = {} if isinstance(decision, Touch) else {KEYS.turn: subject.meta.resource_version if to else None}
    assert metadata["annotations"] == turn
    return Patch(1, True, ANY, ANY, to or NONE, NONE if asks is None else asks)


def sharder_steps(world: World, which: int, *, setting: Setting, rules: Rules) -> Iterator[Step]:
    """Everything that sharder number *which* can do next, and what can become of its patch."""
    me = world.sharders[which]

    def become(after: World, changed: Sharder) -> World:
        pair = (changed, after.sharders[1]) if which == 0 else (after.sharders[0], changed)
        return after._replace(sharders=pair)

    if me.view != world.leases or me.knows != bool(world.given_up):
        yield f"sharder {which} looks", become(world, _looked(world, me, rules=rules))
    if not me.order and (less := struck(world, "end_sharder")):
        successor = Sharder(world.leases, knows=bool(world.given_up), touches=world.given_up == "resource")
        yield f"sharder {which} ends, and another one begins", become(less, successor)
    if me.order:
        unsent = become(world, me._replace(order=()))
        yield f"the patch of sharder {which} is lost", unsent
        after = patched(unsent, me.order[0], rules=rules)
        if after is not None and (after.object != world.object or after.broken):
            yield f"the patch of sharder {which} arrives: {after.object}", after
        return
    patch = _decision(world, me, setting=setting, rules=rules)
    if patch is None:
        return
    possible = struck(world, "lag") if patch.is_assignment and _lags(world, me) else world
    if possible is not None:
        yield f"sharder {which} decides {patch}", become(possible, me._replace(order=(patch,)))


def _looked(world: World, me: Sharder, *, rules: Rules) -> Sharder:
    """It sees the Leases as they are, and that the object is given up: then it touches what the ring still wants."""
    is_new = bool(world.given_up) and not me.knows
    return me._replace(
        view=world.leases,
        watched=tuple(k for k in me.watched if world.leases[k] in _WAITING),
        knows=bool(world.given_up),
        touches=me.touches or (is_new and world.given_up != "ring" and rules.deselected_is_touched),
    )


def _lags(world: World, me: Sharder) -> bool:
    """Whether what *me* sees of the object is newer than what it sees of the ring and of namespaces."""
    is_touched = world.outsider or any(s.knows and not s.touches for s in world.sharders)
    return world.given_up in ("namespace", "resource") and is_touched and not me.knows


def is_let_go(world: World, me: Sharder, *, rules: Rules) -> bool:
    """Whether *me* says that the object is free for another controller: deselected and touched, or no life is left."""
    if not me.knows or world.object.shard != NONE:
        return False
    if world.given_up != "ring":
        return not me.touches
    leases = _shown(world.leases if rules.given_back_on_evidence else me.view, me, rules=rules)
    may_work = any(lease in (*HELD, *_WAITING) for lease in leases)
    return not may_work or not rules.given_back_after_the_last_life


def _decision(world: World, me: Sharder, *, setting: Setting, rules: Rules) -> Patch | None:
    view = me.view
    if not rules.contested_waits:
        view = tuple("dead" if lease in ("contested", "missing") else lease for lease in view)
    if me.knows and world.given_up == "ring":
        view = _shown(view, me, rules=rules)
    if not rules.place_waits_for_full_caches:
        view = tuple("held" if lease == "filling" else lease for lease in view)
    item = world.object
    labels, given_up = (item.shard, item.drain), world.given_up if me.knows else ""
    found = decided(setting.lives, view, labels, given_up)
    if found is None:
        return touch(setting.lives)._replace(uid=item.uid) if me.touches and labels == (NONE, NONE) else None
    patch, evidence = found
    is_held = evidence is None or world.leases[setting.lives.index(evidence)] in HELD
    if rules.assign_has_evidence and not is_held:
        return None
    if given_up and not rules.given_up_by_the_owner:
        patch = Patch(1, True, ANY, ANY, NONE, NONE)
    if patch.versioned and not rules.assign_is_conditional:
        patch = patch._replace(versioned=False)
    return patch._replace(uid=item.uid)


def _shown(leases: tuple[str, ...], me: Sharder, *, rules: Rules) -> tuple[str, ...]:
    """*leases* as they count while the ring is deleted: a name without one is dead when *me* saw none for so long."""
    return tuple(
        "dead" if lease == "missing" and (k in me.watched or not rules.unshown_name_waits) else lease
        for k, lease in enumerate(leases)
    )


@cache
def touch(names: tuple[str, ...]) -> Patch:
    """The patch that gives an object without an owner another version."""
    return _patch(Touch(), _subject(names, (NONE, NONE), "namespace"))


def lease_steps(world: World, life: int, *, setting: Setting, rules: Rules) -> Iterator[Step]:
    """What becomes of one Lease without its shard: takes, tombstones, contests, orphans."""
    name, process = setting.lives[life], world.processes[life]
    match world.leases[life]:
        case "held" if (
            process.mode in ("unborn", "expired", "lapsed", "gone") or not rules.take_waits_for_silence
        ):
            yield f"{name} is taken", with_lease(world, life, "dead")
        case "released":
            yield f"{name} is taken, as it was released", with_lease(world, life, "dead")
        case "missing":
            yield f"{name} gets a tombstone", with_lease(world, life, "contested")
            if world.given_up == "ring":
                yield from _wait(world, life, setting=setting, rules=rules)
        case "contested":
            yield from _wait(world, life, setting=setting, rules=rules)
            if any(life in sharder.watched for sharder in world.sharders):
                yield f"{name} is cleared", with_lease(world, life, "dead")
        case "dead" if world.object.shard != name:
            yield f"the Lease of {name} is deleted as orphaned", with_lease(world, life, "forgotten")
        case "forgotten" | "absent" if world.object.shard == name:
            yield f"{name} is missed", with_lease(world, life, "missing")
        case _:
            pass


def _wait(world: World, life: int, *, setting: Setting, rules: Rules) -> Iterator[Step]:
    """The longest duration passes: the process has stopped by its own clock, and who watched it all may act on it.

    A sharder that still acts then has seen a deletion of the ring that was older than this.
    """
    state, process = world.leases[life], world.processes[life]
    since_deletion = state == "missing" and rules.unshown_wait_begins_with_the_deletion
    watching = [
        life not in s.watched and s.view[life] == state and (s.knows or not since_deletion)
        for s in world.sharders
    ]
    if process.mode not in ("up", "frozen") and not any(watching):
        return
    first, second = (
        s._replace(
            watched=tuple(sorted((*s.watched, life))) if is_watching else s.watched,
            knows=s.knows or since_deletion,
        )
        for s, is_watching in zip(world.sharders, watching, strict=True)
    )
    mode = {"up": "gone", "frozen": "lapsed"}.get(process.mode, process.mode)
    changed = process if mode == process.mode else process._replace(mode=mode)
    if mode == "gone" and process.mode == "up":
        changed = type(process)("gone")
    passed = with_process(world._replace(sharders=(first, second)), life, changed)
    yield f"{setting.lives[life]} stays {state} for its time", passed
