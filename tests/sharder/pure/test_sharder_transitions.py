"""docs/membership.md is true: every row of its table of transitions is brought about and looked at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from tests.sharder.pure.lease_simulation import LeaseSimulation, Step, make_spec, replay, run, step

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


def machine(method: str, *arguments: Any, **options: Any) -> Step:
    """Call *method* of the leader's membership."""
    return lambda sim: getattr(sim.machine, method)(*arguments, **options)


def want_hold(sim: LeaseSimulation) -> None:
    sim.edit_meta(S, annotations=sim.leases[S].metadata.annotations | {sim.keys.hold: "true"})


def seen(sim: LeaseSimulation) -> None:
    sim.machine.observe_one(sim.leases[S], at=sim.at)


def unknown(name: str) -> Step:
    """An object carries *name*."""
    return lambda sim: sim.machine.unknown_name_seen(name, at=sim.at)


def unreachable(seconds: float) -> Step:
    def outage(sim: LeaseSimulation) -> None:
        sim.reachable = False
        sim.run(seconds)
        sim.reachable = True

    return outage


def label_for(ring: str) -> Step:
    return lambda sim: sim.edit_meta(S, labels={sim.keys.ring_label: ring} if ring else {})


JOIN, KILL, DELETE, READ, ACT = (
    step("join", S, member="a"),
    step("kill", S),
    step("delete", S),
    step("read"),
    step("act"),
)
READY = [JOIN, run(20)]
EXPIRED = [*READY, KILL, run(20)]
UNCERTAIN = [*EXPIRED, run(15)]
MISSING = [*READY, KILL, DELETE, READ]
SCENES: dict[str, list[Step]] = {
    "-": [],
    "ready": READY,
    "expired": EXPIRED,
    "uncertain": UNCERTAIN,
    "released": [step("join", S, member="a", hold=True), run(20), step("release", S), READ],
    "missing": MISSING,
    "contested": [*MISSING, ACT],
    "dead": [*UNCERTAIN, ACT],
}
CORDONED = make_spec(hold_s=30, members={"a": MemberSpec(cordoned=True)})
HAPPENINGS: dict[tuple[str, str], list[Step]] = {
    ("-", "a Lease appears that is held by its own name"): [JOIN],
    ("-", "a Lease appears whose holder is empty"): [JOIN, step("edit", S, holder_identity=None)],
    ("-", "a Lease appears that a sharder holds"): [JOIN, step("edit", S, holder_identity="sharder:x")],
    ("-", "a Lease appears that has a foreign holder"): [JOIN, step("edit", S, holder_identity="a-person")],
    ("-", "an object carries a name without a Lease"): [unknown(S)],
    ("-", "an object carries a value that no Lease can be named"): [unknown("Not_A_Name")],
    ("ready", "it is renewed"): [step("renew", S)],
    ("ready", "it stands still for 1x d"): [KILL, run(15)],
    ("ready", "its shard releases it"): [step("release", S)],
    ("ready", "its shard releases it and wants its place held"): [want_hold, step("release", S)],
    ("ready", "its shard is leaving"): [step("leave", S)],
    ("ready", "its shard is leaving, releases it and wants its place held"): [
        want_hold,
        step("leave", S),
        step("release", S),
    ],
    ("ready", "it is deleted"): [KILL, DELETE],
    ("ready", "its ring label is removed"): [label_for(""), seen],
    ("ready", "a foreign holder is written into it"): [step("edit", S, holder_identity="b-00000001")],
    ("ready", "its owner is to be forced"): [machine("force", S)],
    ("expired", "it is renewed"): [step("renew", S)],
    ("expired", "it stands still for 2x d"): [run(15)],
    ("expired", "our reads had a gap"): [unreachable(16)],
    ("uncertain", "it is renewed before the take"): [step("renew", S)],
    ("uncertain", "the take succeeds"): [ACT],
    ("uncertain", "more than a third of the members are uncertain"): [
        step("renew", S),
        run(0.5),
        step("kill", "b-00000001"),
        run(35),
    ],
    ("released", "the take succeeds"): [run(30), ACT],
    ("released", "its member's next life takes it over"): [
        step("edit", S, holder_identity=S, lease_transitions=1)
    ],
    ("released", "holdSeconds passed"): [run(30)],
    ("released", "its member's next life has a Lease of its own"): [step("join", "a-00000002", member="a")],
    ("released", "its member is cordoned"): [machine("configure", CORDONED)],
    ("missing", "the tombstone is created"): [ACT],
    ("missing", "the name turns out to be another ring's Lease"): [
        step("join", S),
        label_for("another"),
        seen,
    ],
    ("missing", "the name is that of an unrelated Lease"): [
        step("join", S),
        label_for(""),
        step("edit", S, holder_identity="node-7_0f3c"),
        seen,
    ],
    ("missing", "the name turns out to be a shard's Lease that our list lacks"): [JOIN, seen],
    ("missing", "the API server refuses its tombstone"): [machine("tombstone_refused", S, why="a policy")],
    ("contested", "less than maxLeaseDurationSeconds passed"): [run(59)],
    ("contested", "maxLeaseDurationSeconds passed since we saw it contested"): [run(60)],
    ("contested", "the annotation is removed"): [step("edit_meta", S, annotations={})],
    ("contested", "it is deleted"): [KILL, DELETE],
    ("dead", "less than 60 s passed"): [run(59)],
    ("dead", "60 s passed"): [run(60)],
    ("dead", "60 s passed and a consistent list finds an object"): [
        run(60),
        lambda sim: sim.machine.orphan_refuted(S, at=sim.at),
    ],
    ("dead", "60 s passed and a consistent list finds no object"): [
        run(60),
        lambda sim: sim.machine.orphan_confirmed(S, begun_at=sim.at),
    ],
    ("dead", "it is deleted"): [KILL, DELETE],
    ("dead", "a shard that reuses its name holds it again"): [
        step("edit", S, holder_identity=S, renew_time="2026-02-02T00:00:00.000000Z")
    ],
}


def set_scene(before: str) -> LeaseSimulation:
    """A simulation without a leader, in which S is in state *before* and three others are well."""
    sim = LeaseSimulation(max_lease_duration_s=60, hold_s=30)
    for other in ("b", "c", "d"):
        sim.join(f"{other}-00000001", member=other)
    sim.read()
    sim.run(5)
    sim.acting = False
    replay(sim, SCENES[before])
    return sim


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


def state_of(sim: LeaseSimulation, name: str) -> str:
    """The state of *name*; names that are dead without a Lease of ours count as dead."""
    state = sim.state(name)
    if state is not None:
        return state.value
    return "dead" if sim.view().owner_state(name) is OwnerState.DEAD else "-"


def test_the_table_and_the_happenings_name_the_same_transitions() -> None:
    assert {(row.before, row.event) for row in read_rows()} == HAPPENINGS.keys()


@pytest.mark.parametrize("row", read_rows(), ids=lambda row: re.sub(r"\W+", "-", f"{row.before} {row.event}"))
def test_a_transition_of_the_document_happens_as_written(row: Row) -> None:
    sim = set_scene(row.before)
    assert state_of(sim, S) == row.before
    replay(sim, HAPPENINGS[row.before, row.event])
    name = "Not_A_Name" if "no Lease can be named" in row.event else S
    assert (state_of(sim, name), written(sim.wishes())) == (row.after, row.writes)
