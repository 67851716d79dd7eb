"""Contract: patches and their preconditions, on which every fence of the protocol rests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import pytest_asyncio

from tests.contract.api import JSON_PATCH, MERGE_PATCH, PARTIAL, Answer, Api
from tests.contract.definitions import configmap, site

pytestmark = pytest.mark.asyncio(loop_scope="session")

SHARD = "shard.ringleader.dev/r"
POINTER = "/metadata/labels/shard.ringleader.dev~1r"


def label_is(value: str) -> dict[str, object]:
    return {"op": "test", "path": POINTER, "value": value}


def html(value: str) -> dict[str, object]:
    return {"op": "replace", "path": "/spec/html", "value": value}


async def owned(api: Api, sites: str) -> Answer:
    return (await api.post(sites, site("a", labels={SHARD: "s1"}))).check(201)


@pytest.mark.parametrize("sub", ["", "/status"])
async def test_fence_on_the_label_lets_the_owner_write(api: Api, sites: str, sub: str) -> None:
    created = await owned(api, sites)
    change: dict[str, object] = (
        {"op": "add", "path": "/status", "value": {"message": "new"}} if sub else html("new")
    )
    changed = (await api.json_patch(f"{sites}/a{sub}", label_is("s1"), change)).check(200)
    assert changed.version != created.version
    assert (changed.body["status"]["message"] if sub else changed.body["spec"]["html"]) == "new"


@pytest.mark.parametrize("sub", ["", "/status"])
async def test_fence_on_the_label_refuses_all_others_with_422(api: Api, sites: str, sub: str) -> None:
    created = await owned(api, sites)
    change: dict[str, object] = (
        {"op": "add", "path": "/status", "value": {"message": "new"}} if sub else html("new")
    )
    refused = (await api.json_patch(f"{sites}/a{sub}", label_is("s2"), change)).check(422)
    assert refused.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "the server rejected our request due to an error in our request",
        "reason": "Invalid",
        "details": {},
        "code": 422,
    }
    assert (await api.get(f"{sites}/a")).body == created.body


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "test", "path": "/metadata/uid", "value": "00000000-0000-0000-0000-000000000000"}],
        [{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}],
        [{"op": "test", "path": "/metadata/labels/absent", "value": "x"}],
        [{"op": "test", "path": "/metadata/annotations/absent", "value": "x"}],
        [{"op": "remove", "path": "/metadata/labels/absent"}],
        [{"op": "add", "path": "/metadata/annotations/no-parent", "value": "x"}],
        [{"op": "move", "from": "/spec/absent", "path": "/spec/html"}],
        [{"op": "nonsense", "path": "/spec/html", "value": "x"}],
        [html("first"), {"op": "test", "path": "/spec/html", "value": "second"}],
    ],
    ids=lambda operations: f"{operations[-1]['op']}:{operations[-1]['path']}",
)
async def test_json_patch_that_does_not_apply_is_422_and_changes_nothing(
    api: Api, sites: str, operations: list[dict[str, object]]
) -> None:
    created = await owned(api, sites)
    (await api.json_patch(f"{sites}/a", *operations)).check(422, reason="Invalid")
    assert (await api.get(f"{sites}/a")).version == created.version


async def test_tests_of_uid_and_version_pass_when_they_are_right(api: Api, sites: str) -> None:
    created = await owned(api, sites)
    changed = await api.json_patch(
        f"{sites}/a",
        {"op": "test", "path": "/metadata/uid", "value": created.meta["uid"]},
        {"op": "test", "path": "/metadata/resourceVersion", "value": created.version},
        {"op": "remove", "path": POINTER},
    )
    assert changed.check(200).labels == {}


async def test_replace_of_a_missing_key_adds_it(api: Api, sites: str) -> None:
    """Not what RFC 6902 says: only a `test` before it makes a `replace` conditional."""
    await owned(api, sites)
    changed = await api.json_patch(
        f"{sites}/a", {"op": "replace", "path": "/metadata/labels/absent", "value": "x"}
    )
    assert changed.check(200).labels == {SHARD: "s1", "absent": "x"}


async def test_json_patch_works_on_core_resources_too(api: Api, configmaps: str) -> None:
    await api.post(configmaps, configmap("a", labels={SHARD: "s1"}))
    add: dict[str, object] = {"op": "add", "path": "/data/k2", "value": "v2"}
    (await api.json_patch(f"{configmaps}/a", label_is("s2"), add)).check(422)
    changed = (await api.json_patch(f"{configmaps}/a", label_is("s1"), add)).check(200)
    assert changed.body["data"] == {"k": "v", "k2": "v2"}


async def test_json_patch_of_a_missing_object_is_404(api: Api, sites: str) -> None:
    (await api.json_patch(f"{sites}/nobody", label_is("s1"))).check(404)


async def test_json_patch_that_makes_an_invalid_object_names_the_field(api: Api, sites: str) -> None:
    await owned(api, sites)
    refused = await api.json_patch(f"{sites}/a", {"op": "add", "path": "/spec/replicas", "value": -1})
    refused.check(422)
    assert refused.body["details"]["causes"][0]["field"] == "spec.replicas"


@pytest.mark.parametrize(
    ("content_type", "body"),
    [(JSON_PATCH, b"[{"), (JSON_PATCH, b'{"a": 1}'), (MERGE_PATCH, b"[{"), (MERGE_PATCH, b"[]")],
)
async def test_patch_that_cannot_be_read_is_400(api: Api, sites: str, content_type: str, body: bytes) -> None:
    await owned(api, sites)
    refused = await api.request("PATCH", f"{sites}/a", body, content_type=content_type)
    assert refused.check(400).body["reason"] == "BadRequest"


async def test_concurrent_patches_with_the_same_test_have_one_winner(api: Api, sites: str) -> None:
    created = await owned(api, sites)
    attempts = [
        api.json_patch(
            f"{sites}/a",
            {"op": "test", "path": "/metadata/resourceVersion", "value": created.version},
            html(f"writer {number}"),
        )
        for number in range(12)
    ]
    answers = await asyncio.gather(*attempts)
    assert sorted(answer.status for answer in answers) == [200] + [422] * 11


async def test_merge_patch_changes_adds_and_removes(api: Api, sites: str) -> None:
    await api.post(sites, site("a", labels={"x": "1", "y": "2"}, tags=["p", "q"]))
    changed = await api.merge(
        f"{sites}/a", {"metadata": {"labels": {"x": None, "z": "3"}}, "spec": {"tags": ["r"]}}
    )
    assert changed.check(200).labels == {"y": "2", "z": "3"}
    assert changed.body["spec"]["tags"] == ["r"]


async def test_merge_patch_with_a_current_version_passes_and_with_a_stale_one_is_409(
    api: Api, sites: str, configmaps: str
) -> None:
    for path, body in ((sites, site("a")), (configmaps, configmap("a"))):
        created = await api.post(path, body)
        change = {"metadata": {"resourceVersion": created.version, "labels": {"x": "1"}}}
        (await api.merge(f"{path}/a", change)).check(200)
        change["metadata"]["labels"] = {"x": "2"}
        (await api.merge(f"{path}/a", change)).check(
            409, reason="Conflict", says="the object has been modified"
        )


async def test_merge_patch_with_a_wrong_uid_is_422(api: Api, sites: str, configmaps: str) -> None:
    for path, body in ((sites, site("a")), (configmaps, configmap("a"))):
        await api.post(path, body)
        refused = await api.merge(f"{path}/a", {"metadata": {"uid": "1", "labels": {"x": "1"}}})
        refused.check(422)
        assert refused.body["details"]["causes"][0]["field"] == "metadata.uid"


async def test_merge_patch_of_a_missing_object_is_404(api: Api, sites: str) -> None:
    (await api.merge(f"{sites}/nobody", {"metadata": {"labels": {"x": "1"}}})).check(
        404, message='websites.example.com "nobody" not found'
    )


async def test_patch_cannot_rename(api: Api, sites: str) -> None:
    await owned(api, sites)
    (await api.merge(f"{sites}/a", {"metadata": {"name": "b"}})).check(
        400, message="the name of the object (b) does not match the name on the URL (a)"
    )


async def test_patch_may_answer_with_metadata_only(api: Api, sites: str) -> None:
    await owned(api, sites)
    changed = await api.json_patch(f"{sites}/a", label_is("s1"), html("new"), accept=PARTIAL)
    assert changed.check(200).body["kind"] == "PartialObjectMetadata"
    assert changed.labels == {SHARD: "s1"}
    assert "spec" not in changed.body
    assert (await api.get(f"{sites}/a")).version == changed.version


@pytest.mark.parametrize("content_type", ["application/foo", "application/strategic-merge-patch+json"])
async def test_unknown_kind_of_patch_is_415(api: Api, sites: str, content_type: str) -> None:
    await owned(api, sites)
    (await api.request("PATCH", f"{sites}/a", {}, content_type=content_type)).check(
        415, reason="UnsupportedMediaType", says="application/json-patch+json, application/merge-patch+json"
    )


async def test_dry_run_patch_answers_but_changes_nothing(api: Api, sites: str) -> None:
    created = await owned(api, sites)
    answer = (await api.merge(f"{sites}/a", {"spec": {"html": "dry"}}, dryRun="All")).check(200)
    assert answer.body["spec"]["html"] == "dry"
    assert (await api.get(f"{sites}/a")).body == created.body


# -- apply ----------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="session")
async def serves_apply(api: Api, sites: str) -> None:
    answer = await api.apply(f"{sites}/probe", site("probe"), dryRun="All")
    if answer.status == 415:
        pytest.skip(answer.message)


async def test_apply_is_served_or_refused_by_name(api: Api, sites: str) -> None:
    answer = await api.apply(f"{sites}/a", site("a"))
    if answer.status != 201:
        assert "server-side apply" in answer.check(415).message
        (await api.get(f"{sites}/a")).check(404)


@pytest.mark.usefixtures("serves_apply")
async def test_apply_creates_a_missing_object(api: Api, sites: str) -> None:
    created = (await api.apply(f"{sites}/a", site("a"))).check(201)
    assert created.meta["generation"] == 1
    assert (await api.get(f"{sites}/a")).check(200).body["spec"]["theme"] == "plain"


@pytest.mark.usefixtures("serves_apply")
async def test_apply_with_a_uid_never_resurrects(api: Api, sites: str) -> None:
    dead = site("a")
    dead["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    (await api.apply(f"{sites}/a", dead)).check(409, reason="Conflict", says="uid mismatch")
    (await api.get(f"{sites}/a")).check(404)


@pytest.mark.usefixtures("serves_apply")
async def test_apply_with_a_stale_version_is_409(api: Api, sites: str) -> None:
    created = await api.apply(f"{sites}/a", site("a"))
    fresh: dict[str, Any] = site("a", html="1")
    fresh["metadata"]["resourceVersion"] = created.version
    (await api.apply(f"{sites}/a", fresh)).check(200)
    fresh["spec"]["html"] = "2"
    (await api.apply(f"{sites}/a", fresh)).check(409)


@pytest.mark.usefixtures("serves_apply")
async def test_apply_again_with_other_content_changes_it(api: Api, sites: str) -> None:
    await api.apply(f"{sites}/a", site("a", html="1"))
    changed = (await api.apply(f"{sites}/a", site("a", html="2"))).check(200)
    assert changed.body["spec"]["html"] == "2"
    assert changed.meta["generation"] == 2


@pytest.mark.usefixtures("serves_apply")
async def test_apply_without_a_field_manager_is_422(api: Api, sites: str) -> None:
    refused = await api.request("PATCH", f"{sites}/a", site("a"), content_type="application/apply-patch+yaml")
    assert refused.check(422).body["details"]["causes"][0]["field"] == "fieldManager"


TURN = "turn.ringleader.dev/r"


@pytest.mark.usefixtures("serves_apply")
async def test_apply_and_merge_of_others_leave_the_turn(api: Api, sites: str) -> None:
    body = site("a", labels={SHARD: "s1"})
    body["metadata"]["annotations"] = {TURN: "7"}
    (await api.post(sites, body)).check(201)
    theirs = {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "metadata": {"name": "a", "annotations": {"team": "x"}},
        "spec": {"html": "theirs"},
    }
    applied = (await api.apply(f"{sites}/a", theirs, fieldManager="people", force="true")).check(200)
    assert applied.meta["annotations"] == {TURN: "7", "team": "x"}
    merged = (await api.merge(f"{sites}/a", {"metadata": {"annotations": {"team": None}}})).check(200)
    assert merged.meta["annotations"] == {TURN: "7"}


async def test_a_merge_patch_on_uid_and_version_gives_the_turn_and_takes_it(api: Api, sites: str) -> None:
    """With or without annotations before: what assignments, acknowledgements and strips send."""
    created = (await api.post(sites, site("a"))).check(201)

    def conditional(version: str, shard: str | None, turn: str | None) -> dict[str, object]:
        identity = {"uid": created.meta["uid"], "resourceVersion": version}
        return {"metadata": {**identity, "labels": {SHARD: shard}, "annotations": {TURN: turn}}}

    given = (await api.merge(f"{sites}/a", conditional(created.version, "s1", created.version))).check(200)
    assert given.meta["annotations"] == {TURN: created.version}
    assert (await api.merge(f"{sites}/a", conditional(created.version, "s2", "9"))).status == 409
    taken = (await api.merge(f"{sites}/a", conditional(given.version, None, None))).check(200)
    assert not taken.meta.get("annotations")
    again = (await api.merge(f"{sites}/a", conditional(taken.version, None, None))).check(200)
    assert not again.meta.get("annotations")
    fenced = await api.json_patch(
        f"{sites}/a", {"op": "test", "path": "/metadata/annotations/turn.ringleader.dev~1r", "value": "7"}
    )
    assert fenced.status == 422
