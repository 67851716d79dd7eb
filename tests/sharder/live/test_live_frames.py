"""Only what changed goes over the wire, and it may be applied twice."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sharder.live.frames import Document, changes, event

Rings = dict[str, Document]


def applied(rings: Rings, change: Document) -> Rings:
    """What a viewer does with a change."""
    rings = {name: {**ring, "members": dict(ring["members"])} for name, ring in rings.items()}
    for name in change.get("gone", []):
        del rings[name]
    for name, fields in change.get("rings", {}).items():
        ring = rings.setdefault(name, {"members": {}})
        ring.update({field: value for field, value in fields.items() if field not in ("members", "gone")})
        ring["members"].update(fields.get("members", {}))
        for member in fields.get("gone", []):
            ring["members"].pop(member, None)
    return rings


FACTS = st.fixed_dictionaries({"state": st.sampled_from(["ready", "dead"]), "share": st.integers(0, 3)})
RING: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"version": st.integers(0, 3), "members": st.dictionaries(st.sampled_from("abcd"), FACTS)}
)
RINGS = st.dictionaries(st.sampled_from(["r", "s"]), RING)


@given(RINGS, RINGS)
def test_a_change_makes_the_new_state_of_the_old_one(old: Rings, new: Rings) -> None:
    change = changes(old, new)
    assert applied(old, change) == new


@given(RINGS, RINGS)
def test_a_change_may_be_applied_to_what_has_it_already(old: Rings, new: Rings) -> None:
    change = changes(old, new)
    change.pop("gone", None)
    rest = {name: ring for name, ring in new.items() if name in change.get("rings", {})}
    assert applied(rest, change) == rest


def test_nothing_is_sent_of_what_stays() -> None:
    facts = {f"m-{number}": {"state": "ready", "share": 0.01} for number in range(100)}
    old = {"r": {"version": 1, "members": facts}}
    new = {"r": {"version": 1, "members": {**facts, "m-7": {"state": "dead", "share": 0.01}}}}
    assert changes(old, old) == {}
    assert changes(old, new) == {"rings": {"r": {"members": {"m-7": {"state": "dead", "share": 0.01}}}}}


def test_an_event_is_one_line_of_data_whatever_it_holds() -> None:
    framed = event("change", {"name": "a\nb\r\n\nevent: forged"})
    head, data, *rest = framed.split(b"\n")
    assert head == b"event: change"
    assert rest == [b"", b""]
    assert json.loads(data.removeprefix(b"data: ")) == {"name": "a\nb\r\n\nevent: forged"}
