"""docs/membership.md is true: every row of its table of places is brought about and looked at."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sharder.ringspec.spec import MemberSpec
from tests.sharder.pure.lease_simulation import LeaseSimulation, Step, make_spec, replay, run, step

DOCUMENT = Path(__file__).parents[3] / "docs" / "membership.md"
FIRST, NEXT = "a-00000001", "a-00000002"
MEMBERS = ("a", "b", "c", "d")
DURATION_S, SETTLE_S, HOLD_S = 15, 2, 10


def read_rows() -> list[tuple[str, str, str]]:
    section = DOCUMENT.read_text().split("\n## Places\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [(what, filled, ring) for what, filled, ring in cells]


def settled() -> LeaseSimulation:
    sim = LeaseSimulation(settle_s=SETTLE_S, hold_s=HOLD_S, max_lease_duration_s=60)
    for member in MEMBERS:
        sim.join(f"{member}-00000001", member=member)
    sim.run(5)
    return sim


NEXT_OF_ALL = NEXT + "f"
"""The last one of many lives."""


def crash_often(sim: LeaseSimulation) -> None:
    before = FIRST
    for number in range(2, 22):
        name = f"a-{number:08x}" if number < 21 else NEXT_OF_ALL
        succeed(before, name)(sim)
        sim.run(3)
        before = name


def restored(sim: LeaseSimulation, name: str, annotations: dict[str, str]) -> None:
    """A Lease as it was once, made anew by a backup tool: nobody renews it."""
    sim.join(name, member="a", fills=False)
    sim.edit_meta(name, annotations=annotations)
    sim.kill(name)


def succeed(before: str, name: str, *, fills: bool = True) -> Step:
    """A next life releases the Lease of the one before, whose process it proved to be gone."""

    def happens(sim: LeaseSimulation) -> None:
        sim.kill(before)
        sim.join(name, member="a", fills=fills)
        sim.edit(before, holder_identity="")

    return happens


def take(sim: LeaseSimulation) -> None:
    """Let the first life fall silent, and stop at the moment it is taken."""
    sim.kill(FIRST)
    while not sim.takes_of(FIRST):
        sim.run(0.5)


def want_hold(sim: LeaseSimulation) -> None:
    sim.edit_meta(FIRST, annotations=sim.leases[FIRST].metadata.annotations | {sim.keys.hold: "true"})


def configure(member: MemberSpec) -> Step:
    return lambda sim: sim.machine.configure(make_spec(settle_s=SETTLE_S, members={"a": member}))


def assert_unmoved(sim: LeaseSimulation) -> None:
    """No object would go to another member now."""
    assert ring_in_words(sim) == "unchanged"


def ring_in_words(sim: LeaseSimulation) -> str:
    weights = dict(sim.view().ring_members)
    if weights == dict.fromkeys(MEMBERS, 1.0):
        return "unchanged"
    if weights == dict.fromkeys(MEMBERS[1:], 1.0):
        return "without it"
    assert weights == {**dict.fromkeys(MEMBERS, 1.0), "a": 2.0}
    return "with twice its share"


def filler_in_words(sim: LeaseSimulation) -> str:
    place = sim.view().places.get("a")
    if place is None:
        return "-"
    if place.shard is None:
        return "nobody"
    words = {FIRST: "the first", NEXT: "the next", NEXT_OF_ALL: "the next"}
    words["a-00000003"] = "the one whose name comes last"
    return words.get(place.shard, place.shard if place.shard in sim.alive else "one that ended")


def namesakes(sim: LeaseSimulation) -> None:
    created = sim.leases[FIRST].metadata.creation_timestamp
    for name in (NEXT, "a-00000003", "a-00000000"):
        sim.join(name, member="a")
        sim.edit_meta(name, creation_timestamp=created)
    sim.run(SETTLE_S + 0.5)


def backup(sim: LeaseSimulation) -> None:
    sim.join(NEXT, member="a", fills=False)
    annotations = {**sim.leases[NEXT].metadata.annotations, sim.keys.synced: "true"}
    sim.delete(NEXT)
    sim.gone(NEXT)
    sim.kill(NEXT)
    sim.run(120)
    restored(sim, NEXT, annotations)
    for _ in range(20):
        sim.run(1)
        assert sim.view().shard_at("a") == FIRST


def a_long_life(sim: LeaseSimulation) -> None:
    crash_often(sim)
    sim.run(300)
    assert sim.view().shard_at("a") == NEXT_OF_ALL
    sim.run(60)
    succeed(NEXT_OF_ALL, NEXT)(sim)
    sim.run(0.5)


def crash_unproven(sim: LeaseSimulation) -> None:
    before = FIRST
    for number in range(2, 22):
        name = f"a-{number:08x}" if number < 21 else NEXT_OF_ALL
        sim.kill(before)
        sim.join(name, member="a")
        sim.run(3)
        assert_unmoved(sim)
        before = name


def stop_often(sim: LeaseSimulation) -> None:
    want_hold(sim)
    before = FIRST
    for number in range(2, 12):
        name = f"a-{number:08x}" if number < 11 else NEXT_OF_ALL
        sim.release(before)
        sim.run(3)
        sim.join(name, member="a", hold=True)
        sim.run(3)
        before = name
    sim.run(HOLD_S)


def falter(sim: LeaseSimulation) -> None:
    for _ in range(10):
        sim.cut(FIRST)
        sim.run(DURATION_S + 3)
        assert_unmoved(sim)
        sim.renew(FIRST)
        sim.run(3)
        assert_unmoved(sim)


def run_ahead(sim: LeaseSimulation) -> None:
    for minute in range(20):
        sim.edit(FIRST, renew_time=f"2026-01-01T01:{minute:02}:00.000000Z")
        sim.cut(FIRST)
        sim.run(5)
        assert_unmoved(sim)


def leave_with_hold(sim: LeaseSimulation) -> None:
    want_hold(sim)
    sim.leave(FIRST)


JOIN, RELEASE = step("join", NEXT, member="a"), step("release", FIRST)
HAPPENINGS: dict[str, list[Step]] = {
    "its next life joins while the first one lives": [JOIN, run(SETTLE_S - 0.5)],
    "its next life joined settleSeconds ago, and the first one still lives": [JOIN, run(SETTLE_S + 0.5)],
    "its next life proves that the first one's process ended": [succeed(FIRST, NEXT), run(0.5)],
    "two of its lives were created in the same second": [namesakes],
    "its process is gone for less than two durations": [
        step("renew", FIRST),
        step("kill", FIRST),
        run(2 * DURATION_S - 1),
    ],
    "its silent life is taken": [take],
    "its silent life was taken settleSeconds ago": [take, run(SETTLE_S + 0.5)],
    "its next life joins within settleSeconds of the take": [take, run(SETTLE_S - 1), JOIN, run(10)],
    "its life releases its Lease": [RELEASE, run(0.5)],
    "its life releases its Lease while its next life is there": [JOIN, run(0.5), RELEASE, run(0.5)],
    "its life is leaving": [step("leave", FIRST), run(0.5)],
    "its life is leaving, and its next life is there": [JOIN, run(0.5), step("leave", FIRST), run(0.5)],
    "its life is leaving and releases its Lease, and holdSeconds have not passed": [
        leave_with_hold,
        RELEASE,
        run(0.5),
    ],
    "its life releases its Lease, and holdSeconds have not passed": [want_hold, RELEASE, run(HOLD_S - 1)],
    "its life releases its Lease, and holdSeconds passed": [want_hold, RELEASE, run(HOLD_S + SETTLE_S + 1)],
    "its Lease is deleted by hand": [step("delete", FIRST), run(SETTLE_S - 1)],
    "a foreign holder is written into its Lease": [
        step("edit", FIRST, holder_identity="a-person"),
        run(SETTLE_S - 1),
    ],
    "its owner is forced": [lambda sim: sim.machine.force(FIRST), run(SETTLE_S - 1)],
    "it was cordoned settleSeconds ago": [configure(MemberSpec(cordoned=True)), run(SETTLE_S + 0.5)],
    "it was given twice the weight settleSeconds ago": [configure(MemberSpec(weight=2)), run(SETTLE_S + 0.5)],
    "its next life joins and never fills its caches": [step("join", NEXT, member="a", fills=False), run(60)],
    "its next life proves that the first one's process ended, and does not fill its caches": [
        succeed(FIRST, NEXT, fills=False),
        run(SETTLE_S + 0.5),
    ],
    "its next life proves that the first one's process ended, and fills its caches within settleSeconds": [
        succeed(FIRST, NEXT, fills=False),
        run(SETTLE_S - 0.5),
        assert_unmoved,
        step("fill", NEXT),
        run(0.5),
    ],
    "a Lease of a next life is restored from a backup": [backup],
    "its first life crashes 3 s after it began, and the next one proves it": [
        RELEASE,
        run(10),
        step("join", "a-0000000e", member="a"),
        run(3),
        succeed("a-0000000e", NEXT),
        run(3),
    ],
    "its process crashes every 3 s, and each next life proves it": [crash_often],
    "it has crashed every 3 s, and its last life has lived for 5 minutes": [a_long_life],
    "its process crashes every 3 s, and nothing can be proven": [crash_unproven],
    "its process is stopped and back every 3 s, and its place is held": [stop_often],
    "its renewals stop for more than a duration and come again, time after time": [falter],
    "its wall clock is an hour ahead": [run_ahead],
    "its Lease has no renewTime any more": [
        step("cut", FIRST),
        step("edit", FIRST, renew_time=None),
        run(2 * DURATION_S - 1),
    ],
    "its Lease says that its duration is negative": [
        step("edit", FIRST, lease_duration_seconds=-5),
        run(SETTLE_S + 1),
    ],
    "its Lease says that its duration is longer than maxLeaseDurationSeconds": [
        step("edit", FIRST, lease_duration_seconds=61),
        run(SETTLE_S + 1),
    ],
    "its Lease loses its holder": [step("kill", FIRST), step("edit", FIRST, holder_identity=None), run(0.5)],
}
"""What the rows of the table replay, in a fleet of four that has settled."""


def test_the_table_and_the_happenings_name_the_same_things() -> None:
    assert [what for what, _, _ in read_rows()] == list(HAPPENINGS)


@pytest.mark.parametrize(
    ("what", "filled", "ring"), read_rows(), ids=lambda cell: re.sub(r"\W+", "-", cell)[:70]
)
def test_what_befalls_a_member_changes_place_and_ring_as_written(what: str, filled: str, ring: str) -> None:
    sim = settled()
    replay(sim, HAPPENINGS[what])
    assert (filler_in_words(sim), ring_in_words(sim)) == (filled, ring)
