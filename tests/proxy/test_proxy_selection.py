"""The selection of a shard in the query: what the client asked for, and no more than the shard's objects. Pure."""

from __future__ import annotations

from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeio.rest.request_info import first_values
from proxy.selection import select
from tests.proxy.relays import TERMS

SELECTED = f"labelSelector={quote(TERMS, safe='')}"


def values_of(target: str) -> dict[str, str]:
    return dict(first_values(target.partition("?")[2]))


def test_a_collection_without_a_selector_gets_one() -> None:
    assert select("/api/v1/pods", TERMS) == f"/api/v1/pods?{SELECTED}"


def test_an_existing_selector_is_kept_and_all_other_pieces_stand_as_they_came() -> None:
    target = select("/api/v1/pods?limit=500&labelSelector=app%3Dweb&fieldSelector=a%3Db", TERMS)
    assert target.startswith("/api/v1/pods?limit=500&fieldSelector=a%3Db&")
    assert values_of(target)["labelSelector"] == f"app=web,{TERMS}"


@pytest.mark.parametrize(
    "query",
    [
        "labelSelector=a&labelSelector=b",
        "label%53elector=a&labelSelector=b",
        "labelSelector=a&x;labelSelector=b",
    ],
)
def test_the_first_selector_counts_and_the_others_go(query: str) -> None:
    target = select(f"/api/v1/pods?{query}", TERMS)
    assert target.count("elector=") == 1
    assert values_of(target)["labelSelector"] == f"a,{TERMS}"


@pytest.mark.parametrize(
    ("query", "version"),
    [
        ("resourceVersion=0", "42"),
        ("limit=500&resourceVersion=0&resourceVersionMatch=NotOlderThan", "42"),
        ("resourceVersion=0&resourceVersion=7", "42"),
        ("watch=true&sendInitialEvents=true&resourceVersion=0&resourceVersionMatch=NotOlderThan", "42"),
        ("resourceVersion=7", "7"),
        ("", None),
        ("watch=true&resourceVersion=0", "0"),
        ("resourceVersion=0&continue=x", "0"),
    ],
)
def test_a_list_from_any_version_is_raised_to_the_one_that_is_known(query: str, version: str | None) -> None:
    values = values_of(select(f"/api/v1/pods?{query}", TERMS, not_older_than="42"))
    assert values.get("resourceVersion") == version
    if version == "42":
        assert values["resourceVersionMatch"] == "NotOlderThan"


def test_without_a_version_to_raise_to_the_list_stays() -> None:
    assert "resourceVersion=0" in select("/api/v1/pods?resourceVersion=0", TERMS)


@given(
    st.lists(
        st.tuples(st.sampled_from(["labelSelector", "a", "watch", "label%53elector"]), st.text(max_size=8))
    )
)
def test_whatever_is_asked_the_server_reads_the_terms_last(pairs: list[tuple[str, str]]) -> None:
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in pairs)
    before = dict(first_values(query))
    after = values_of(select(f"/p?{query}", TERMS))
    asked = before.pop("labelSelector", "")
    assert after.pop("labelSelector") == (f"{asked},{TERMS}" if asked else TERMS)
    assert after == before


@given(st.text(alphabet="ab&=;%+,/ 2C?#", max_size=40))
def test_no_query_hides_the_terms(query: str) -> None:
    target = select(f"/p?{query}", TERMS)
    assert target.count("labelSelector=") == 1
    assert unquote(target).endswith(TERMS)
