"""Contract: how failures look: status, reason, message and details, by which clients tell them apart."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp
import pytest

from devcluster.plane import ControlPlane
from tests.contract.api import Answer, Api
from tests.contract.definitions import configmap, site

pytestmark = pytest.mark.asyncio(loop_scope="session")


def failure(
    code: int, reason: str, message: str, details: Mapping[str, object] | None = None
) -> dict[str, object]:
    body: dict[str, object] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return body | ({"details": details} if details is not None else {})


def check(answer: Answer, expected: dict[str, object]) -> None:
    assert answer.status == expected["code"], answer.text
    assert answer.headers["Content-Type"].startswith("application/json")
    assert answer.body == expected


async def test_unknown_token_is_401(plane: ControlPlane, api: Api, configmaps: str) -> None:
    refused = await api.request("GET", configmaps, headers={"Authorization": "Bearer nonsense"})
    check(refused, failure(401, "Unauthorized", "Unauthorized"))


async def test_no_credentials_are_not_let_in(plane: ControlPlane, configmaps: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(plane.url + configmaps, ssl=False) as answer:
        assert answer.status in (401, 403)
        assert (await answer.json())["kind"] == "Status"


async def test_missing_object_is_404_with_its_name(api: Api, sites: str, configmaps: str) -> None:
    check(
        await api.get(f"{sites}/nobody"),
        failure(
            404,
            "NotFound",
            'websites.example.com "nobody" not found',
            {"name": "nobody", "group": "example.com", "kind": "websites"},
        ),
    )
    check(
        await api.get(f"{configmaps}/nobody"),
        failure(404, "NotFound", 'configmaps "nobody" not found', {"name": "nobody", "kind": "configmaps"}),
    )


@pytest.mark.parametrize(
    "path",
    [
        "/apis/example.com/v1/namespaces/default/nopes",
        "/apis/example.com/v2/namespaces/default/websites",
        "/apis/nope.example.com/v1",
        "/apis/nope.example.com/v1/namespaces/default/things",
        "/nope",
    ],
)
async def test_unknown_resource_group_or_path_is_a_plain_404(api: Api, path: str) -> None:
    answer = (await api.get(path)).check(404)
    assert answer.text.strip() == "404 page not found"


async def test_unknown_resource_of_the_core_group_is_a_404_status(api: Api) -> None:
    expected = failure(404, "NotFound", "the server could not find the requested resource", {})
    check(await api.get("/api/v1/namespaces/default/nopes"), expected)


async def test_unknown_subresource_is_404(api: Api, sites: str, configmaps: str) -> None:
    await api.post(configmaps, configmap("a"))
    await api.post(sites, site("a"))
    (await api.get(f"{configmaps}/a/status")).check(404)
    (await api.get(f"{sites}/a/scale")).check(404)


async def test_method_that_makes_no_sense_is_405(api: Api, configmaps: str) -> None:
    await api.post(configmaps, configmap("a"))
    expected = failure(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {}
    )
    check(await api.request("POST", f"{configmaps}/a", configmap("a")), expected)
    check(await api.request("PUT", configmaps, configmap("a")), expected)


async def test_name_in_use_is_409_already_exists(api: Api, sites: str, configmaps: str) -> None:
    for path, body, kind, details in (
        (sites, site("a"), "websites.example.com", {"name": "a", "group": "example.com", "kind": "websites"}),
        (configmaps, configmap("a"), "configmaps", {"name": "a", "kind": "configmaps"}),
    ):
        (await api.post(path, body)).check(201)
        check(
            await api.post(path, body), failure(409, "AlreadyExists", f'{kind} "a" already exists', details)
        )


async def test_stale_put_is_409_conflict(api: Api, sites: str) -> None:
    created = await api.post(sites, site("a"))
    await api.merge(f"{sites}/a", {"spec": {"html": "x"}})
    check(
        await api.put(f"{sites}/a", created.body),
        failure(
            409,
            "Conflict",
            'Operation cannot be fulfilled on websites.example.com "a": the object has been modified;'
            " please apply your changes to the latest version and try again",
            {"name": "a", "group": "example.com", "kind": "websites"},
        ),
    )


async def test_body_of_an_unknown_type_is_415(api: Api, sites: str, configmaps: str) -> None:
    for path in (sites, configmaps):
        (await api.request("POST", path, b"x", content_type="text/plain")).check(
            415, reason="UnsupportedMediaType"
        )


@pytest.mark.parametrize("body", [b"{nope", b"", b"[]", b'"text"'])
async def test_body_that_is_no_object_is_400(api: Api, sites: str, configmaps: str, body: bytes) -> None:
    for path in (sites, configmaps):
        (await api.request("POST", path, body)).check(400, reason="BadRequest")


async def test_core_object_with_a_field_of_the_wrong_type_is_400(api: Api, configmaps: str) -> None:
    refused = (await api.post(configmaps, {"metadata": {"name": "a"}, "data": {"k": 1}})).check(400)
    assert refused.message.startswith('ConfigMap in version "v1" cannot be handled as a ConfigMap: ')


async def test_missing_name_is_422(api: Api, sites: str, configmaps: str) -> None:
    nameless = site("")
    nameless["metadata"] = {}
    for path, body in ((sites, nameless), (configmaps, {"metadata": {}})):
        refused = (await api.post(path, body)).check(422)
        assert refused.body["details"]["causes"] == [
            {
                "reason": "FieldValueRequired",
                "message": "Required value: name or generateName is required",
                "field": "metadata.name",
            }
        ]


async def test_yaml_is_understood_as_a_body(api: Api, sites: str) -> None:
    text = b"apiVersion: example.com/v1\nkind: Website\nmetadata:\n  name: a\nspec:\n  html: x\n"
    (await api.request("POST", sites, text, content_type="application/yaml")).check(201)
