"""Contract: resources defined at run time: when they are served, what their schema does to objects."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from typing import Any

import pytest

from tests.contract.api import Answer, Api
from tests.contract.definitions import (
    DEFINITIONS,
    GADGETS,
    SITES,
    configmap,
    define,
    gadget,
    renamed,
    served,
    site,
    until_gone,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")


def fresh(base: dict[str, Any], **spec: object) -> dict[str, Any]:
    """A definition that no other test uses."""
    letters = "".join(chr(ord("a") + byte % 26) for byte in secrets.token_bytes(8))
    return renamed(base, f"{letters}s", letters.capitalize(), **spec)


async def test_definition_becomes_established_and_is_served(api: Api) -> None:
    definition = fresh(GADGETS)
    created = (await api.post(DEFINITIONS, definition)).check(201)
    assert created.body["spec"]["names"]["listKind"] == definition["spec"]["names"]["kind"] + "List"
    await served(api, definition)
    found = await api.get(f"{DEFINITIONS}/{definition['metadata']['name']}")
    conditions = {one["type"]: one["status"] for one in found.body["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert found.body["status"]["acceptedNames"]["plural"] == definition["spec"]["names"]["plural"]
    assert found.body["status"]["storedVersions"] == ["v1"]


async def test_deleted_definition_takes_its_objects_along(api: Api) -> None:
    definition = fresh(GADGETS)
    await define(api, definition)
    plural, kind = definition["spec"]["names"]["plural"], definition["spec"]["names"]["kind"]
    path = f"/apis/example.com/v1/{plural}"
    (await api.post(path, gadget("a") | {"kind": kind})).check(201)
    (await api.delete(f"{DEFINITIONS}/{definition['metadata']['name']}")).check(200)
    deadline = time.monotonic() + 30
    while (await api.get(path)).status != 404:
        assert time.monotonic() < deadline, "the resource is still served"
        await asyncio.sleep(0.1)
    await define(api, definition)
    deadline = time.monotonic() + 30
    while (listed := await api.get(path)).status == 429:  # a real server begins its storage anew
        assert time.monotonic() < deadline, listed.message
        await asyncio.sleep(0.1)
    assert listed.check(200).body["items"] == []


@pytest.mark.parametrize(
    "is_late", [False, pytest.param(True, marks=pytest.mark.real_apart)], ids=["child", "late child"]
)
async def test_what_a_definition_s_objects_owned_goes_with_it(
    api: Api, configmaps: str, is_late: bool
) -> None:
    """A child made after the definition went is looked at once the definition is there again."""
    definition = fresh(GADGETS)
    await define(api, definition)
    plural, kind = definition["spec"]["names"]["plural"], definition["spec"]["names"]["kind"]
    path = f"/apis/example.com/v1/{plural}"
    owner = (await api.post(path, gadget("a") | {"kind": kind})).check(201).meta
    reference = {"apiVersion": "example.com/v1", "kind": kind, "name": "a", "uid": owner["uid"]}
    child = configmap("child", ownerReferences=[reference])
    if not is_late:
        (await api.post(configmaps, child)).check(201)
    (await api.delete(f"{DEFINITIONS}/{definition['metadata']['name']}")).check(200)
    await until_gone(api, path)
    if is_late:
        (await api.post(configmaps, child)).check(201)
        await asyncio.sleep(1)  # the collector sees it, and asks in vain
    await define(api, definition)
    await until_gone(api, f"{configmaps}/child")


async def test_deleted_definition_ends_the_watches_of_its_objects(api: Api) -> None:
    definition = fresh(GADGETS)
    await define(api, definition)
    plural, kind = definition["spec"]["names"]["plural"], definition["spec"]["names"]["kind"]
    path = f"/apis/example.com/v1/{plural}"
    (await api.post(path, gadget("a") | {"kind": kind})).check(201)
    async with api.watch(path) as watch:
        assert await watch.short() == ("ADDED", "a")
        (await api.delete(f"{DEFINITIONS}/{definition['metadata']['name']}")).check(200)
        seen = await asyncio.wait_for(watch.until_end(), 30)
    assert [event["type"] for event in seen] == ["ADDED", "DELETED"]


async def test_definition_named_unlike_its_resource_is_422(api: Api) -> None:
    definition = fresh(GADGETS)
    definition["metadata"]["name"] = "other.example.com"
    (await api.post(DEFINITIONS, definition)).check(422, field="metadata.name")


async def test_definition_without_a_schema_is_422(api: Api) -> None:
    definition = fresh(GADGETS)
    del definition["spec"]["versions"][0]["schema"]
    refused = (await api.post(DEFINITIONS, definition)).check(422)
    causes = refused.body["details"]["causes"]
    assert [cause["field"] for cause in causes] == ["spec.versions[0].schema.openAPIV3Schema"]


async def test_definition_without_a_storage_version_is_422(api: Api) -> None:
    definition = fresh(GADGETS)
    definition["spec"]["versions"][0]["storage"] = False
    (await api.post(DEFINITIONS, definition)).check(
        422, says="must have exactly one version marked as storage version"
    )


async def test_cluster_scoped_resource_has_no_namespaced_path(api: Api, namespace: str) -> None:
    name = f"g-{time.time_ns()}"
    created = (await api.post("/apis/example.com/v1/gadgets", gadget(name))).check(201)
    assert "namespace" not in created.meta
    (await api.get(f"/apis/example.com/v1/namespaces/{namespace}/gadgets/{name}")).check(404)


async def test_namespaced_resource_is_not_created_without_a_namespace(api: Api) -> None:
    refused = await api.post("/apis/example.com/v1/websites", site("a"))
    assert refused.status in (404, 405), refused.text


# -- schema ---------------------------------------------------------------------------------------------------

INVALID: list[tuple[dict[str, Any], str, str, str]] = [
    (
        {"html": 1},
        "spec.html",
        "FieldValueTypeInvalid",
        'Invalid value: "integer": spec.html in body must be of type string: "integer"',
    ),
    (
        {"html": ""},
        "spec.html",
        "FieldValueInvalid",
        'Invalid value: "": spec.html in body should be at least 1 chars long',
    ),
    ({"html": None}, "spec.html", "FieldValueRequired", "Required value"),
    (
        {"theme": "red"},
        "spec.theme",
        "FieldValueNotSupported",
        'Unsupported value: "red": supported values: "plain", "dark"',
    ),
    (
        {"replicas": -1},
        "spec.replicas",
        "FieldValueInvalid",
        "Invalid value: -1: spec.replicas in body should be greater than or equal to 0",
    ),
    (
        {"replicas": 11},
        "spec.replicas",
        "FieldValueInvalid",
        "Invalid value: 11: spec.replicas in body should be less than or equal to 10",
    ),
    (
        {"replicas": "1"},
        "spec.replicas",
        "FieldValueTypeInvalid",
        'Invalid value: "string": spec.replicas in body must be of type integer: "string"',
    ),
    (
        {"port": 1.5},
        "spec.port",
        "FieldValueTypeInvalid",
        'Invalid value: "number": spec.port in body must be of type integer,string: "number"',
    ),
    (
        {"tags": ["a", "b", "c", "d"]},
        "spec.tags",
        "FieldValueTooMany",
        "Too many: 4: must have at most 3 items",
    ),
    (
        {"tags": "a"},
        "spec.tags",
        "FieldValueTypeInvalid",
        'Invalid value: "string": spec.tags in body must be of type array: "string"',
    ),
    (
        {"slug": "UPPER"},
        "spec.slug",
        "FieldValueInvalid",
        "Invalid value: \"UPPER\": spec.slug in body should match '^[a-z]+$'",
    ),
    (
        {"limits": {"cpu": "x"}},
        "spec.limits.cpu",
        "FieldValueTypeInvalid",
        'Invalid value: "string": spec.limits.cpu in body must be of type integer: "string"',
    ),
    ({"pages": [{}]}, "spec.pages[0].path", "FieldValueRequired", "Required value"),
]


def check_invalid(answer: Answer, field: str, reason: str, message: str) -> None:
    answer.check(422)
    assert answer.message == f'Website.example.com "a" is invalid: {field}: {message}'
    assert answer.body["reason"] == "Invalid"
    assert answer.body["details"] == {
        "name": "a",
        "group": "example.com",
        "kind": "Website",
        "causes": [{"reason": reason, "message": message, "field": field}],
    }


@pytest.mark.parametrize(("spec", "field", "reason", "message"), INVALID, ids=lambda part: str(part)[:40])
async def test_schema_refuses_and_names_the_field(
    api: Api, sites: str, spec: dict[str, Any], field: str, reason: str, message: str
) -> None:
    check_invalid(await api.post(sites, site("a", **spec)), field, reason, message)


async def test_several_faults_are_told_together(api: Api, sites: str) -> None:
    refused = (await api.post(sites, site("a", html=1, replicas="x"))).check(422)
    assert refused.message.startswith('Website.example.com "a" is invalid: [spec.')
    fields = {cause["field"] for cause in refused.body["details"]["causes"]}
    assert fields == {"spec.html", "spec.replicas"}


async def test_missing_spec_is_a_required_value(api: Api, sites: str) -> None:
    body = site("a")
    del body["spec"]
    check_invalid(await api.post(sites, body), "spec", "FieldValueRequired", "Required value")


async def test_schema_holds_for_patch_put_and_status(api: Api, sites: str) -> None:
    created = (await api.post(sites, site("a"))).check(201)
    (await api.merge(f"{sites}/a", {"spec": {"replicas": 11}})).check(422)
    (await api.put(f"{sites}/a", created.body | {"spec": {"html": 1}})).check(422)
    (await api.merge(f"{sites}/a/status", {"status": {"message": 1}})).check(422, field="status.message")
    assert (await api.get(f"{sites}/a")).version == created.version


async def test_defaults_are_filled_in(api: Api, sites: str) -> None:
    created = (await api.post(sites, site("a", pages=[{"path": "/"}]))).check(201)
    assert created.body["spec"]["theme"] == "plain"
    assert created.body["spec"]["pages"] == [{"path": "/", "visible": True}]
    changed = await api.merge(f"{sites}/a", {"spec": {"theme": None}})
    assert changed.check(200).body["spec"]["theme"] == "plain"


async def test_null_is_kept_where_it_is_nullable_and_defaulted_where_not(api: Api, sites: str) -> None:
    created = (await api.post(sites, site("a", nick=None, theme=None))).check(201)
    assert created.body["spec"]["nick"] is None
    assert created.body["spec"]["theme"] == "plain"


async def test_unknown_fields_are_pruned_with_a_warning(api: Api, sites: str) -> None:
    outside = (await api.post(sites, site("b") | {"more": {"x": 1}})).check(201)
    assert "more" not in outside.body
    created = (await api.post(sites, site("a", unknown=1))).check(201)
    assert "unknown" not in created.body["spec"]
    assert 'unknown field \\"spec.unknown\\"' in created.headers["Warning"]


async def test_unknown_fields_are_refused_under_strict_validation(api: Api, sites: str) -> None:
    (await api.post(sites, site("a", unknown=1), fieldValidation="Strict")).check(
        400, says='strict decoding error: unknown field "spec.unknown"'
    )
    (await api.get(f"{sites}/a")).check(404)


async def test_preserved_fields_are_kept_as_they_are(api: Api, sites: str) -> None:
    extra = {"any": {"thing": [1, "two", None, 3.5]}}
    created = (await api.post(sites, site("a", extra=extra))).check(201)
    assert created.body["spec"]["extra"] == extra


async def test_int_or_string_takes_both(api: Api, sites: str) -> None:
    (await api.post(sites, site("a", port=80))).check(201)
    (await api.post(sites, site("b", port="http"))).check(201)


async def test_whole_numbers_written_as_floats_are_integers(api: Api, sites: str) -> None:
    body = json.dumps(site("a", replicas=2)).replace('"replicas": 2', '"replicas": 2.0')
    created = await api.request("POST", sites, body.encode())
    assert created.check(201).body["spec"]["replicas"] == 2


async def test_wrong_kind_is_422_and_wrong_version_is_400(api: Api, sites: str) -> None:
    (await api.post(sites, site("a") | {"kind": "Blog"})).check(422, field="kind")
    (await api.post(sites, site("a") | {"apiVersion": "example.com/v2"})).check(
        400, says="does not match the expected API version (example.com/v1)"
    )


async def test_schema_that_is_changed_counts_at_once_for_new_writes(api: Api) -> None:
    definition = fresh(SITES)
    await define(api, definition)
    names = definition["spec"]["names"]
    path = f"/apis/example.com/v1/namespaces/default/{names['plural']}"
    body = site("a", html="long enough") | {"kind": names["kind"]}
    (await api.post(path, body)).check(201)
    pointer = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/html/maxLength"
    replace: dict[str, object] = {"op": "replace", "path": pointer, "value": 3}
    (await api.json_patch(f"{DEFINITIONS}/{definition['metadata']['name']}", replace)).check(200)
    deadline = time.monotonic() + 15
    while (await api.post(path, body | {"metadata": {"name": "b"}}, dryRun="All")).status != 422:
        assert time.monotonic() < deadline, "the new schema does not count"
        await asyncio.sleep(0.1)
