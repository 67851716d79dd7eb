"""What the webhook reads and writes: patches that fit the very object, and nothing that could refuse it."""

from __future__ import annotations

import pytest

from sharder.admission.review import BadReview, Labelled, Skipped, Verdict, read_review, write_answer
from tests.sharder.admission.reviews import answered, child, review, stored, website
from tests.sharder.pure.views import KEYS


def answer(obj: dict[str, object], verdict: Verdict | None = None) -> bytes:
    return write_answer(read_review(review(obj)), verdict or Labelled("shard-a"), keys=KEYS)


def test_an_object_without_labels_gets_its_owner() -> None:
    obj = website("blog")
    assert stored(obj, answer(obj))["metadata"]["labels"] == {KEYS.shard: "shard-a"}


@pytest.mark.parametrize("labels", [{}, {"app": "x"}, {"a/b~c": "d"}])
def test_labels_that_are_there_stay(labels: dict[str, str]) -> None:
    obj = website("blog", labels=labels)
    assert stored(obj, answer(obj))["metadata"]["labels"] == {**labels, KEYS.shard: "shard-a"}


@pytest.mark.parametrize("left", list(Skipped))
def test_whatever_it_is_left_alone_for_it_is_allowed_as_it_is(left: Skipped) -> None:
    obj = website("blog")
    assert "patch" not in answered(answer(obj, left))


@pytest.mark.parametrize("annotations", [None, {}, {"a/b~c": "d"}, {KEYS.turn: "77", "team": "x"}])
def test_an_object_is_born_in_its_first_turn_whatever_it_says_itself(
    annotations: dict[str, str] | None,
) -> None:
    obj = website("blog")
    if annotations is not None:
        obj["metadata"]["annotations"] = annotations
    assert stored(obj, answer(obj))["metadata"]["annotations"] == {**(annotations or {}), KEYS.turn: "0"}


def test_nothing_but_labels_and_the_turn_is_changed() -> None:
    obj = child("blog", labels={"app": "x"}, finalizers=["a/b"])
    bare = {"labels": None, "annotations": None}
    before = {**obj, "metadata": {**obj["metadata"], **bare}}
    after = stored(obj, answer(obj))
    assert {**after, "metadata": {**after["metadata"], **bare}} == before


def test_the_namespace_is_the_requests_whatever_the_object_says() -> None:
    bare = website("blog")
    del bare["metadata"]["namespace"]
    asked = read_review(review(bare, namespace="sites"))
    assert asked.meta is not None
    assert asked.meta.namespace == "sites"


def test_a_cluster_scoped_object_has_no_namespace() -> None:
    obj = website("blog")
    del obj["metadata"]["namespace"]
    asked = read_review(review(obj, namespace=""))
    assert asked.meta is not None
    assert asked.meta.namespace == ""


def test_core_resources_are_named_without_a_group() -> None:
    assert read_review(review(child("blog"), resource="configmaps", group="")).resource == "configmaps"
    assert read_review(review(website("blog"))).resource == "websites.example.com"


@pytest.mark.parametrize(
    "obj",
    [
        {"metadata": {"labels": {"a": 1}}},
        {"metadata": {"name": "x", "labels": None}},
        {"metadata": []},
        {"metadata": {"name": 3}},
        {"metadata": {"name": "x", "ownerReferences": [{"kind": "x"}]}},
    ],
)
def test_metadata_that_cannot_be_read_is_left_alone(obj: dict[str, object]) -> None:
    body = review(website("x"), object=obj)
    asked = read_review(body)
    assert asked.meta is None
    assert "patch" not in answered(write_answer(asked, Labelled("shard-a"), keys=KEYS))


def test_a_request_without_an_object_is_left_alone() -> None:
    assert read_review(review(website("x"), object=None, operation="DELETE")).meta is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":7}}',
        review(website("x")).replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"),
        review(website("x")).replace(b'"AdmissionReview"', b'"TokenReview"'),
    ],
)
def test_what_is_no_review_is_refused(body: bytes) -> None:
    with pytest.raises(BadReview):
        read_review(body)
