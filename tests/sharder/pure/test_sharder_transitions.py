"""docs/membership.md is true: every row of its table of transitions is brought about and looked at."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sharder.membership.actions import (
    ClearContested,
    CreateTombstone,
    DeleteOrphan,
    Intent,
    NeedOrphanCheck,
    Take,
)
from sharder.membership.view import OwnerState
from sharder.ringspec.spec import MemberSpec
from tests.sharder.pure.story import Story, make_spec

DOCUMENT = Path(__file__).parents[3] / "docs" / "membership.md"
S = "a-00000001"


@dataclass(frozen=True)
class Row:
    before: str
    event: str
    after: str
    writes: str


def read_rows() -> list[Row]:
    section = DOCUMENT.read_text().split("\n## Transitions\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [
        Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines[1:] if "---" not in line
    ]


Happening = Callable[[Story], None]
HAPPENINGS: dict[tuple[str, str], Happening] = {}


def happening(before: str, event: str) -> Callable[[Happening], Happening]:
    """The function brings about *event*, beginning with a story in which S is in state *before*."""

    def register(function: Happening) -> Happening:
        HAPPENINGS[before, event] = function
        return function

    return register


def set_scene(before: str) -> Story:
    """A story without a leader's hand, in which S is in state *before* and three others are well."""
    story = Story(max_lease_duration_s=60, hold_s=30)
    for other in ("b", "c", "d"):
        story.join(f"{other}-00000001", member=other)
    story.read()
    story.run(5)
    story.acting = False
    SCENES[before](story)
    story.read()
    return story


def no_lease(story: Story) -> None:
    assert S not in story.leases


def ready(story: Story) -> None:
    story.join(S, member="a")
    story.run(20)


def expired(story: Story) -> None:
    ready(story)
    story.kill(S)
    story.run(20)


def uncertain(story: Story) -> None:
    expired(story)
    story.run(15)


def released(story: Story) -> None:
    story.join(S, member="a", hold=True)
    story.run(20)
    story.release(S)
    story.read()


def missing(story: Story) -> None:
    ready(story)
    story.kill(S)
    story.delete(S)
    story.read()


def contested(story: Story) -> None:
    missing(story)
    story.act()


def dead(story: Story) -> None:
    uncertain(story)
    story.act()


SCENES: dict[str, Happening] = {
    "-": no_lease,
    "ready": ready,
    "expired": expired,
    "uncertain": uncertain,
    "released": released,
    "missing": missing,
    "contested": contested,
    "dead": dead,
}


@happening("-", "a Lease appears that is held by its own name")
def _(story: Story) -> None:
    story.join(S, member="a")


@happening("-", "a Lease appears whose holder is empty")
def _(story: Story) -> None:
    story.join(S, member="a")
    story.edit(S, holder_identity=None)


@happening("-", "a Lease appears that somebody else holds")
def _(story: Story) -> None:
    story.join(S, member="a")
    story.edit(S, holder_identity="sharder:another")


@happening("-", "an object carries a name without a Lease")
def _(story: Story) -> None:
    story.machine.unknown_name_seen(S, at=story.at)


@happening("-", "an object carries a value that no Lease can be named")
def _(story: Story) -> None:
    story.machine.unknown_name_seen("Not_A_Name", at=story.at)


@happening("ready", "it is renewed")
@happening("expired", "it is renewed")
def _(story: Story) -> None:
    story.renew(S)


@happening("ready", "it stands still for 1x d")
def _(story: Story) -> None:
    story.kill(S)
    story.run(15)


@happening("ready", "its shard releases it")
def _(story: Story) -> None:
    story.release(S)


@happening("ready", "its shard releases it and wants its place held")
def _(story: Story) -> None:
    story.edit_meta(S, annotations={**story.leases[S].metadata.annotations, story.keys.hold: "true"})
    story.release(S)


@happening("ready", "it is deleted")
@happening("contested", "it is deleted")
@happening("dead", "it is deleted")
def _(story: Story) -> None:
    story.kill(S)
    story.delete(S)


@happening("ready", "its ring label is removed")
def _(story: Story) -> None:
    story.edit_meta(S, labels={})
    story.machine.observe_one(story.leases[S], at=story.at)


@happening("ready", "its owner is to be forced")
def _(story: Story) -> None:
    story.machine.force(S)


@happening("expired", "it stands still for 2x d")
def _(story: Story) -> None:
    story.run(15)


@happening("expired", "our reads had a gap")
def _(story: Story) -> None:
    story.reachable = False
    story.run(16)
    story.reachable = True


@happening("uncertain", "it is renewed before the take")
def _(story: Story) -> None:
    story.renew(S)


@happening("uncertain", "the take succeeds")
@happening("missing", "the tombstone is created")
def _(story: Story) -> None:
    story.act()


@happening("released", "the take succeeds")
def _(story: Story) -> None:
    story.run(30)
    story.act()


@happening("uncertain", "more than a third of the members are uncertain")
def _(story: Story) -> None:
    story.renew(S)
    story.run(0.5)
    story.kill("b-00000001")
    story.run(35)


@happening("released", "its member's next life takes it over")
def _(story: Story) -> None:
    story.edit(S, holder_identity=S, lease_transitions=1)


@happening("released", "holdSeconds passed")
def _(story: Story) -> None:
    story.run(30)


@happening("released", "its member's next life has a Lease of its own")
def _(story: Story) -> None:
    story.join("a-00000002", member="a")


@happening("released", "its member is cordoned")
def _(story: Story) -> None:
    story.machine.configure(make_spec(hold_s=30, members={"a": MemberSpec(cordoned=True)}))


@happening("missing", "the name turns out to be another ring's Lease")
def _(story: Story) -> None:
    story.join(S)
    story.edit_meta(S, labels={story.keys.ring_label: "another"})
    story.machine.observe_one(story.leases[S], at=story.at)


@happening("missing", "the name turns out to be somebody's unrelated Lease")
def _(story: Story) -> None:
    story.join(S)
    story.edit_meta(S, labels={})
    story.edit(S, holder_identity="node-7_0f3c")
    story.machine.observe_one(story.leases[S], at=story.at)


@happening("missing", "the name turns out to be a shard's Lease that our list lacks")
def _(story: Story) -> None:
    story.join(S, member="a")
    story.machine.observe_one(story.leases[S], at=story.at)


@happening("missing", "the API server refuses its tombstone")
def _(story: Story) -> None:
    story.machine.tombstone_refused(S, why="denied by a policy")


@happening("contested", "less than maxLeaseDurationSeconds passed")
@happening("dead", "less than 60 s passed")
def _(story: Story) -> None:
    story.run(59)


@happening("contested", "maxLeaseDurationSeconds passed since we saw it contested")
@happening("dead", "60 s passed")
def _(story: Story) -> None:
    story.run(60)


@happening("contested", "the annotation is removed")
def _(story: Story) -> None:
    story.edit_meta(S, annotations={})


@happening("dead", "60 s passed and a consistent list finds an object")
def _(story: Story) -> None:
    story.run(60)
    story.machine.orphan_refuted(S, at=story.at)


@happening("dead", "60 s passed and a consistent list finds no object")
def _(story: Story) -> None:
    story.run(60)
    story.machine.orphan_confirmed(S, begun_at=story.at)


@happening("dead", "a shard that reuses its name holds it again")
def _(story: Story) -> None:
    story.edit(S, holder_identity=S, renew_time="2026-02-02T00:00:00.000000Z")


def written(intents: list[Intent]) -> str:
    """What is wanted for S, in the words of the document."""
    for intent in intents:
        match intent:
            case Take(lease=lease, contested=contested) if lease.metadata.name == S:
                return "contested take" if contested else "take"
            case CreateTombstone(name=name) if name == S:
                return "tombstone"
            case ClearContested(lease=lease) if lease.metadata.name == S:
                return "clear"
            case NeedOrphanCheck(name=name) if name == S:
                return "orphan check"
            case DeleteOrphan(lease=lease) if lease.metadata.name == S:
                return "delete"
            case _:
                continue
    return "-"


def state_of(story: Story, name: str) -> str:
    """The state of *name*; names that are dead without a Lease of ours count as dead."""
    state = story.state(name)
    if state is not None:
        return state.value
    return "dead" if story.view().owner_state(name) is OwnerState.DEAD else "-"


def test_the_table_and_the_happenings_name_the_same_transitions() -> None:
    assert {(row.before, row.event) for row in read_rows()} == HAPPENINGS.keys()


@pytest.mark.parametrize("row", read_rows(), ids=lambda row: re.sub(r"\W+", "-", f"{row.before} {row.event}"))
def test_a_transition_of_the_document_happens_as_written(row: Row) -> None:
    story = set_scene(row.before)
    assert state_of(story, S) == row.before
    HAPPENINGS[row.before, row.event](story)
    story.read()
    name = "Not_A_Name" if "no Lease can be named" in row.event else S
    assert (state_of(story, name), written(story.wishes())) == (row.after, row.writes)
