"""Every order of events of a setting, breadth first, until something breaks or nothing new comes. Called by the
tests, which begin most settings, and by `make model`, which ends them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.sharder.model.lives import fault_steps, letter_steps, life_steps
from tests.sharder.model.sharders import is_let_go, lease_steps, sharder_steps
from tests.sharder.model.world import (
    NONE,
    Object,
    Process,
    Rules,
    Setting,
    World,
    is_attended,
    may_recover,
    struck,
    trouble,
    with_object,
    with_process,
)


@dataclass
class Explored:
    """Every world reached, how each was reached first, and, if asked for, from where each can be reached."""

    setting: Setting
    came_from: dict[World, tuple[World, str] | None] = field(default_factory=dict)
    before: dict[World, list[World]] = field(default_factory=dict)
    broken: World | None = None
    is_complete: bool = True

    def run_to(self, world: World) -> list[str]:
        """The shortest run to *world*."""
        run: list[str] = []
        step = self.came_from[world]
        while step is not None:
            run.append(step[1])
            step = self.came_from[step[0]]
        return run[::-1]

    def tell(self) -> str:
        """The shortest run that breaks something."""
        if self.broken is None:
            return "nothing breaks"
        return "\n".join([*self.run_to(self.broken), f"=> {trouble(self.broken)}"])

    def stuck(self) -> World | None:
        """A world from which nobody will ever work on the object again, although somebody could."""
        names = self.setting.lives
        hopeful = {world for world in self.came_from if is_attended(world, names)}
        pending = deque(hopeful)
        while pending:
            for earlier in self.before.get(pending.popleft(), ()):
                if earlier not in hopeful:
                    hopeful.add(earlier)
                    pending.append(earlier)
        return next((w for w in self.came_from if may_recover(w) and w not in hopeful), None)


def explore(
    setting: Setting, rules: Rules | None = None, *, at_most: int = 0, backwards: bool = False
) -> Explored:
    """Every world that can be reached, nearest first, until one is broken; *at_most* so many (0: all)."""
    rules = rules or Rules()
    explored = Explored(setting)
    first = setting.begin()
    explored.came_from[first] = None
    pending = deque([first])
    while pending:
        if at_most and len(explored.came_from) >= at_most:
            explored.is_complete = False
            return explored
        world = pending.popleft()
        for what, following in steps(world, setting=setting, rules=rules):
            if backwards:
                explored.before.setdefault(following, []).append(world)
            if following in explored.came_from:
                continue
            explored.came_from[following] = (world, what)
            if trouble(following):
                explored.broken = following
                return explored
            pending.append(following)
    return explored


def steps(world: World, *, setting: Setting, rules: Rules) -> Iterator[tuple[str, World]]:
    """Everything that can happen next. Worlds that differ in nothing that can matter are one."""
    for what, following in _all_steps(world, setting=setting, rules=rules):
        yield what, _in_order(_without_the_lost(following))


def _in_order(world: World) -> World:
    """Which sharder is which does not matter."""
    first, second = world.sharders
    return world if first <= second else world._replace(sharders=(second, first))


def _without_the_lost(world: World) -> World:
    """A process that stands still and whose Lease is not its own any more will never do anything again."""
    for life, process in enumerate(world.processes):
        if process.mode in ("expired", "lapsed") and world.leases[life] != "held":
            world = with_process(world, life, Process("gone"))
    return world


def _labels_at_birth(world: World, setting: Setting) -> Iterator[str]:
    yield NONE
    if setting.is_born_labelled:
        yield from (
            name for name, lease in zip(setting.lives, world.leases, strict=True) if lease != "absent"
        )


def _all_steps(world: World, *, setting: Setting, rules: Rules) -> Iterator[tuple[str, World]]:
    yield from letter_steps(world, setting=setting, rules=rules)
    for which in range(len(world.sharders) if world.sharders[0] != world.sharders[1] else 1):
        yield from sharder_steps(world, which, setting=setting, rules=rules)
    has_faults = any(world.faults)
    for life in range(len(setting.lives)):
        yield from lease_steps(world, life, setting=setting, rules=rules)
        yield from life_steps(world, life, setting=setting, rules=rules)
        if has_faults:
            yield from fault_steps(world, life, setting=setting, rules=rules)
    if less := struck(world, "recreate"):
        for label in _labels_at_birth(world, setting):
            what = "the object is deleted and created again"
            yield what if label == NONE else f"{what} as {label}'s", with_object(less, Object(2, label, NONE))
    for fault, given_up in (("release", "ring"), ("deselect", "namespace"), ("remove", "resource")):
        if not world.given_up and (less := struck(world, fault)):
            yield f"the {given_up} is given up", less._replace(given_up=given_up)
    if not world.outsider and any(is_let_go(world, sharder, rules=rules) for sharder in world.sharders):
        yield "another controller works", world._replace(outsider=True)
