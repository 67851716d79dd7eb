"""Conditions: one write, transition times, nothing if nothing changes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from shard_controller.api.conditions import StagedConditions

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
OLD = "2020-01-01T00:00:00Z"
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Published",
    "message": "",
    "observedGeneration": 3,
    "lastTransitionTime": OLD,
}
FOREIGN = {"type": "Audited", "status": "False", "reason": "Later", "message": "", "lastTransitionTime": OLD}


def conditions(*existing: Mapping[str, object], generation: int = 3) -> StagedConditions:
    return StagedConditions(existing, generation=generation, wall=lambda: NOON)


def test_setting_what_already_stands_writes_nothing() -> None:
    staged = conditions(READY)
    staged.set("Ready", True, "Published")
    assert staged.merged() is None


def test_a_changed_status_moves_the_transition_time() -> None:
    staged = conditions(READY)
    staged.set("Ready", False, "Propagating", "CDN lags")
    assert staged.merged() == [
        {
            **READY,
            "status": "False",
            "reason": "Propagating",
            "message": "CDN lags",
            "lastTransitionTime": "2026-01-01T12:00:00Z",
        }
    ]


def test_a_changed_message_keeps_the_transition_time() -> None:
    staged = conditions(READY)
    staged.set("Ready", True, "Published", "again")
    assert staged.merged() == [{**READY, "message": "again"}]


def test_a_new_generation_is_a_change_by_itself() -> None:
    staged = conditions(READY, generation=4)
    staged.set("Ready", True, "Published")
    assert staged.merged() == [{**READY, "observedGeneration": 4}]


def test_conditions_of_others_stay_where_they_are() -> None:
    staged = conditions(FOREIGN, READY)
    staged.set("Synced", None, "Unclear")
    merged = staged.merged()
    assert merged is not None
    assert merged[:2] == [FOREIGN, READY]
    assert merged[2]["status"] == "Unknown"
    assert merged[2]["lastTransitionTime"] == "2026-01-01T12:00:00Z"


def test_a_condition_without_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="condition Ready: a reason"):
        conditions().set("Ready", True, "")


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["Ready", "Synced", "Stalled"]),
            st.sampled_from([True, False, None]),
            st.sampled_from(["A", "B"]),
            st.sampled_from(["", "x"]),
        ),
        max_size=6,
    )
)
def test_merging_twice_changes_nothing_more(calls: list[tuple[str, bool | None, str, str]]) -> None:
    first = conditions(FOREIGN, READY)
    for call in calls:
        first.set(*call)
    merged = first.merged()
    second = StagedConditions(merged or [FOREIGN, READY], generation=3, wall=lambda: datetime.now(UTC))
    for call in calls:
        second.set(*call)
    assert second.merged() is None


# -- permanent errors, as kstatus reads them


def test_a_permanent_failure_stalls_the_object_and_is_not_ready_if_it_says_ready_at_all() -> None:
    staged = conditions(READY)
    staged.stall("BadSpec", "no such site")
    merged = staged.merged()
    assert merged is not None
    assert [(c["type"], c["status"], c["reason"], c["message"]) for c in merged] == [
        ("Ready", "False", "BadSpec", "no such site"),
        ("Stalled", "True", "BadSpec", "no such site"),
    ]
    bare = conditions()
    bare.stall("BadSpec", "")
    assert [c["type"] for c in bare.merged() or []] == ["Stalled"]


def test_what_the_reconciler_said_itself_outweighs_what_its_failure_says() -> None:
    staged = conditions(READY)
    staged.set("Ready", None, "Unclear")
    staged.stall("BadSpec", "no such site")
    assert [(c["type"], c["status"]) for c in staged.merged() or []] == [
        ("Ready", "Unknown"),
        ("Stalled", "True"),
    ]


def test_a_reconcile_that_ends_well_takes_stalled_off() -> None:
    stalled = {**READY, "type": "Stalled", "reason": "BadSpec"}
    staged = conditions(stalled, FOREIGN)
    staged.recover()
    assert staged.merged() == [FOREIGN]
    assert conditions(FOREIGN).merged() is None
    unstalled = conditions(FOREIGN)
    unstalled.recover()
    assert unstalled.merged() is None


def test_a_condition_is_removed_unless_it_is_set_again() -> None:
    staged = conditions(READY, FOREIGN)
    staged.remove("Ready")
    assert staged.merged() == [FOREIGN]
    staged.set("Ready", True, "Published")
    assert staged.merged() is None
