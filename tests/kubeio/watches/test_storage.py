"""What is dropped and how small the rest becomes; what comes out again is what went in."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kubeio.watches.compression import Dictionary, dictionary_for, is_packed
from kubeio.watches.storage import without_managed_fields

MANAGED = [{"manager": "a, \"b\"]}", "fieldsV1": {"f:spec": {"k:{\"name\":\"x\"}": {}}}}]  # fmt: skip
NAMES = st.sampled_from(["name", "managedFields", "metadata", "é"])
LEAVES = st.one_of(
    st.none(), st.integers(-5, 5), st.sampled_from(["", "managedFields", '"managedFields":[]', "ü"])
)
INNER = st.one_of(LEAVES, st.lists(LEAVES, max_size=2), st.dictionaries(NAMES, LEAVES, max_size=2))
JSON = st.one_of(INNER, st.dictionaries(NAMES, INNER, max_size=2))
DOCUMENTS = st.fixed_dictionaries(
    {"metadata": st.dictionaries(st.sampled_from(["a", "managedFields", "name", "z"]), JSON, max_size=3)},
    optional={"managedFields": JSON, "spec": JSON, "aaa": JSON},
)


def website(number: int) -> bytes:
    rng = random.Random(number)
    return json.dumps(
        {
            "apiVersion": "example.com/v1",
            "kind": "Website",
            "metadata": {
                "labels": {"app": "web", "shard.ringleader.dev/sites": "web-0-5eed5eed"},
                "managedFields": MANAGED,
                "name": f"site-{number:06}",
                "namespace": "default",
                "resourceVersion": str(number * 3),
                "uid": f"{rng.getrandbits(128):032x}",
            },
            "spec": {"html": f"{rng.getrandbits(256):064x}" + "<p>hello</p>" * 20},
        },
        separators=(",", ":"),
    ).encode()


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize("at", ["first", "amid", "last", "alone"])
def test_managed_fields_go_wherever_they_stand(at: str, separators: tuple[str, str]) -> None:
    before = {"annotations": {"a": "b"}} if at in ("amid", "last") else {}
    after = {"name": "x"} if at in ("amid", "first") else {}
    document: dict[str, Any] = {
        "kind": "X",
        "metadata": {**before, "managedFields": MANAGED, **after},
        "spec": 1,
    }
    stripped = without_managed_fields(json.dumps(document, separators=separators).encode())
    del document["metadata"]["managedFields"]
    assert json.loads(stripped) == document


def test_every_byte_but_those_of_the_managed_fields_stays() -> None:
    raw = b'{"metadata":{"managedFields":[{"a":[]}],"name":"\\u00e9"},"spec":{"n":1.50,"big":12345678901234567890}}'
    assert without_managed_fields(raw) == raw.replace(b'"managedFields":[{"a":[]}],', b"")


def test_an_object_without_managed_fields_is_not_copied() -> None:
    raw = b'{"metadata":{"name":"x"},"spec":{"managed":"Fields"}}'
    assert without_managed_fields(raw) is raw


def test_managed_fields_of_what_an_object_contains_stay() -> None:
    document = {
        "metadata": {"name": "managedFields"},
        "spec": {"template": {"metadata": {"managedFields": MANAGED}}},
    }
    raw = json.dumps(document, separators=(",", ":")).encode()
    assert without_managed_fields(raw) == raw


@settings(max_examples=300)
@example({"a": {"managedFields": [1], "b": 1}, "metadata": {"managedFields": [1]}}, (",", ":"), True)
@given(DOCUMENTS, st.sampled_from([(",", ":"), (", ", ": ")]), st.booleans())
def test_whatever_the_object_only_its_own_managed_fields_go(
    document: dict[str, Any], separators: tuple[str, str], ascii_only: bool
) -> None:
    raw = json.dumps(document, separators=separators, ensure_ascii=ascii_only).encode()
    expected = json.loads(raw)
    expected["metadata"].pop("managedFields", None)
    assert json.loads(without_managed_fields(raw)) == expected


# -- packing


def test_what_was_packed_comes_out_again_and_is_distinct_from_json() -> None:
    dictionary = Dictionary([website(number) for number in range(100)])
    for raw in (website(1000), b'{"metadata":{}}', b"{}", b'{"spec":"' + b"x" * 300_000 + b'"}'):
        packed = dictionary.pack(raw)
        assert dictionary.unpack(packed) == raw
        assert is_packed(packed)
        assert not is_packed(raw)


def test_objects_that_the_dictionary_has_not_seen_shrink_to_a_fifth() -> None:
    seen = [website(number) for number in range(1000)]
    dictionary = dictionary_for(seen, worth_it=0.3)
    assert dictionary is not None
    unseen = [website(number) for number in range(5000, 5100)]
    assert sum(len(dictionary.pack(raw)) for raw in unseen) < 0.2 * sum(map(len, unseen))


def test_objects_too_small_to_shrink_get_no_dictionary() -> None:
    assert dictionary_for([b'{"a":1}'] * 1000, worth_it=1.0) is None


def test_objects_that_do_not_shrink_get_no_dictionary() -> None:
    noise = [b'{"x":"' + random.Random(n).randbytes(800).hex().encode() + b'"}' for n in range(300)]
    assert dictionary_for(noise, worth_it=0.4) is None


@pytest.mark.parametrize(
    "objects",
    [[b"{}"], [b'{"a":1}'] * 1000, [b'{"a":"' + b"y" * 5_000_000 + b'"}'], [website(1), website(2)]],
    ids=["one tiny", "all alike", "one huge", "two"],
)
def test_few_or_odd_objects_make_a_dictionary_all_the_same(objects: list[bytes]) -> None:
    dictionary = Dictionary(objects)
    assert [dictionary.unpack(dictionary.pack(raw)) for raw in objects] == objects
