"""`ringleader status`: rings with their members, shares beside the ideal, and what is unowned or on its way.

Owns how the picture is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringleader.inspect.picture import RingPicture
from ringleader.inspect.reading import named_ring, read_picture, read_rings
from ringleader.options import Connection, connected
from ringleader.output import Form, Table, age, print_document, print_line, print_table

if TYPE_CHECKING:
    from kubeio.rest.client import Client


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
    wanted = rings if name is None else [named_ring(rings, name)]
    discovery = Discovery(client)
    return [await read_picture(client, discovery, ring, timeout_s=timeout_s) for ring in wanted]


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
