"""What lives do in the model: join, see, work, write, acknowledge, renew, stop; and the faults that befall them."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sharder.model.world import (
    ANY,
    HELD,
    NONE,
    NOTHING,
    Letter,
    Object,
    Patch,
    Process,
    Rules,
    Setting,
    World,
    patched,
    struck,
    with_lease,
    with_object,
    with_process,
)

Step = tuple[str, World]


def life_steps(world: World, life: int, *, setting: Setting, rules: Rules) -> Iterator[Step]:
    """Everything that the life number *life* can do next, or that time does to it."""
    name, process, lease = setting.lives[life], world.processes[life], world.leases[life]
    match process.mode:
        case "absent" if lease in ("absent", "missing"):
            yield from _birth(world, life, setting=setting)
        case "unborn":
            is_its_own = lease == "held" or not rules.birth_adopts_what_it_holds
            yield f"{name} hears", with_process(world, life, Process("up" if is_its_own else "gone"))
        case "expired" if lease == "held":
            yield f"{name} renews again", with_process(world, life, process._replace(mode="up"))
        case "frozen":
            yield f"{name} wakes in time", with_process(world, life, process._replace(mode="up"))
            yield (
                f"{name} sleeps beyond its Lease",
                with_process(world, life, process._replace(mode="lapsed")),
            )
        case "lapsed":
            mode = "expired" if lease == "held" else "gone"
            yield f"{name} wakes too late", with_process(world, life, _stopped(process, mode))
        case "gone":
            yield from _again(world, life, setting=setting, rules=rules)
        case "up" if lease != "held":
            yield f"{name} finds its Lease lost", with_process(world, life, _stopped(process, "gone"))
            yield from _active(world, life, setting=setting, rules=rules)
        case "up":
            yield from _active(world, life, setting=setting, rules=rules)
            yield from _succession(world, life, setting=setting, rules=rules)
        case _:
            pass


def _birth(world: World, life: int, *, setting: Setting) -> Iterator[Step]:
    """Its CREATE arrives. Of a ring that is deleted only one that was on its way matters: the object bears its name."""
    name = setting.lives[life]
    if world.given_up == "ring" and world.object.shard != name:
        return
    yield f"{name} joins", with_process(with_lease(world, life, "held"), life, Process("up"))
    for fault, said, lease, mode in (
        ("lose_birth", "does not hear that it joined", "held", "unborn"),
        ("never_full", "joins, and its caches never become full", "filling", "filling"),
    ):
        if less := struck(world, fault):
            yield f"{name} {said}", with_process(with_lease(less, life, lease), life, Process(mode))


def _stopped(process: Process, mode: str) -> Process:
    """What it wrote may still be on its way."""
    return Process(mode) if mode == "gone" else process._replace(mode=mode, working=0)


def _again(world: World, life: int, *, setting: Setting, rules: Rules) -> Iterator[Step]:
    """A new process under the same name: only on a Lease that its own holder released."""
    lease = world.leases[life]
    if (lease == "released" and setting.wears_again) or (lease == "dead" and not rules.names_live_once):
        letters = {
            k._replace(late=True) if k.sender == life and k.patch is None else k for k in world.letters
        }
        worn = with_lease(world._replace(letters=frozenset(letters)), life, "held")
        yield f"{setting.lives[life]} is worn again", with_process(worn, life, Process("up"))


def _succession(world: World, life: int, *, setting: Setting, rules: Rules) -> Iterator[Step]:
    """A next life of the same member proves that the process before it ended, and releases its Lease."""
    for older in range(life):
        if setting.lives[older][0] != setting.lives[life][0] or world.leases[older] != "held":
            continue
        if world.processes[older].mode == "gone" or not rules.succession_is_proven:
            said = f"{setting.lives[life]} releases the Lease of {setting.lives[older]}"
            yield said, with_lease(world, older, "released")


def _active(world: World, life: int, *, setting: Setting, rules: Rules) -> Iterator[Step]:
    name, process, item = setting.lives[life], world.processes[life], world.object
    seen = item if item.shard == name else NOTHING
    if seen != process.seen or (seen is not NOTHING and not process.newest):
        yield f"{name} sees", with_process(world, life, _seeing(process, seen))
    if world.given_up == "ring" and process.seen is NOTHING and may_stop(world, life, rules=rules):
        yield f"{name} stops, as the ring is given up", stopped(world, life)
    if process.working:
        rest = frozenset(k for k in world.letters if k.sender != life or k.patch is not None)
        ended = with_process(world._replace(letters=rest), life, process._replace(working=0))
        yield f"{name} finishes", ended
    elif process.seen.shard == name and process.seen.drain == NONE:
        yield f"{name} works", _begun(world, life)
    is_free = not process.working or not rules.drain_ends_work_first
    if is_free and process.seen.shard == name and process.seen.drain != NONE:
        yield from _acknowledgement(world, life, setting=setting, rules=rules)


def _seeing(process: Process, seen: Object) -> Process:
    """A version is seen; one without a drain label is newer than every acknowledgement so far."""
    fresh = seen is not NOTHING and seen.drain == NONE
    return process._replace(
        seen=seen,
        newest=seen is not NOTHING,
        knew=fresh or process.knew,
        acked=process.acked and not fresh,
        target="",
    )


def _begun(world: World, life: int) -> World:
    """Its writes are on their way from now on; those of whoever worked on the object before are late."""
    process = world.processes[life]
    uid = process.seen.uid
    letters = {
        k._replace(late=True) if k.patch is None and k.uid == uid and k.sender != life else k
        for k in world.letters
    }
    begun = world._replace(letters=frozenset(letters | {Letter(life, uid, None, late=False)}))
    return with_process(begun, life, process._replace(working=uid))


def _acknowledgement(world: World, life: int, *, setting: Setting, rules: Rules) -> Iterator[Step]:
    """Pass the object on: to whom the drain label names if a read shows that one's Lease held, else to nobody."""
    name, process = setting.lives[life], world.processes[life]
    if rules.acknowledgement_is_conditional and not process.newest:
        return
    if any(k.sender == life and k.patch is not None and not k.late for k in world.letters):
        return
    drain = process.seen.drain
    if drain == name:
        to = name
    elif not drain:
        to = NONE
    elif not rules.acknowledgement_has_evidence:
        to = drain
    elif not process.target:
        held = world.leases[setting.lives.index(drain)] in HELD
        asked = process._replace(target="held" if held else "no")
        yield f"{name} reads the Lease of {drain}", with_process(world, life, asked)
        return
    else:
        to = drain if process.target == "held" else NONE
    patch = Patch(process.seen.uid, rules.acknowledgement_is_conditional, name, ANY, to, NONE)
    sent = world._replace(letters=world.letters | {Letter(life, process.seen.uid, patch, late=False)})
    yield f"{name} passes on to {to}", with_process(sent, life, process._replace(acked=True))


def may_stop(world: World, life: int, *, rules: Rules) -> bool:
    """Nothing runs, and nothing that it sent may still be carried out: only then its Lease is released."""
    has_sent = any(k.sender == life for k in world.letters) and rules.release_waits_for_answers
    return not world.processes[life].working and world.leases[life] == "held" and not has_sent


def stopped(world: World, life: int) -> World:
    return with_process(with_lease(world, life, "released"), life, Process("gone"))


def letter_steps(world: World, *, setting: Setting, rules: Rules) -> Iterator[Step]:
    """A message of a life arrives, or is lost."""
    for letter in world.letters:
        rest = world._replace(letters=world.letters - {letter})
        name = setting.lives[letter.sender]
        if letter.patch is not None:
            if not letter.late:
                yield f"the acknowledgement of {name} is lost", rest
            after = patched(rest, letter.patch, rules=rules)
            if after is not None:
                yield f"the acknowledgement of {name} arrives: {letter.patch.shard}", after
            continue
        yield from _write(world, letter, name, setting=setting, rules=rules)


def _write(world: World, letter: Letter, name: str, *, setting: Setting, rules: Rules) -> Iterator[Step]:
    """A fenced write arrives: it makes a new version, or is refused. That it is lost matters to who waits for it."""
    item, is_at_work = world.object, bool(world.processes[letter.sender].working)
    rest = world if is_at_work else world._replace(letters=world.letters - {letter})
    is_waited_for = setting.faults.get("stop") or setting.faults.get("release")
    if is_waited_for and not is_at_work:
        yield f"a write of {name} is lost", rest
    is_refused = item.shard != name or (rules.writes_test_the_turn and letter.is_past)
    if rules.writes_are_fenced and is_refused:
        return
    if letter.uid != item.uid:
        if not rules.writes_test_the_uid:
            yield f"a write of {name} arrives", rest._replace(broken="a write reached another object")
        return
    after = with_object(rest, item)
    if letter.late:
        after = after._replace(broken="a write of a life that had lost the object since was accepted")
    yield f"a write of {name} arrives", after


def fault_steps(world: World, life: int, *, setting: Setting, rules: Rules) -> Iterator[Step]:
    """The faults that can befall one life, its Lease or its messages."""
    if world.processes[life].mode == "up":
        yield from _process_faults(world, life, setting=setting, rules=rules)
    yield from _lease_faults(world, life, setting=setting, rules=rules)
    for letter in world.letters:
        less = struck(world, "lose_answer")
        if less and letter.sender == life and letter.patch is not None and not letter.late:
            letters = (less.letters - {letter}) | {letter._replace(late=True)}
            said = f"{setting.lives[life]} waits no longer for an answer"
            yield said, less._replace(letters=letters)


def _process_faults(world: World, life: int, *, setting: Setting, rules: Rules) -> Iterator[Step]:
    name, process = setting.lives[life], world.processes[life]
    for kind, said, changed in (
        ("crash", "crashes", Process("gone")),
        ("cut", "is cut off", process._replace(mode="expired", working=0)),
        ("suspend", "is suspended", process._replace(mode="frozen")),
    ):
        if less := struck(world, kind):
            yield f"{name} {said}", with_process(less, life, changed)
    counts = process.knew and not (process.acked and rules.nothing_older_counts)
    if counts and (less := struck(world, "stale_list")):
        old = process._replace(seen=Object(world.object.uid, name, NONE), newest=False)
        yield f"{name} sees an old version", with_process(less, life, old)
    if (less := struck(world, "stop")) and may_stop(world, life, rules=rules):
        yield f"{name} stops", stopped(less, life)


def _lease_faults(world: World, life: int, *, setting: Setting, rules: Rules) -> Iterator[Step]:
    name, lease = setting.lives[life], world.leases[life]
    if lease in ("held", "contested") and (less := struck(world, "delete")):
        yield f"the Lease of {name} is deleted", with_lease(less, life, "missing")
    if lease == "held" and (less := struck(world, "force")):
        yield f"{name} is forced", with_lease(less, life, "contested")
    if lease == "held" and (less := struck(world, "edit")):
        taken = "contested" if rules.edited_take_is_contested else "dead"
        yield f"{name} is taken by an edited duration", with_lease(less, life, taken)
