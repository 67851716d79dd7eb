"""Objects nested deeper than Python decodes: their metadata is read all the same, in pages, lines and stores."""

from __future__ import annotations

import contextlib
import json
import sys
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeio.decoding import UNREADABLE, members, meta_of, object_from, pruned
from kubeio.http.messages import Answer
from kubeio.models import HasMeta
from kubeio.rest.answers import Unexpected, decode, decode_page, error_of
from kubeio.watches.storage import COMPRESSED, PLAIN, RAW, StoredForm
from kubeio.watches.store import Store
from kubeio.watches.watch_events import Changed, Removed, decode_line

DEPTHS = (1_100, 9_900)
META = '"metadata":{"name":"pill","namespace":"ns","uid":"u-1","resourceVersion":"7"%s}'


def nested(depth: int, kind: str) -> str:
    return "[" * depth + "]" * depth if kind == "list" else '{"a":' * depth + "1" + "}" * depth


def pill(depth: int, kind: str, *, at: str = "spec") -> bytes:
    """An object with a value *depth* deep: in its spec, before its metadata, or in its managedFields."""
    deep = nested(depth, kind)
    parts = {
        "spec": f'"apiVersion":"v1",{META % ""},"spec":{{"values":{deep}}}',
        "first": f'"aaa":{deep},{META % ""}',
        "managed": META % f',"managedFields":[{{"fieldsV1":{deep}}}]',
    }
    return f"{{{parts[at]}}}".encode()


pills = pytest.mark.parametrize(
    "raw",
    [
        pill(depth, kind, at=at)
        for depth in DEPTHS
        for kind in ("list", "map")
        for at in ("spec", "first", "managed")
    ],
    ids=lambda raw: f"{len(raw)}",
)


@pills
def test_the_metadata_of_an_object_is_read_however_deep_the_rest_is(raw: bytes) -> None:
    meta = object_from(raw).meta
    assert (meta.name, meta.namespace, meta.uid, meta.resource_version) == ("pill", "ns", "u-1", "7")


@pills
@pytest.mark.parametrize("form", ['{"type":"%s","object":%s}', '{"type": "%s", "object": %s}'])
def test_a_deep_object_is_a_change_like_any_other(raw: bytes, form: str) -> None:
    for said, kind in (("ADDED", Changed), ("MODIFIED", Changed), ("DELETED", Removed)):
        event = decode_line((form % (said, raw.decode())).encode(), "WATCH")
        assert isinstance(event, kind)
        assert event.object == object_from(raw)


@pills
def test_a_page_with_a_deep_object_is_whole(raw: bytes) -> None:
    other = b'{"metadata":{"name":"other","resourceVersion":"8"},"spec":{"items":[{"a":[{}]}]}}'
    body = b'{"kind":"items","items":[%b,%b,%b],"metadata":{"resourceVersion":"9"}}' % (other, raw, other)
    page = decode_page(body)
    assert [obj.raw for obj in page.objects] == [other, raw, other]
    assert (page.resource_version, list(page.unfit)) == ("9", [])


@pills
def test_a_read_for_metadata_survives_a_deep_object(raw: bytes) -> None:
    assert decode(raw, HasMeta).metadata.name == "pill"
    with contextlib.suppress(Unexpected):  # Python 3.12 and newer decode deeper than 3.11
        assert decode(raw, dict)["metadata"]["name"] == "pill"


def test_an_object_deeper_than_any_python_decodes_is_refused_in_the_declared_words() -> None:
    with pytest.raises(Unexpected):
        decode(pill(200_000, "list"), dict)


@pytest.mark.parametrize("form", [PLAIN, RAW, COMPRESSED, StoredForm(strips=True, transform=bytes)])
@pills
def test_a_store_keeps_a_deep_object_in_every_form(raw: bytes, form: StoredForm) -> None:
    store = Store(form, indexes={"html": lambda raw: msgspec.json.decode(raw)["spec"]["html"]})
    learned = store.learn(object_from(raw))
    assert learned is not None
    found = store.get(learned.key)
    assert found is not None
    assert found.meta.uid == "u-1"
    assert (b"managedFields" in found.raw) == (form is PLAIN and b"managedFields" in raw)
    assert store.remove(learned.key) is not None


def test_an_unreadable_object_of_a_page_is_named_and_the_others_are_there() -> None:
    body = (
        b'{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}},'
        b'{"metadata":{"name":"bad","namespace":"ns","resourceVersion":"5","labels":{"x":1}}}]}'
    )
    page = decode_page(body)
    assert [obj.meta.name for obj in page.objects] == ["a"]
    (named,) = page.unfit
    assert (str(named.key), named.resource_version) == ("ns/bad", "5")
    assert "labels" in named.problem


def test_no_message_repeats_what_may_stand_in_a_secret() -> None:
    body = b'{"metadata":{"name":5},"data":{"key":"aHVzaA=="}}'
    with pytest.raises(Unexpected) as unexpected:
        decode(body, HasMeta)
    assert "aHVzaA" not in str(unexpected.value)
    status = b'{"message":"Secret \\"a\\" is invalid: data[key]: Invalid value: hush"}'
    for path, shows in (("/api/v1/namespaces/ns/secrets/a", False), ("/api/v1/namespaces/ns/pods/a", True)):
        error = error_of(f"PATCH {path} on https://x", Answer(422, [], status), now=datetime.now(UTC))
        assert ("hush" in str(error)) == shows


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["items", "metadata", "x"]) | st.text(), json_values, max_size=4))
def test_what_is_taken_apart_is_what_stands_there(document: dict[str, object]) -> None:
    raw = json.dumps(document).encode()
    assert json.loads(pruned(raw, 200)) == document
    assert json.loads(pruned(raw, 1)).keys() == document.keys()
    for name, value in document.items():
        if json.dumps(name) == f'"{name}"':
            found = [json.loads(part) for part in members(raw, name.encode())]
            assert found == ([value] if isinstance(value, dict | list) else [])
            if isinstance(value, list):
                parts = [json.loads(part) for part in members(raw, name.encode(), depth=2)]
                assert parts == [each for each in value if isinstance(each, dict | list)]


@given(st.binary(max_size=200) | st.text('{}[]",:\\ametd1', max_size=200).map(str.encode))
def test_no_bytes_bring_about_another_error_than_the_declared_one(raw: bytes) -> None:
    deep = nested(sys.getrecursionlimit() + 50, "list").encode()
    for text in (
        raw,
        b'{"aaa":%b,"metadata":%b}' % (deep, raw),
        b'{"metadata":{"name":%b},"x":%b' % (raw, deep),
    ):
        for call in (meta_of, object_from):
            with contextlib.suppress(*UNREADABLE):
                call(text)
        with contextlib.suppress(Unexpected):
            decode_page(text)
