"""What sharders do in the model: look at Leases, take and clear them, decide by the real planner, send one patch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

from kubeio.patch import JsonPatch
from sharder.membership.lives import State
from sharder.membership.view import View
from sharder.planning.decisions import Assign, Drain, ReleaseDrain, Strip, UpdateDrain
from sharder.planning.patches import patch_of
from sharder.planning.planner import Terms, plan
from tests.sharder.model.world import (
    ANY,
    NONE,
    Patch,
    Rules,
    Setting,
    Sharder,
    World,
    patched,
    with_lease,
    with_process,
)
from tests.sharder.pure.views import KEYS, make_view, name_for, website

Step = tuple[str, World]
_STATES = {
    "held": State.READY,
    "released": State.RELEASED,
    "contested": State.CONTESTED,
    "missing": State.MISSING,
    "dead": State.DEAD,
}


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
    names: tuple[str, ...], leases: tuple[str, ...], labels: tuple[str, str], releasing: bool
) -> tuple[Patch, str | None] | None:
    """The real planner's patch, and the name it needs evidence for; None if it writes nothing."""
    shard, drain = (None if label == NONE else label for label in labels)
    subject = website(site(names), shard=shard, drain=drain)
    terms = Terms(releasing=releasing)
    decision = plan(subject, view=view_of(names, leases), terms=terms, keys=KEYS)
    if not isinstance(decision, Assign | Drain | UpdateDrain | ReleaseDrain | Strip):
        return None
    encoded = patch_of(decision, subject.meta, keys=KEYS)
    evidence = decision.to if isinstance(decision, Assign) else None
    if isinstance(encoded, JsonPatch):
        operations = json.loads(encoded.encode())
        tests = {op["path"]: op["value"] for op in operations if op["op"] == "test"}
        assert tests.pop("/metadata/uid") == subject.meta.uid
        (added,) = (op["value"] for op in operations if op["op"] == "add")
        owner = next(value for path, value in tests.items() if "/shard." in path)
        was = next((value for path, value in tests.items() if "/drain." in path), ANY)
        return Patch(1, False, owner, was, owner, added), evidence
    metadata = json.loads(encoded.encode())["metadata"]
    assert metadata["resourceVersion"] == subject.meta.resource_version
    assert metadata["uid"] == subject.meta.uid
    to = metadata["labels"].get(KEYS.shard)
    assert metadata["annotations"] == {KEYS.turn: subject.meta.resource_version if to else None}
    return Patch(1, True, ANY, ANY, to or NONE, NONE), evidence


def sharder_steps(world: World, which: int, *, setting: Setting, rules: Rules) -> Iterator[Step]:
    """Everything that sharder number *which* can do next, and what can become of its patch."""
    me = world.sharders[which]

    def become(after: World, changed: Sharder) -> World:
        pair = (changed, after.sharders[1]) if which == 0 else (after.sharders[0], changed)
        return after._replace(sharders=pair)

    if me.view != world.leases or me.releasing != world.releasing:
        looked = me._replace(view=world.leases, releasing=world.releasing)
        yield f"sharder {which} looks", become(world, looked)
    if me.order:
        unsent = become(world, me._replace(order=()))
        yield f"the patch of sharder {which} is lost", unsent
        after = patched(unsent, me.order[0], rules=rules)
        if after is not None and (after.object != world.object or after.broken):
            yield f"the patch of sharder {which} arrives: {after.object}", after
        return
    patch = _decision(world, me, setting=setting, rules=rules)
    if patch is not None:
        yield f"sharder {which} decides {patch}", become(world, me._replace(order=(patch,)))


def _decision(world: World, me: Sharder, *, setting: Setting, rules: Rules) -> Patch | None:
    view = me.view
    if not rules.contested_waits:
        view = tuple("dead" if lease in ("contested", "missing") else lease for lease in view)
    item = world.object
    found = decided(setting.lives, view, (item.shard, item.drain), me.releasing)
    if found is None:
        return None
    patch, evidence = found
    is_held = evidence is None or world.leases[setting.lives.index(evidence)] == "held"
    if rules.assign_has_evidence and not is_held:
        return None
    if me.releasing and not rules.given_up_by_the_owner:
        patch = Patch(1, True, ANY, ANY, NONE, NONE)
    if patch.versioned and not rules.assign_is_conditional:
        patch = patch._replace(versioned=False)
    return patch._replace(uid=item.uid)


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
        case "contested":
            yield from _contest(world, life, setting=setting)
        case "dead" if world.object.shard != name:
            yield f"the Lease of {name} is deleted as orphaned", with_lease(world, life, "forgotten")
        case "forgotten" if world.object.shard == name:
            yield f"{name} is missed", with_lease(world, life, "missing")
        case _:
            pass


def _contest(world: World, life: int, *, setting: Setting) -> Iterator[Step]:
    """Its time passes: the process has stopped by its own clock, and who watched it from the begin may clear it."""
    name, process = setting.lives[life], world.processes[life]
    watching = [life not in s.watched and s.view[life] == "contested" for s in world.sharders]
    if process.mode in ("up", "frozen") or any(watching):
        first, second = (
            s._replace(watched=tuple(sorted((*s.watched, life)))) if is_watching else s
            for s, is_watching in zip(world.sharders, watching, strict=True)
        )
        mode = {"up": "gone", "frozen": "lapsed"}.get(process.mode, process.mode)
        changed = process if mode == process.mode else process._replace(mode=mode)
        if mode == "gone" and process.mode == "up":
            changed = type(process)("gone")
        passed = with_process(world._replace(sharders=(first, second)), life, changed)
        yield f"the contest of {name} lasts its time", passed
    if any(life in sharder.watched for sharder in world.sharders):
        yield f"{name} is cleared", with_lease(world, life, "dead")
