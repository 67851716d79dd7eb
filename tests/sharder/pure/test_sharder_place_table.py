"""docs/membership.md is true: every row of its table of places is brought about and looked at."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sharder.ringspec.spec import MemberSpec
from tests.sharder.pure.story import Step, Story, make_spec, run, step, tell

DOCUMENT = Path(__file__).parents[3] / "docs" / "membership.md"
FIRST, NEXT = "a-00000001", "a-00000002"
MEMBERS = ("a", "b", "c", "d")
DURATION_S, SETTLE_S, HOLD_S = 15, 2, 10


def read_rows() -> list[tuple[str, str, str]]:
    section = DOCUMENT.read_text().split("\n## Places\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [(what, filled, ring) for what, filled, ring in cells]


def settled() -> Story:
    story = Story(settle_s=SETTLE_S, hold_s=HOLD_S, max_lease_duration_s=60)
    for member in MEMBERS:
        story.join(f"{member}-00000001", member=member)
    story.run(5)
    return story


NEXT_OF_ALL = NEXT + "f"
"""The last one of many lives."""


def crash_often(story: Story) -> None:
    before = FIRST
    for number in range(2, 22):
        name = f"a-{number:08x}" if number < 21 else NEXT_OF_ALL
        succeed(before, name)(story)
        story.run(3)
        before = name


def restored(story: Story, name: str, annotations: dict[str, str]) -> None:
    """A Lease as it was once, made anew by a backup tool: nobody renews it."""
    story.join(name, member="a", fills=False)
    story.edit_meta(name, annotations=annotations)
    story.kill(name)


def succeed(before: str, name: str, *, fills: bool = True) -> Step:
    """A next life releases the Lease of the one before, whose process it proved to be gone."""

    def happens(story: Story) -> None:
        story.kill(before)
        story.join(name, member="a", fills=fills)
        story.edit(before, holder_identity="")

    return happens


def take(story: Story) -> None:
    """Let the first life fall silent, and stop at the moment it is taken."""
    story.kill(FIRST)
    while not story.takes_of(FIRST):
        story.run(0.5)


def want_hold(story: Story) -> None:
    story.edit_meta(FIRST, annotations=story.leases[FIRST].metadata.annotations | {story.keys.hold: "true"})


def configure(member: MemberSpec) -> Step:
    return lambda story: story.machine.configure(make_spec(settle_s=SETTLE_S, members={"a": member}))


def assert_unmoved(story: Story) -> None:
    """No object would go to another member now."""
    assert ring_in_words(story) == "unchanged"


def ring_in_words(story: Story) -> str:
    weights = dict(story.view().ring_members)
    if weights == dict.fromkeys(MEMBERS, 1.0):
        return "unchanged"
    if weights == dict.fromkeys(MEMBERS[1:], 1.0):
        return "without it"
    assert weights == {**dict.fromkeys(MEMBERS, 1.0), "a": 2.0}
    return "with twice its share"


def filler_in_words(story: Story) -> str:
    place = story.view().places.get("a")
    if place is None:
        return "-"
    if place.shard is None:
        return "nobody"
    words = {FIRST: "the first", NEXT: "the next", NEXT_OF_ALL: "the next"}
    words["a-00000003"] = "the one whose name comes last"
    return words.get(place.shard, place.shard if place.shard in story.alive else "one that ended")


def namesakes(story: Story) -> None:
    created = story.leases[FIRST].metadata.creation_timestamp
    for name in (NEXT, "a-00000003", "a-00000000"):
        story.join(name, member="a")
        story.edit_meta(name, creation_timestamp=created)
    story.run(SETTLE_S + 0.5)


def backup(story: Story) -> None:
    story.join(NEXT, member="a", fills=False)
    annotations = {**story.leases[NEXT].metadata.annotations, story.keys.synced: "true"}
    story.delete(NEXT)
    story.machine.gone(NEXT, at=story.at)
    story.kill(NEXT)
    story.run(120)
    restored(story, NEXT, annotations)
    for _ in range(20):
        story.run(1)
        assert story.view().shard_at("a") == FIRST


def a_long_life(story: Story) -> None:
    crash_often(story)
    story.run(300)
    assert story.view().shard_at("a") == NEXT_OF_ALL
    story.run(60)
    succeed(NEXT_OF_ALL, NEXT)(story)
    story.run(0.5)


def crash_unproven(story: Story) -> None:
    before = FIRST
    for number in range(2, 22):
        name = f"a-{number:08x}" if number < 21 else NEXT_OF_ALL
        story.kill(before)
        story.join(name, member="a")
        story.run(3)
        assert_unmoved(story)
        before = name


def stop_often(story: Story) -> None:
    want_hold(story)
    before = FIRST
    for number in range(2, 12):
        name = f"a-{number:08x}" if number < 11 else NEXT_OF_ALL
        story.release(before)
        story.run(3)
        story.join(name, member="a", hold=True)
        story.run(3)
        before = name
    story.run(HOLD_S)


def falter(story: Story) -> None:
    for _ in range(10):
        story.cut(FIRST)
        story.run(DURATION_S + 3)
        assert_unmoved(story)
        story.renew(FIRST)
        story.run(3)
        assert_unmoved(story)


def run_ahead(story: Story) -> None:
    for minute in range(20):
        story.edit(FIRST, renew_time=f"2026-01-01T01:{minute:02}:00.000000Z")
        story.cut(FIRST)
        story.run(5)
        assert_unmoved(story)


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
    "its life releases its Lease, and holdSeconds have not passed": [want_hold, RELEASE, run(HOLD_S - 1)],
    "its life releases its Lease, and holdSeconds passed": [want_hold, RELEASE, run(HOLD_S + SETTLE_S + 1)],
    "its Lease is deleted by hand": [step("delete", FIRST), run(SETTLE_S - 1)],
    "its owner is forced": [lambda story: story.machine.force(FIRST), run(SETTLE_S - 1)],
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
"""What the rows of the table tell, in a fleet of four that has settled."""


def test_the_table_and_the_happenings_name_the_same_things() -> None:
    assert [what for what, _, _ in read_rows()] == list(HAPPENINGS)


@pytest.mark.parametrize(
    ("what", "filled", "ring"), read_rows(), ids=lambda cell: re.sub(r"\W+", "-", cell)[:70]
)
def test_what_befalls_a_member_changes_place_and_ring_as_written(what: str, filled: str, ring: str) -> None:
    story = settled()
    tell(story, HAPPENINGS[what])
    assert (filler_in_words(story), ring_in_words(story)) == (filled, ring)
