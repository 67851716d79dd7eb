"""docs/membership.md is true: every row of its table of places is brought about and looked at."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sharder.ringspec.spec import MemberSpec
from tests.sharder.pure.story import Story, make_spec

DOCUMENT = Path(__file__).parents[3] / "docs" / "membership.md"
FIRST, NEXT = "a-00000001", "a-00000002"
MEMBERS = ("a", "b", "c", "d")
DURATION_S, SETTLE_S, HOLD_S = 15, 2, 10
Happening = Callable[[Story], None]
HAPPENINGS: dict[str, Happening] = {}


def read_rows() -> list[tuple[str, str, str]]:
    section = DOCUMENT.read_text().split("\n## Places\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [(what, filled, ring) for what, filled, ring in cells]


def happening(what: str) -> Callable[[Happening], Happening]:
    """The function brings *what* about in a fleet of four that has settled."""

    def register(function: Happening) -> Happening:
        HAPPENINGS[what] = function
        return function

    return register


def settled() -> Story:
    story = Story(settle_s=SETTLE_S, hold_s=HOLD_S, max_lease_duration_s=60)
    for member in MEMBERS:
        story.join(f"{member}-00000001", member=member)
    story.run(5)
    return story


@happening("its next life joins while the first one lives")
def _(story: Story) -> None:
    story.join(NEXT, member="a")
    story.run(SETTLE_S - 0.5)


@happening("its next life joined settleSeconds ago, and the first one still lives")
def _(story: Story) -> None:
    story.join(NEXT, member="a")
    story.run(SETTLE_S + 0.5)


@happening("its next life proves that the first one's process ended")
def _(story: Story) -> None:
    succeed(story, FIRST, NEXT)
    story.run(0.5)


@happening("two of its lives were created in the same second")
def _(story: Story) -> None:
    created = story.leases[FIRST].metadata.creation_timestamp
    for name in (NEXT, "a-00000003", "a-00000000"):
        story.join(name, member="a")
        story.edit_meta(name, creation_timestamp=created)
    story.run(SETTLE_S + 0.5)


@happening("its process is gone for less than two durations")
def _(story: Story) -> None:
    story.renew(FIRST)
    story.kill(FIRST)
    story.run(2 * DURATION_S - 1)


@happening("its silent life is taken")
def _(story: Story) -> None:
    take(story)


@happening("its silent life was taken settleSeconds ago")
def _(story: Story) -> None:
    take(story)
    story.run(SETTLE_S + 0.5)


@happening("its next life joins within settleSeconds of the take")
def _(story: Story) -> None:
    take(story)
    story.run(SETTLE_S - 1)
    story.join(NEXT, member="a")
    story.run(10)


@happening("its life releases its Lease")
def _(story: Story) -> None:
    story.release(FIRST)
    story.run(0.5)


@happening("its life releases its Lease while its next life is there")
def _(story: Story) -> None:
    story.join(NEXT, member="a")
    story.run(0.5)
    story.release(FIRST)
    story.run(0.5)


@happening("its life releases its Lease, and holdSeconds have not passed")
def _(story: Story) -> None:
    want_hold(story, FIRST)
    story.release(FIRST)
    story.run(HOLD_S - 1)


@happening("its life releases its Lease, and holdSeconds passed")
def _(story: Story) -> None:
    want_hold(story, FIRST)
    story.release(FIRST)
    story.run(HOLD_S + SETTLE_S + 1)


@happening("its Lease is deleted by hand")
def _(story: Story) -> None:
    story.delete(FIRST)
    story.run(SETTLE_S - 1)


@happening("its owner is forced")
def _(story: Story) -> None:
    story.machine.force(FIRST)
    story.run(SETTLE_S - 1)


@happening("it was cordoned settleSeconds ago")
def _(story: Story) -> None:
    configure(story, MemberSpec(cordoned=True))
    story.run(SETTLE_S + 0.5)


@happening("it was given twice the weight settleSeconds ago")
def _(story: Story) -> None:
    configure(story, MemberSpec(weight=2))
    story.run(SETTLE_S + 0.5)


@happening("its next life joins and never fills its caches")
def _(story: Story) -> None:
    story.join(NEXT, member="a", fills=False)
    story.run(60)


@happening("its next life proves that the first one's process ended, and does not fill its caches")
def _(story: Story) -> None:
    succeed(story, FIRST, NEXT, fills=False)
    story.run(SETTLE_S + 0.5)


@happening(
    "its next life proves that the first one's process ended, and fills its caches within settleSeconds"
)
def _(story: Story) -> None:
    succeed(story, FIRST, NEXT, fills=False)
    story.run(SETTLE_S - 0.5)
    assert_unmoved(story)
    story.fill(NEXT)
    story.run(0.5)


@happening("a Lease of a next life is restored from a backup")
def _(story: Story) -> None:
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


@happening("its first life crashes 3 s after it began, and the next one proves it")
def _(story: Story) -> None:
    story.release(FIRST)
    story.run(10)
    story.join("a-0000000e", member="a")
    story.run(3)
    succeed(story, "a-0000000e", NEXT)
    story.run(3)


@happening("its process crashes every 3 s, and each next life proves it")
def _(story: Story) -> None:
    crash_often(story)


@happening("it has crashed every 3 s, and its last life has lived for 5 minutes")
def _(story: Story) -> None:
    crash_often(story)
    story.run(300)
    assert story.view().shard_at("a") == NEXT_OF_ALL
    story.run(60)
    succeed(story, NEXT_OF_ALL, NEXT)
    story.run(0.5)


@happening("its process crashes every 3 s, and nothing can be proven")
def _(story: Story) -> None:
    before = FIRST
    for number in range(2, 22):
        name = f"a-{number:08x}" if number < 21 else NEXT_OF_ALL
        story.kill(before)
        story.join(name, member="a")
        story.run(3)
        assert_unmoved(story)
        before = name


@happening("its process is stopped and back every 3 s, and its place is held")
def _(story: Story) -> None:
    want_hold(story, FIRST)
    before = FIRST
    for number in range(2, 12):
        name = f"a-{number:08x}" if number < 11 else NEXT_OF_ALL
        story.release(before)
        story.run(3)
        story.join(name, member="a", hold=True)
        story.run(3)
        before = name
    story.run(HOLD_S)


@happening("its renewals stop for more than a duration and come again, time after time")
def _(story: Story) -> None:
    for _ in range(10):
        story.cut(FIRST)
        story.run(DURATION_S + 3)
        assert_unmoved(story)
        story.renew(FIRST)
        story.run(3)
        assert_unmoved(story)


@happening("its wall clock is an hour ahead")
def _(story: Story) -> None:
    for minute in range(20):
        story.edit(FIRST, renew_time=f"2026-01-01T01:{minute:02}:00.000000Z")
        story.cut(FIRST)
        story.run(5)
        assert_unmoved(story)


@happening("its Lease has no renewTime any more")
def _(story: Story) -> None:
    story.cut(FIRST)
    story.edit(FIRST, renew_time=None)
    story.run(2 * DURATION_S - 1)


@happening("its Lease says that its duration is negative")
def _(story: Story) -> None:
    story.edit(FIRST, lease_duration_seconds=-5)
    story.run(SETTLE_S + 1)


@happening("its Lease says that its duration is longer than maxLeaseDurationSeconds")
def _(story: Story) -> None:
    story.edit(FIRST, lease_duration_seconds=61)
    story.run(SETTLE_S + 1)


@happening("its Lease loses its holder")
def _(story: Story) -> None:
    story.kill(FIRST)
    story.edit(FIRST, holder_identity=None)
    story.run(0.5)


NEXT_OF_ALL = NEXT + "f"
"""The last one of many lives."""


def crash_often(story: Story) -> None:
    before = FIRST
    for number in range(2, 22):
        name = f"a-{number:08x}" if number < 21 else NEXT_OF_ALL
        succeed(story, before, name)
        story.run(3)
        before = name


def restored(story: Story, name: str, annotations: dict[str, str]) -> None:
    """A Lease as it was once, made anew by a backup tool: nobody renews it."""
    story.join(name, member="a", fills=False)
    story.edit_meta(name, annotations=annotations)
    story.kill(name)


def succeed(story: Story, before: str, name: str, *, fills: bool = True) -> None:
    """A next life releases the Lease of the one before, whose process it proved to be gone."""
    story.kill(before)
    story.join(name, member="a", fills=fills)
    story.edit(before, holder_identity="")


def take(story: Story) -> None:
    """Let the first life fall silent, and stop at the moment it is taken."""
    story.kill(FIRST)
    while not story.takes_of(FIRST):
        story.run(0.5)


def want_hold(story: Story, name: str) -> None:
    annotations = {**story.leases[name].metadata.annotations, story.keys.hold: "true"}
    story.edit_meta(name, annotations=annotations)


def configure(story: Story, member: MemberSpec) -> None:
    story.machine.configure(make_spec(settle_s=SETTLE_S, members={"a": member}))


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


def test_the_table_and_the_happenings_name_the_same_things() -> None:
    assert [what for what, _, _ in read_rows()] == list(HAPPENINGS)


@pytest.mark.parametrize(
    ("what", "filled", "ring"), read_rows(), ids=lambda cell: re.sub(r"\W+", "-", cell)[:70]
)
def test_what_befalls_a_member_changes_place_and_ring_as_written(what: str, filled: str, ring: str) -> None:
    story = settled()
    HAPPENINGS[what](story)
    assert (filler_in_words(story), ring_in_words(story)) == (filled, ring)
