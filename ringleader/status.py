"""`ringleader status`: rings with their members, shares beside the ideal, and what is unowned or on its way.

Owns the picture it draws (`RingPicture`, also the JSON document). Counts objects over pages of metadata; decides
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from kubeio.access.kubeconfig import nearest
from kubeio.clock import SystemClock
from kubeio.errors import InputError
from kubeio.labels import RingKeys
from kubeio.resource import CONTROLLER_RINGS
from ringleader.options import Connection, connected
from ringleader.output import Form, Table, age, print_document, print_line, print_table
from ringleader.rings import Life, Ring, lives, ring_weights

if TYPE_CHECKING:
    from kubeio.rest.client import Client
    from kubeio.rest.discovery import Discovery


class MemberPicture(msgspec.Struct, rename="camel"):
    """One life of one member; only the one that fills the place has an ideal share."""

    member: str
    shard: str
    state: str
    lease_age_seconds: float | None
    objects: int
    share: float
    ideal: float
    in_flight: int


class RingPicture(msgspec.Struct, rename="camel"):
    name: str
    ready: str
    balanced: str
    objects: int
    unowned: int
    in_flight: int
    members: list[MemberPicture]


class Count(msgspec.Struct):
    """Objects by shard label and handoffs by the owner they leave, over all resources of a ring."""

    owners: Counter[str] = msgspec.field(default_factory=Counter)
    leaving: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, labels: dict[str, str], keys: RingKeys) -> None:
        owner = labels.get(keys.shard, "")
        self.owners[owner] += 1
        if keys.drain in labels:
            self.leaving[owner] += 1


def run_status(where: Connection, *, ring: str | None, form: Form | None) -> int:
    """The command."""
    pictures = connected(where, lambda client, _: _pictures(client, ring, timeout_s=where.timeout_s))
    match form:
        case Form.JSON | Form.YAML:
            print_document({"rings": pictures}, form=form)
        case Form.NAME:
            for picture in pictures:
                print_line(f"controllerring.ringleader.dev/{picture.name}")
        case _:
            _print(pictures, form)
    return 0


async def _pictures(client: Client, name: str | None, *, timeout_s: float) -> list[RingPicture]:
    from kubeio.rest.discovery import Discovery

    rings = await read_rings(client, timeout_s=timeout_s)
    if name is not None and name not in {ring.name for ring in rings}:
        known = nearest(name, [ring.name for ring in rings])
        raise InputError("RING", name, "is not a ring of this cluster", f"name another: {known}")
    discovery = Discovery(client)
    return [
        await _read_picture(client, discovery, ring, timeout_s=timeout_s)
        for ring in rings
        if name in (None, ring.name)
    ]


async def read_rings(client: Client, *, timeout_s: float) -> list[Ring]:
    """Every ring of the cluster, by name."""
    rings = []
    async for page in client.pages(CONTROLLER_RINGS, timeout_s=timeout_s):
        rings += [msgspec.json.decode(found.raw, type=Ring) for found in page.objects]
    return sorted(rings, key=lambda ring: ring.name)


async def read_lives(client: Client, ring: Ring) -> list[Life]:
    """Every life of *ring*, from a consistent read of its Leases."""
    from kubeio.leases.lease import Leases

    leases, _ = await Leases(client, ring.spec.lease_namespace).list(f"{ring.keys.ring_label}={ring.name}")
    return lives(ring, leases, now=SystemClock().wall())


async def _read_picture(client: Client, discovery: Discovery, ring: Ring, *, timeout_s: float) -> RingPicture:
    found = await read_lives(client, ring)
    count = Count()
    for distributed in ring.spec.resources:
        resource = await discovery.resolve(distributed.kind.name)
        async for page in client.pages(resource, metadata_only=True, timeout_s=timeout_s):
            for obj in page.objects:
                count.add(obj.meta.labels, ring.keys)
    return picture(ring, found, count)


def picture(ring: Ring, found: Sequence[Life], count: Count) -> RingPicture:
    """What is shown of *ring*; an object is unowned if it bears no name, or that of a life that is not live."""
    live = {life.shard for life in found if life.is_live}
    total = count.owners.total()
    ideal = ideal_shares(ring, found)
    return RingPicture(
        name=ring.name,
        ready=ring.condition("Ready"),
        balanced=ring.condition("Balanced"),
        objects=total,
        unowned=sum(number for shard, number in count.owners.items() if shard not in live),
        in_flight=count.leaving.total(),
        members=[
            MemberPicture(
                member=life.member,
                shard=life.shard,
                state=life.state,
                lease_age_seconds=life.age_s,
                objects=count.owners[life.shard],
                share=count.owners[life.shard] / total if total else 0.0,
                ideal=ideal.get(life.member, 0.0) if life.fills_place else 0.0,
                in_flight=count.leaving[life.shard],
            )
            for life in found
        ],
    )


def ideal_shares(ring: Ring, found: Sequence[Life]) -> dict[str, float]:
    """Each member's share by weight alone: what perfect balance would give it."""
    weights = ring_weights(ring, found)
    total = sum(weights.values())
    return {member: weight / total for member, weight in weights.items()} if total else {}


def _print(pictures: Sequence[RingPicture], form: Form | None) -> None:
    if not pictures:
        print_line("no ring in this cluster; examples/website/ring.yaml is one to begin with")
    for index, shown in enumerate(pictures):
        if index:
            print_line()
        print_table(ring_table(shown), form=form)
        if shown.members:
            print_line()
            print_table(member_table(shown, is_wide=form is Form.WIDE), form=form)


def ring_table(shown: RingPicture) -> Table:
    places = sum(member.ideal > 0 for member in shown.members)
    numbers = (shown.objects, shown.unowned, shown.in_flight, places)
    row = [shown.name, *(f"{number:,}" for number in numbers), shown.ready, shown.balanced]
    return Table(("RING", "OBJECTS", "UNOWNED", "IN FLIGHT", "PLACES", "READY", "BALANCED"), [row])


def member_table(shown: RingPicture, *, is_wide: bool) -> Table:
    """One row per life; those that are over and own nothing are shown with `-o wide` only."""
    members = [
        each for each in shown.members if is_wide or each.objects or each.ideal or each.state != "dead"
    ]
    return Table(
        ("MEMBER", "SHARD", "STATE", "LEASE AGE", "OBJECTS", "SHARE", "IDEAL", "IN FLIGHT"),
        [
            [
                member.member,
                member.shard,
                member.state,
                age(member.lease_age_seconds),
                f"{member.objects:,}",
                f"{member.share:.1%}",
                f"{member.ideal:.1%}" if member.ideal else "-",
                f"{member.in_flight:,}",
            ]
            for member in members
        ],
        wide=("SHARD", "IN FLIGHT"),
    )
