"""Contract: lists: pages, versions, selectors, metadata only, tables."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.api import PARTIAL, PARTIAL_LIST, TABLE, Api
from tests.contract.definitions import configmap, site

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def fill(api: Api, sites: str, count: int) -> list[str]:
    names = [f"s-{number:02d}" for number in range(count)]
    for number, name in enumerate(names):
        (await api.post(sites, site(name, labels={"even": str(number % 2 == 0).lower()}))).check(201)
    return names


async def test_list_is_sorted_by_name_and_says_its_kind(api: Api, sites: str, configmaps: str) -> None:
    for name in ("c", "a", "b"):
        await api.post(sites, site(name))
        await api.post(configmaps, configmap(name))
    custom, core = (await api.get(sites)).check(200), (await api.get(configmaps)).check(200)
    for listed in (custom, core):
        assert listed.names == ["a", "b", "c"]
        assert listed.version.isdigit()
    assert (custom.body["kind"], custom.body["apiVersion"]) == ("WebsiteList", "example.com/v1")
    assert (core.body["kind"], core.body["apiVersion"]) == ("ConfigMapList", "v1")
    assert (custom.body["items"][0]["kind"], "kind" in core.body["items"][0]) == ("Website", False)


async def test_list_over_all_namespaces_goes_by_namespace_then_name(
    api: Api, sites: str, namespace: str
) -> None:
    await fill(api, sites, 2)
    listed = (await api.get("/apis/example.com/v1/websites")).check(200)
    keys = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in listed.body["items"]]
    assert keys == sorted(keys)
    assert {(namespace, "s-00"), (namespace, "s-01")} <= set(keys)


async def test_pages_are_one_consistent_picture(api: Api, sites: str) -> None:
    names = await fill(api, sites, 7)
    page = (await api.get(sites, limit="3")).check(200)
    assert page.meta["remainingItemCount"] == 4
    version, seen = page.version, page.names
    await api.delete(f"{sites}/s-05")
    await api.post(sites, site("s-99"))
    while token := page.meta.get("continue"):
        page = (await api.get(sites, limit="3", continue_=token)).check(200)
        assert page.version == version
        seen += page.names
    assert seen == names
    assert "remainingItemCount" not in page.meta
    assert (await api.get(sites)).names[-1] == "s-99"


async def test_pages_of_a_selection_do_not_count_what_remains(api: Api, sites: str) -> None:
    await fill(api, sites, 6)
    page = (await api.get(sites, limit="2", labelSelector="even=true")).check(200)
    assert page.names == ["s-00", "s-02"]
    assert "remainingItemCount" not in page.meta
    rest = await api.get(sites, limit="2", labelSelector="even=true", continue_=page.meta["continue"])
    assert rest.check(200).names == ["s-04"]
    assert not rest.meta.get("continue")


async def test_limit_that_is_not_reached_leaves_no_continue(api: Api, sites: str) -> None:
    await fill(api, sites, 2)
    listed = (await api.get(sites, limit="2")).check(200)
    assert len(listed.body["items"]) == 2
    assert not listed.meta.get("continue")


async def test_version_zero_ignores_the_limit(api: Api, sites: str) -> None:
    """It is the picture of the server's cache, which may be a moment old."""
    names = await fill(api, sites, 4)
    for _ in range(50):
        listed = (await api.get(sites, limit="2", resourceVersion="0")).check(200)
        assert not listed.meta.get("continue")
        if len(listed.body["items"]) == len(names):
            break
        await asyncio.sleep(0.05)
    assert listed.names == names


async def test_exact_version_shows_the_past(api: Api, sites: str) -> None:
    created = await api.post(sites, site("a", html="old"))
    await api.merge(f"{sites}/a", {"spec": {"html": "new"}})
    await api.post(sites, site("b"))
    past = await api.get(sites, resourceVersion=created.version, resourceVersionMatch="Exact")
    assert [item["spec"]["html"] for item in past.check(200).body["items"]] == ["old"]
    assert past.version == created.version


async def test_not_older_than_shows_the_present(api: Api, sites: str) -> None:
    created = await api.post(sites, site("a"))
    changed = await api.merge(f"{sites}/a", {"spec": {"html": "new"}})
    for query in ({"resourceVersionMatch": "NotOlderThan"}, {}):
        listed = (await api.get(sites, resourceVersion=changed.version, **query)).check(200)
        assert listed.body["items"][0]["spec"]["html"] == "new"
        assert int(listed.version) >= int(changed.version) > int(created.version)


async def test_version_from_the_future_is_a_timeout_with_a_hint(api: Api, sites: str) -> None:
    future = str(int((await api.get(sites)).version) + 1_000_000)
    refused = (await api.get(sites, resourceVersion=future)).check(504, reason="Timeout")
    assert refused.message.startswith(f"Timeout: Too large resource version: {future}, current: ")
    assert refused.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert refused.body["details"]["retryAfterSeconds"] == 1
    assert refused.headers["Retry-After"] == "1"


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ({"resourceVersionMatch": "Exact"}, 422, "forbidden unless resourceVersion is provided"),
        ({"resourceVersion": "0", "resourceVersionMatch": "Exact"}, 422, 'forbidden for resourceVersion "0"'),
        ({"resourceVersion": "1", "resourceVersionMatch": "Nope"}, 422, 'Unsupported value: "Nope"'),
        ({"resourceVersion": "abc"}, 400, "invalid resource version"),
        ({"continue": "not-a-token", "limit": "2"}, 400, "continue key is not valid"),
        ({"labelSelector": "a in"}, 400, "unable to parse requirement: found '' expected: '('"),
        ({"labelSelector": "a=b c"}, 400, "found 'c', expected: ',' or 'end of string'"),
        ({"fieldSelector": "spec.html=x"}, 400, "field label not supported: spec.html"),
        ({"limit": "many"}, 400, "invalid syntax"),
    ],
    ids=str,
)
async def test_list_that_makes_no_sense_is_refused(
    api: Api, sites: str, query: dict[str, str], status: int, words: str
) -> None:
    (await api.request("GET", sites, query=query)).check(status, says=words)


async def test_continue_and_version_together_are_refused(api: Api, sites: str) -> None:
    await fill(api, sites, 3)
    token = (await api.get(sites, limit="1")).meta["continue"]
    (await api.get(sites, limit="1", continue_=token, resourceVersion="5")).check(
        400, message="specifying resource version is not allowed when using continue"
    )


async def test_field_selectors_know_name_and_namespace(api: Api, sites: str, namespace: str) -> None:
    await fill(api, sites, 3)
    one = (await api.get(sites, fieldSelector="metadata.name=s-01")).check(200)
    assert one.names == ["s-01"]
    others = (await api.get(sites, fieldSelector="metadata.name!=s-01")).check(200)
    assert others.names == ["s-00", "s-02"]
    everywhere = await api.get(
        "/apis/example.com/v1/websites", fieldSelector=f"metadata.namespace={namespace},metadata.name=s-02"
    )
    assert everywhere.check(200).names == ["s-02"]


async def test_metadata_only_list_carries_no_spec(api: Api, sites: str) -> None:
    await fill(api, sites, 3)
    listed = (await api.get(sites, accept=PARTIAL_LIST, limit="2")).check(200)
    assert (listed.body["kind"], listed.body["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert listed.meta["continue"]
    assert listed.names == ["s-00", "s-01"]
    assert all("spec" not in item for item in listed.body["items"])
    assert listed.body["items"][0]["metadata"]["labels"] == {"even": "true"}


async def test_metadata_of_one_object(api: Api, sites: str) -> None:
    created = await api.post(sites, site("a"))
    found = (await api.get(f"{sites}/a", accept=PARTIAL)).check(200)
    assert (found.body["kind"], found.meta["uid"]) == ("PartialObjectMetadata", created.meta["uid"])
    assert "spec" not in found.body


async def test_accept_may_offer_alternatives(api: Api, sites: str) -> None:
    await fill(api, sites, 1)
    listed = (await api.get(sites, accept=f"{PARTIAL_LIST},application/json")).check(200)
    assert listed.body["kind"] == "PartialObjectMetadataList"
    anything = (await api.get(sites, accept="*/*")).check(200)
    assert anything.body["kind"] == "WebsiteList"


@pytest.mark.parametrize("accept", ["text/plain", "application/json;as=Nonsense;g=meta.k8s.io;v=v1"])
async def test_form_that_nobody_can_give_is_406(api: Api, sites: str, accept: str) -> None:
    (await api.get(sites, accept=accept)).check(406, reason="NotAcceptable")


async def test_table_has_the_columns_of_the_definition(api: Api, sites: str) -> None:
    await api.post(sites, site("a", html="<b>"))
    table = (await api.get(sites, accept=TABLE)).check(200)
    assert (table.body["kind"], table.body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [column["name"] for column in table.body["columnDefinitions"]] == ["Name", "Html", "Age"]
    (row,) = table.body["rows"]
    assert row["cells"][:2] == ["a", "<b>"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "a"


@pytest.mark.parametrize(
    ("path", "columns"),
    [
        ("/api/v1/configmaps", ["Name", "Data", "Age"]),
        ("/api/v1/secrets", ["Name", "Type", "Data", "Age"]),
        ("/api/v1/namespaces", ["Name", "Status", "Age"]),
        ("/apis/coordination.k8s.io/v1/leases", ["Name", "Holder", "Age"]),
    ],
)
async def test_tables_of_core_resources(api: Api, path: str, columns: list[str]) -> None:
    table = (await api.get(path, accept=TABLE, limit="1")).check(200)
    assert [column["name"] for column in table.body["columnDefinitions"]] == columns


async def test_long_list_is_compressed_when_asked_for(api: Api, configmaps: str) -> None:
    for number in range(5):
        await api.post(configmaps, configmap(f"big-{number}") | {"data": {"k": "x" * 60_000}})
    plain = await api.request("GET", configmaps, headers={"Accept-Encoding": "identity"})
    packed = await api.request("GET", configmaps, headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert packed.body["items"] == plain.body["items"]
