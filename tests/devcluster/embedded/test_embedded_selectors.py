"""Label and field selectors, against what the API's grammar says and what `facts` of the real server say."""

from __future__ import annotations

import pytest

from devcluster.embedded.selectors import parse_field_selector, parse_label_selector
from devcluster.embedded.status import Refusal

LABELS = {"app": "web", "tier": "", "shard.ringleader.dev/demo": "shard-a", "replicas": "3"}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app=db", False),
        ("app!=web", False),
        ("absent!=web", True),
        ("app in (web, db)", True),
        ("app in (db)", False),
        ("app notin (db,cache)", True),
        ("app notin (web)", False),
        ("absent notin (web)", True),
        ("absent notin ()", True),
        ("app notin ()", True),
        ("tier", True),
        ("absent", False),
        ("!absent", True),
        ("!app", False),
        ("! app", False),
        ("replicas>2", True),
        ("replicas<3", False),
        ("app>2", False),
        ("shard.ringleader.dev/demo notin (shard-b,shard-c),app=web", True),
        ("app=web,absent", False),
    ],
)
def test_selector_picks_what_the_grammar_says(selector: str, expected: bool) -> None:
    assert parse_label_selector(selector).matches(LABELS) is expected


@pytest.mark.parametrize(
    "selector", ["a in", "a=b c", "a in (b", "=x", "-a=b", "a=b/c", "a>x", "a=" + "x" * 64]
)
def test_nonsense_is_refused_with_400(selector: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse_label_selector(selector)
    assert refused.value.code == 400


def test_three_thousand_names_are_one_set() -> None:
    names = ",".join(f"shard-{number:08x}" for number in range(3000))
    selector = parse_label_selector(f"shard.ringleader.dev/demo notin ({names})")
    assert selector.matches({})
    assert not selector.matches({"shard.ringleader.dev/demo": "shard-00000bb7"})
    assert selector.matches({"shard.ringleader.dev/demo": "shard-00000bb8"})


def test_field_selector_compares_and_knows_what_is_served() -> None:
    served = frozenset({"metadata.name", "type"})
    values = {"metadata.name": "a", "type": "Normal"}
    selector = parse_field_selector("metadata.name=a,type!=Warning", served)
    assert selector.matches(values.__getitem__)
    assert selector.required("metadata.name") == "a"
    with pytest.raises(Refusal, match=r"field label not supported: spec\.html"):
        parse_field_selector("spec.html=x", served)
