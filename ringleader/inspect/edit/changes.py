"""What a person asks of a ring and its members: cordon, uncordon, weight, pause, resume. All of it is spec of the ring.

Owns the one conditional write, and what is said of its effect before or after it; sharders do the rest. Refuses what
would leave a ring without a member, unless it is confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kubeio.errors import Conflict, InputError
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.suggestions import nearest
from ring import movement
from ringleader.cluster.reader import read_rings, read_shards
from ringleader.cluster.ring import Ring, named_ring
from ringleader.cluster.shards import HashRings, Shard, ring_weights
from ringleader.options import ConnectionOptions, connected
from ringleader.output import Form, print_document, print_line
from sharder.ringspec.spec import MemberSpec

if TYPE_CHECKING:
    from kubeio.rest.client import Client

FIELD_MANAGER: Final = "ringleader-cli"
LIGHTEST: Final = 0.001
HEAVIEST: Final = 100.0
_ATTEMPTS: Final = 5
Edit = Callable[[MemberSpec], MemberSpec]


class Flow(msgspec.Struct, rename="camel"):
    """*share* of the ring's keys goes from one member to another."""

    source: str
    target: str
    share: float


class RingChange(msgspec.Struct, rename="camel"):
    """What became of a ring: *what* in words, whether anything was written, and what follows for its keys."""

    ring: str
    what: str
    is_changed: bool
    is_written: bool
    moves: float
    flows: list[Flow]
    is_paused: bool = False
    """The ring is paused: its keys move when it is resumed."""


class Order(msgspec.Struct, frozen=True):
    """What a command was given beside its own words."""

    ring: str | None = None
    is_dry: bool = False
    goes_on: bool = False
    is_absent: bool = False
    """The member is still to come: its name need not be known."""


# ---- members --------------------------------------------------------------------------------------------------


def run_member(
    where: ConnectionOptions, names: Sequence[str], edit: Edit, order: Order, *, form: Form | None
) -> int:
    """`cordon`, `uncordon` and `weight`: *edit* each of the members."""

    async def work(client: Client, _: object) -> list[RingChange]:
        return [await change_member(client, name, edit, order, timeout_s=where.timeout_s) for name in names]

    _print_changes(connected(where, work), order, form)
    return 0


async def change_member(
    client: Client, name: str, edit: Edit, order: Order, *, timeout_s: float
) -> RingChange:
    """*edit* what the ring's spec says of member *name*. Raises InputError, KubeError."""
    for _ in range(_ATTEMPTS):
        rings = await read_rings(client, timeout_s=timeout_s)
        ring, found = await _ring_of(client, rings, name, order)
        _refuse_deleted(ring)
        before = ring.spec.member(name)
        after = edit(before)
        changed = replace(ring, spec=replace(ring.spec, members={**ring.spec.members, name: after}))
        change = _member_change(ring, changed, found, name, before=before, after=after)
        if not change.is_changed:
            return change
        emptied = _emptied(ring, changed, found)
        if not order.goes_on and not order.is_dry and emptied:
            works = f" that works {', '.join(emptied)}" if ring_weights(changed, found) else ""
            raise InputError(
                "MEMBER",
                name,
                f"is the last member of ring {ring.name} with a place{works}",
                "uncordon another one first, or add --yes: its objects then stay, and new ones wait",
            )
        if order.is_dry:
            return change
        try:
            await _write(client, ring, {"members": {name: _fields(after)}}, timeout_s=timeout_s)
        except Conflict:
            continue  # the ring was edited meanwhile: decide anew
        return msgspec.structs.replace(change, is_written=True)
    raise InputError("RING", order.ring or name, "is edited all the time by others", "try again")


def _fields(member: MemberSpec) -> Mapping[str, object] | None:
    """What stands in the spec; null, so that nothing does, if it is what holds without it."""
    fields: dict[str, object] = {
        "cordoned": True if member.cordoned else None,
        "weight": None if member.weight == 1.0 else member.weight,
    }
    return fields if any(value is not None for value in fields.values()) else None


async def _ring_of(
    client: Client, rings: Sequence[Ring], member: str, order: Order
) -> tuple[Ring, Sequence[Shard]]:
    """The ring that *member* is of, and its shards. Raises InputError naming what there is."""
    chosen = [named_ring(list(rings), order.ring)] if order.ring is not None else list(rings)
    known: dict[str, None] = {}
    fitting: list[tuple[Ring, Sequence[Shard]]] = []
    for ring in chosen:
        found = await read_shards(client, ring)
        members = {shard.member for shard in found if shard.state != "dead"} | set(ring.spec.members)
        known |= dict.fromkeys(members)
        if member in members or (order.is_absent and len(chosen) == 1):
            fitting.append((ring, found))
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(ring.name for ring, _ in fitting)
        raise InputError("--ring", order.ring, f"is needed: {member} is a member of {names}", "give one")
    of = f"ring {order.ring}" if order.ring else "any ring"
    remedy = f"name another: {nearest(member, known)}"
    raise InputError(
        "MEMBER",
        member,
        f"is not a member of {of}",
        f"{remedy} (--allow-unknown --ring RING: it is still to come)",
    )


def _member_change(
    ring: Ring, changed: Ring, found: Sequence[Shard], name: str, *, before: MemberSpec, after: MemberSpec
) -> RingChange:
    parts = []
    if before.cordoned != after.cordoned:
        parts.append("cordoned" if after.cordoned else "uncordoned")
    if before.weight != after.weight:
        parts.append(f"weight {before.weight:g} -> {after.weight:g}")
    state = "cordoned" if after.cordoned else f"weight {after.weight:g}"
    what = f"member {name}: {', '.join(parts) or f'is {state} already'}"
    flows = _flows(ring, changed, found) if parts else []
    return RingChange(
        ring.name,
        what,
        bool(parts),
        is_written=False,
        moves=sum(flow.share for flow in flows),
        flows=flows,
        is_paused=ring.spec.paused,
    )


def _emptied(ring: Ring, changed: Ring, found: Sequence[Shard]) -> list[str]:
    """Main resources that some member with a place works now, and none after the change."""
    mains = ring.mains or [""]
    return [
        main for main in mains if ring_weights(ring, found, main) and not ring_weights(changed, found, main)
    ]


def _flows(ring: Ring, changed: Ring, found: Sequence[Shard]) -> list[Flow]:
    """What share of the keys goes where, as the mean over the main resources; nothing where a ring has no member."""
    mains = ring.mains or [""]
    before, after = HashRings(ring, found), HashRings(changed, found)
    shares: dict[tuple[str, str], float] = {}
    for old, new in ((before.of(main), after.of(main)) for main in mains):
        if len(old) and len(new):
            for flow, share in movement(old, new).flows.items():
                shares[flow] = shares.get(flow, 0.0) + float(share) / len(mains)
    return [Flow(source, target, share) for (source, target), share in shares.items()]


def cordoned(member: MemberSpec) -> MemberSpec:
    return replace(member, cordoned=True)


def uncordoned(member: MemberSpec) -> MemberSpec:
    return replace(member, cordoned=False)


def weighted(text: str) -> Edit:
    """The edit that gives a member the weight in *text*. Raises InputError if no member can have it."""
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if not LIGHTEST <= weight <= HEAVIEST or round(weight, 3) != weight:
        raise InputError(
            "WEIGHT",
            text,
            "cannot be a member's weight",
            f"use {LIGHTEST:g} to {HEAVIEST:g} with at most three decimals; cordon takes it off the ring",
        )
    return lambda member: replace(member, weight=weight)


# ---- rings ----------------------------------------------------------------------------------------------------


def run_pause(where: ConnectionOptions, name: str, order: Order, *, pause: bool, form: Form | None) -> int:
    """`pause` and `resume`."""

    async def work(client: Client, _: object) -> list[RingChange]:
        return [await change_pause(client, name, order, pause=pause, timeout_s=where.timeout_s)]

    _print_changes(connected(where, work), order, form)
    return 0


async def change_pause(
    client: Client, name: str, order: Order, *, pause: bool, timeout_s: float
) -> RingChange:
    """Let nothing move between live shards of ring *name*, or let it again. Raises InputError, KubeError."""
    ring = named_ring(await read_rings(client, timeout_s=timeout_s), name)
    _refuse_deleted(ring)
    state = "paused" if pause else "not paused"
    follows = (
        "nothing moves between live replicas; new and orphaned objects are still assigned"
        if pause
        else "objects go to their places"
    )
    is_changed = ring.spec.paused is not pause
    what = f"{'paused' if pause else 'resumed'}: {follows}" if is_changed else f"is {state} already"
    change = RingChange(ring.name, what, is_changed, is_written=False, moves=0.0, flows=[])
    if not is_changed or order.is_dry:
        return change
    patch = MergePatch({"spec": {"paused": pause or None}})
    await client.patch(
        CONTROLLER_RINGS, name, patch, type=bytes, field_manager=FIELD_MANAGER, timeout_s=timeout_s
    )
    return msgspec.structs.replace(change, is_written=True)


def _refuse_deleted(ring: Ring) -> None:
    """Raises InputError if *ring* is being deleted: a change of its spec has no effect any more."""
    if ring.is_deleted:
        remedy = f"wait until it is gone (ringleader status {ring.name}), then create it anew"
        raise InputError("RING", ring.name, "is being deleted, and gives its objects up", remedy)


async def _write(client: Client, ring: Ring, spec: Mapping[str, Any], *, timeout_s: float) -> None:
    """Merge *spec* into the version that was read. Raises Conflict if there is a newer one."""
    document = {"metadata": {"resourceVersion": ring.metadata.resource_version}, "spec": spec}
    await client.patch(
        CONTROLLER_RINGS,
        ring.name,
        MergePatch(document),
        type=bytes,
        field_manager=FIELD_MANAGER,
        timeout_s=timeout_s,
    )


def _print_changes(changes: Sequence[RingChange], order: Order, form: Form | None) -> None:
    match form:
        case Form.JSON | Form.YAML:
            print_document({"changes": list(changes)}, form=form)
        case Form.NAME:
            for ring in dict.fromkeys(change.ring for change in changes):
                print_line(f"controllerring.ringleader.dev/{ring}")
        case _:
            for change in changes:
                for line in lines(change, is_dry=order.is_dry, is_wide=form is Form.WIDE):
                    print_line(line)


def lines(change: RingChange, *, is_dry: bool, is_wide: bool) -> list[str]:
    """What happened, and what share of the keys moves for it; each flow with `-o wide`."""
    dry = " (not written: --dry-run)" if is_dry and change.is_changed else ""
    shown = [f"ring {change.ring}: {change.what}{dry}"]
    if change.moves:
        when = (
            " when the ring is resumed: it is paused"
            if change.is_paused
            else ", as fast as maxInFlight lets them"
        )
        shown.append(f"{change.moves:.1%} of the ring's keys move{when}")
    if is_wide:
        shown += [f"  {flow.source} -> {flow.target}  {flow.share:.2%}" for flow in change.flows]
    return shown
