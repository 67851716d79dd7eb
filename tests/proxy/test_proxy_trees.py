"""Trees of a shard's objects: roots, what is visible, what waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeio.models import Meta, ObjectKey, OwnerReference
from kubeio.protocol import RingKeys
from proxy.trees import Node, Trees, TreeState, node_of

SHARD = "web-0-00000001"
BEFORE = "web-0-00000000"
OTHER = "web-1-00000001"
KEYS = RingKeys("web")
SINCE = "2026-11-24T10:00:00Z"
LATER = "2026-11-24T10:00:01Z"


def node(name: str, *, of: str = "", visible: str | None = SHARD, drain: str | None = None) -> Node:
    """A root, or what *of* controls; its uid is its name."""
    owner = OwnerReference("v1", "Any", of, of, controller=True) if of else None
    resource = "replicasets.apps" if of else "deployments.apps"
    return Node(
        resource, ObjectKey("ns", name), name, "1", owner, LATER, visible, drain, not of, is_leaf=False
    )


def trees(*nodes: Node) -> Trees:
    found = Trees(SHARD, since=SINCE)
    for each in nodes:
        found.put(each)
    return found


def test_the_state_of_a_tree_is_that_of_its_root() -> None:
    found = trees(node("root"), node("child", of="root"), node("grandchild", of="child"))
    assert found.state("grandchild") is TreeState.VISIBLE
    found.put(node("root", visible=BEFORE))
    assert found.state("grandchild") is TreeState.HIDDEN


def test_the_top_of_a_tree_is_the_highest_object_that_is_known() -> None:
    found = trees(
        node("root"), node("child", of="root"), node("grandchild", of="child"), node("x", of="gone")
    )
    assert [found.top_of(uid) for uid in ("grandchild", "root", "x", "nobody")] == [
        "root",
        "root",
        "x",
        "nobody",
    ]


@pytest.mark.parametrize(
    ("root", "asked_to", "may_go"),
    [
        (node("root"), OTHER, False),
        (node("root"), SHARD, True),
        (node("root", drain=OTHER), OTHER, True),
        (node("root", drain=SHARD), OTHER, False),
        (node("root", visible=BEFORE), OTHER, True),
        (node("elsewhere"), OTHER, True),
    ],
)
def test_nothing_leaves_from_under_a_root_that_the_controller_goes_on_seeing(
    root: Node, asked_to: str, may_go: bool
) -> None:
    child = node("child", of="root", drain=asked_to)
    found = trees(root, child)
    assert found.may_go(child) is may_go
    assert found.may_go(root)


def test_the_state_of_a_tree_without_its_root_is_unknown() -> None:
    found = trees(node("child", of="root"))
    assert found.state("child") is TreeState.UNKNOWN
    assert found.state("nobody") is TreeState.UNKNOWN


def test_a_root_whose_controller_is_outside_of_the_ring_is_a_root() -> None:
    found = trees(replace(node("root", of="outsider"), is_root=True))
    assert found.state("root") is TreeState.VISIBLE


def test_what_bears_no_name_or_another_life_s_waits_to_become_visible() -> None:
    found = trees(
        node("shown"), node("old", visible=BEFORE), node("bare", visible=None), node("empty", visible="")
    )
    assert list(found.due.arrived) == ["old", "bare", "empty"]
    found.put(node("old"))
    found.drop("bare")
    assert list(found.due.arrived) == ["empty"]


def test_a_leaf_needs_no_label() -> None:
    found = trees(replace(node("pod", of="root", visible=None), is_leaf=True))
    assert not found.due


@pytest.mark.parametrize(
    ("changed", "is_new"),
    [
        ({}, True),
        ({KEYS.visible: BEFORE}, False),
        ({KEYS.visible: ""}, False),
        ({"created": SINCE}, False),
        ({KEYS.drain: "web-1-00000001"}, False),
        ({"owner": "x"}, True),
        ({"is_root": False}, False),
    ],
)
def test_a_root_is_new_if_no_controller_of_the_ring_can_have_seen_it(
    changed: dict[str, str | bool], is_new: bool
) -> None:
    meta = Meta("root", creation_timestamp=str(changed.get("created", LATER)))
    meta.labels = {key: str(changed[key]) for key in (KEYS.visible, KEYS.drain) if key in changed}
    if "owner" in changed:
        meta.owner_references = [OwnerReference("v1", "Any", "x", "x", controller=True)]
    is_root = "is_root" not in changed
    assert trees().is_new(node_of(meta, "as", keys=KEYS, is_root=is_root, is_leaf=False)) is is_new


def test_a_tree_is_given_up_children_first() -> None:
    found = trees(node("root", drain="x"), node("a", of="root"), node("b", of="a"), node("c", of="root"))
    order = [each.uid for each in found.tree("root")]
    assert order[-1] == "root"
    assert order.index("b") < order.index("a")
    assert list(found.due.asked) == ["root"]


def test_owners_that_go_round_end() -> None:
    found = trees(node("a", of="b"), node("b", of="a"))
    assert found.root_of("a") is None
    assert sorted(each.uid for each in found.tree("a")) == ["a", "b"]


def test_another_object_of_the_same_name_takes_its_place() -> None:
    found = trees(node("root"))
    found.put(replace(node("root"), uid="another"))
    assert found.get("root") is None
    assert found.find("deployments.apps", ObjectKey("ns", "root")) is not None


UIDS = st.sampled_from("abcdef")
NODES = st.builds(
    lambda uid, of, visible, drain: node(uid, of=of if of != uid else "", visible=visible, drain=drain),
    UIDS,
    st.sampled_from(["", *"abcdef"]),
    st.sampled_from([None, "", SHARD, BEFORE]),
    st.sampled_from([None, "", "x"]),
)


@given(st.lists(NODES | UIDS, max_size=40))
def test_any_history_gives_what_the_last_versions_give(history: list[Node | str]) -> None:
    found, last = trees(), dict[str, Node]()
    for each in history:
        if isinstance(each, str):
            found.drop(each)
            last.pop(each, None)
        else:
            found.put(each)
            last[each.uid] = each
    anew = trees(*last.values())
    assert len(found) == len(last)
    assert found.due.arrived.keys() == anew.due.arrived.keys()
    assert found.due.asked.keys() == anew.due.asked.keys()
    for uid in last:
        assert found.state(uid) is anew.state(uid)
        assert {each.uid for each in found.tree(uid)} == {each.uid for each in anew.tree(uid)}
