"""Every order of events of a small world: nobody works on the object at the same time as somebody else, and no
object is left for ever without a worker."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest

from tests.sharder.model.world import Rules, World, begin, is_attended, may_recover, overlap, steps, view_of
from tests.sharder.pure.views import name_for

NAME = name_for(view_of(("held", "held", "held")), "c")


@dataclass
class Explored:
    """Every world reached, how each was reached first, and from where each can be reached."""

    came_from: dict[World, tuple[World, str] | None] = field(default_factory=dict)
    before: dict[World, list[World]] = field(default_factory=dict)
    overlapping: World | None = None

    def run_to(self, world: World) -> list[str]:
        """The shortest run to *world*."""
        run: list[str] = []
        step = self.came_from[world]
        while step is not None:
            run.append(step[1])
            step = self.came_from[step[0]]
        return run[::-1]


def explore(rules: Rules, *, faults: int) -> Explored:
    """Every world that can be reached, until two processes work at once."""
    explored = Explored()
    first = begin(faults=faults)
    explored.came_from[first] = None
    waiting = deque([first])
    while waiting:
        world = waiting.popleft()
        for what, following in steps(world, name=NAME, rules=rules):
            explored.before.setdefault(following, []).append(world)
            if following in explored.came_from:
                continue
            explored.came_from[following] = (world, what)
            if overlap(following):
                explored.overlapping = following
                return explored
            waiting.append(following)
    return explored


@pytest.fixture(scope="module")
def everything() -> Explored:
    """All orders of events with one fault."""
    return explore(Rules(), faults=1)


def test_no_order_of_events_with_one_fault_gives_an_object_two_workers(everything: Explored) -> None:
    overlapping = everything.overlapping
    assert overlapping is None, "\n".join(everything.run_to(overlapping))
    assert len(everything.came_from) > 10_000


def test_from_every_world_the_object_can_still_get_a_worker(everything: Explored) -> None:
    hopeful = {world for world in everything.came_from if is_attended(world)}
    waiting = deque(hopeful)
    while waiting:
        for earlier in everything.before.get(waiting.popleft(), ()):
            if earlier not in hopeful:
                hopeful.add(earlier)
                waiting.append(earlier)
    stuck = next((w for w in everything.came_from if may_recover(w) and w not in hopeful), None)
    assert stuck is None, "\n".join([*everything.run_to(stuck), str(stuck)])


@pytest.mark.parametrize(
    ("rule", "faults"),
    [
        ("contested_waits", 1),
        ("assign_is_conditional", 0),
        ("acknowledgement_is_conditional", 0),
        ("take_waits_for_silence", 0),
        ("drain_ends_work_first", 0),
    ],
)
def test_without_one_rule_some_order_of_events_gives_an_object_two_workers(rule: str, faults: int) -> None:
    assert explore(Rules(**{rule: False}), faults=faults).overlapping is not None
