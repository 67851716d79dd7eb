"""How large a world stays through hours of faults: its replicas can do what its users ask for."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from simulation.faults import KINDS, Strike
from simulation.fleet import Fleet
from simulation.scale import Scale, draw_large_scale
from simulation.users import Users
from simulation.world import World

LARGE = draw_large_scale(random.Random(1), hours=24)
SMALL = replace(LARGE, replicas=8, objects=200)


def replicas_after(scale: Scale, *kinds: str) -> list[str]:
    """The replicas that are wanted after two hundred faults of each of *kinds*."""
    world = World(1)
    fleet = Fleet(world, scale)
    users = Users(fleet)
    for number in range(scale.replicas):
        fleet.add(f"replica-{number}")

    def heal(delay_s: float, undo: Callable[[], object]) -> None:
        """Nothing is undone here."""

    for kind in kinds:
        for _ in range(200):
            KINDS[kind](Strike(fleet, users, random.Random(1), heal))
    return list(fleet.wanted)


@pytest.mark.parametrize(("scale", "stay"), [(LARGE, 20), (SMALL, 2)])
def test_so_many_replicas_stay_as_the_objects_need(scale: Scale, stay: int) -> None:
    assert len(replicas_after(scale, "member_left")) == stay


@pytest.mark.parametrize(
    ("scale", "come"), [(LARGE, LARGE.replicas), (replace(LARGE, replicas=100), 100), (SMALL, 10)]
)
def test_replicas_join_until_the_fleet_is_whole(scale: Scale, come: int) -> None:
    assert len(replicas_after(scale, "member_left", "member_joined")) == come


def test_users_create_no_more_than_a_world_has_room_for() -> None:
    world = World(1)
    fleet = Fleet(world, replace(SMALL, objects=20, updates_per_s=1000))
    users = Users(fleet)
    users.start()
    most = 0
    for second in range(1, 41):
        world.run(second)
        most = max(most, len(users.names))
    assert 500 <= most <= 520
