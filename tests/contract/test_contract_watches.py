"""Contract: what a watch shows, and above all what a selector makes of changes to labels."""

from __future__ import annotations

import pytest

from tests.contract.api import PARTIAL, Api
from tests.contract.definitions import configmap, site

pytestmark = pytest.mark.asyncio(loop_scope="session")

SHARD = "shard.ringleader.dev/r"
DRAIN = "drain.ringleader.dev/r"
SHARD_POINTER = "/metadata/labels/shard.ringleader.dev~1r"
DRAIN_POINTER = "/metadata/labels/drain.ringleader.dev~1r"


async def test_watch_from_a_version_shows_what_came_after_it(api: Api, configmaps: str) -> None:
    first = (await api.post(configmaps, configmap("a"))).check(201)
    second = (await api.post(configmaps, configmap("b"))).check(201)
    async with api.watch(configmaps, resourceVersion=first.version) as watch:
        event = await watch.next()
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "b")
        assert event["object"]["metadata"]["resourceVersion"] == second.version
        await api.merge(f"{configmaps}/a", {"data": {"k": "w"}})
        event = await watch.next()
        assert (event["type"], event["object"]["data"]) == ("MODIFIED", {"k": "w"})
        assert await watch.is_silent()


async def test_watch_without_a_version_begins_with_what_is_there(api: Api, sites: str) -> None:
    for name in ("a", "b"):
        await api.post(sites, site(name))
    async with api.watch(sites) as watch:
        assert {await watch.short(), await watch.short()} == {("ADDED", "a"), ("ADDED", "b")}
        await api.post(sites, site("c"))
        assert await watch.short() == ("ADDED", "c")


async def test_object_that_starts_to_match_appears_as_added(api: Api, sites: str) -> None:
    created = (await api.post(sites, site("a"))).check(201)
    async with api.watch(sites, labelSelector=f"{SHARD}=s1", resourceVersion=created.version) as watch:
        changed = await api.merge(f"{sites}/a", {"metadata": {"labels": {SHARD: "s1"}}})
        event = await watch.next()
        assert event["type"] == "ADDED"
        assert event["object"]["metadata"]["resourceVersion"] == changed.version
        assert event["object"]["metadata"]["labels"] == {SHARD: "s1"}


async def test_object_that_stops_matching_is_deleted_with_old_labels_and_new_version(
    api: Api, sites: str
) -> None:
    created = await api.post(sites, site("a", labels={SHARD: "s1"}, html="old"))
    async with api.watch(sites, labelSelector=f"{SHARD}=s1", resourceVersion=created.version) as watch:
        changed = await api.merge(
            f"{sites}/a", {"metadata": {"labels": {SHARD: "s2"}}, "spec": {"html": "new"}}
        )
        event = await watch.next()
        assert event["type"] == "DELETED"
        assert event["object"]["metadata"]["labels"] == {SHARD: "s1"}
        assert event["object"]["spec"]["html"] == "old"
        assert event["object"]["metadata"]["resourceVersion"] == changed.version


async def test_real_deletion_is_deleted_with_a_new_version(api: Api, sites: str) -> None:
    created = await api.post(sites, site("a", labels={SHARD: "s1"}))
    async with api.watch(sites, labelSelector=f"{SHARD}=s1", resourceVersion=created.version) as watch:
        (await api.delete(f"{sites}/a")).check(200)
        event = await watch.next()
        assert event["type"] == "DELETED"
        assert event["object"]["metadata"]["labels"] == {SHARD: "s1"}
        assert int(event["object"]["metadata"]["resourceVersion"]) > int(created.version)


async def test_changes_outside_the_selection_are_not_shown(api: Api, sites: str) -> None:
    created = await api.post(sites, site("a", labels={SHARD: "s2"}))
    async with api.watch(sites, labelSelector=f"{SHARD}=s1", resourceVersion=created.version) as watch:
        await api.merge(f"{sites}/a", {"spec": {"html": "new"}})
        await api.post(sites, site("b"))
        await api.delete(f"{sites}/a")
        assert await watch.is_silent()


async def test_directed_handoff_is_seen_once_by_each_shard_and_never_as_unowned(api: Api, sites: str) -> None:
    created = await api.post(sites, site("a", labels={SHARD: "s1", DRAIN: "s2"}))
    since = created.version
    async with (
        api.watch(sites, labelSelector=f"{SHARD}=s1", resourceVersion=since) as old,
        api.watch(sites, labelSelector=f"{SHARD}=s2", resourceVersion=since) as new,
        api.watch(sites, labelSelector=f"{SHARD} notin (s1,s2)", resourceVersion=since) as unowned,
        api.watch(sites, labelSelector=DRAIN, resourceVersion=since) as drains,
    ):
        passed = (
            await api.json_patch(
                f"{sites}/a",
                {"op": "test", "path": "/metadata/resourceVersion", "value": since},
                {"op": "replace", "path": SHARD_POINTER, "value": "s2"},
                {"op": "remove", "path": DRAIN_POINTER},
            )
        ).check(200)
        left, came, ended = await old.next(), await new.next(), await drains.next()
        assert (left["type"], left["object"]["metadata"]["labels"]) == ("DELETED", {SHARD: "s1", DRAIN: "s2"})
        assert (came["type"], came["object"]["metadata"]["labels"]) == ("ADDED", {SHARD: "s2"})
        assert ended["type"] == "DELETED"
        versions = {event["object"]["metadata"]["resourceVersion"] for event in (left, came, ended)}
        assert versions == {passed.version}
        assert await unowned.is_silent()


async def test_plain_acknowledgement_shows_the_object_as_unowned(api: Api, sites: str) -> None:
    created = await api.post(sites, site("a", labels={SHARD: "s1", DRAIN: "s2"}))
    async with api.watch(
        sites, labelSelector=f"{SHARD} notin (s1,s2)", resourceVersion=created.version
    ) as unowned:
        (
            await api.json_patch(
                f"{sites}/a",
                {"op": "test", "path": SHARD_POINTER, "value": "s1"},
                {"op": "remove", "path": SHARD_POINTER},
                {"op": "remove", "path": DRAIN_POINTER},
            )
        ).check(200)
        event = await unowned.next()
        assert event["type"] == "ADDED"
        assert event["object"]["metadata"].get("labels", {}) == {}


@pytest.mark.parametrize(
    ("selector", "matching"),
    [
        (f"{SHARD} notin (s1)", {"none", "s2", "empty"}),
        (f"{SHARD} notin (s1,s2)", {"none", "empty"}),
        (f"{SHARD} notin ()", {"none", "s1", "s2"}),
        (f"{SHARD} in ()", {"empty"}),
        (f"{SHARD} in (s1, s2)", {"s1", "s2"}),
        (f"!{SHARD}", {"none"}),
        (SHARD, {"s1", "s2", "empty"}),
        (f"{SHARD}=", {"empty"}),
        (f"{SHARD}==s1", {"s1"}),
        (f"{SHARD}!=s1", {"none", "s2", "empty"}),
        (f"{SHARD},{SHARD}!=s1", {"s2", "empty"}),
        ("", {"none", "s1", "s2", "empty"}),
    ],
)
async def test_selector_picks_the_same_objects_in_lists_and_watches(
    api: Api, sites: str, selector: str, matching: set[str]
) -> None:
    for name, labels in {"none": {}, "s1": {SHARD: "s1"}, "s2": {SHARD: "s2"}, "empty": {SHARD: ""}}.items():
        (await api.post(sites, site(name, labels=labels))).check(201)
    listed = (await api.get(sites, labelSelector=selector)).check(200)
    assert {item["metadata"]["name"] for item in listed.body["items"]} == matching
    async with api.watch(sites, labelSelector=selector) as watch:
        seen = {await watch.short() for _ in matching}
        assert seen == {("ADDED", name) for name in matching}
        assert await watch.is_silent(0.2)


async def test_selector_with_thousands_of_names_is_accepted(api: Api, sites: str) -> None:
    names = ",".join(f"shard-{number:04d}-0a1b2c3d" for number in range(1000))
    await api.post(sites, site("a", labels={SHARD: "shard-0500-0a1b2c3d"}))
    await api.post(sites, site("b"))
    listed = (await api.get(sites, labelSelector=f"{SHARD} notin ({names})")).check(200)
    assert listed.names == ["b"]


async def test_field_selector_on_the_name_follows_one_object(api: Api, sites: str) -> None:
    await api.post(sites, site("a"))
    created = await api.post(sites, site("b"))
    async with api.watch(sites, fieldSelector="metadata.name=b", resourceVersion=created.version) as watch:
        await api.merge(f"{sites}/a", {"spec": {"html": "1"}})
        await api.merge(f"{sites}/b", {"spec": {"html": "2"}})
        assert await watch.short() == ("MODIFIED", "b")


async def test_metadata_only_watch_sends_partial_objects(api: Api, sites: str) -> None:
    created = await api.post(sites, site("a", labels={SHARD: "s1"}))
    async with api.watch(
        sites, accept=PARTIAL, labelSelector=f"{SHARD}=s1", resourceVersion=created.version
    ) as watch:
        await api.merge(f"{sites}/a", {"metadata": {"annotations": {"note": "x"}}})
        changed = await watch.next()
        await api.merge(f"{sites}/a", {"metadata": {"labels": {SHARD: None}}})
        left = await watch.next()
    for event, kind in ((changed, "MODIFIED"), (left, "DELETED")):
        assert event["type"] == kind
        assert event["object"]["kind"] == "PartialObjectMetadata"
        assert event["object"]["apiVersion"] == "meta.k8s.io/v1"
        assert event["object"]["metadata"]["labels"] == {SHARD: "s1"}
        assert "spec" not in event["object"]


async def test_watch_over_all_namespaces_shows_every_namespace(
    api: Api, namespace: str, configmaps: str
) -> None:
    version = (await api.get("/api/v1/configmaps", limit="1")).version
    async with api.watch("/api/v1/configmaps", resourceVersion=version, labelSelector="who=me") as watch:
        await api.post(configmaps, configmap("a", labels={"who": "me"}))
        event = await watch.next()
        assert event["object"]["metadata"]["namespace"] == namespace
        assert event["object"]["kind"] == "ConfigMap"
        assert event["object"]["apiVersion"] == "v1"


async def test_write_that_changes_nothing_makes_no_event(api: Api, sites: str) -> None:
    created = await api.post(sites, site("a"))
    async with api.watch(sites, resourceVersion=created.version) as watch:
        again = (await api.merge(f"{sites}/a", {"spec": {"html": created.body["spec"]["html"]}})).check(200)
        assert again.version == created.version
        assert await watch.is_silent()


async def test_watch_list_ends_its_initial_events_with_an_annotated_bookmark(api: Api, sites: str) -> None:
    for name in ("a", "b"):
        created = await api.post(sites, site(name, labels={SHARD: "s1"}))
    await api.post(sites, site("c"))
    async with api.watch(
        sites,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
        labelSelector=f"{SHARD}=s1",
    ) as watch:
        assert {await watch.short(), await watch.short()} == {("ADDED", "a"), ("ADDED", "b")}
        bookmark = await watch.next()
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["kind"] == "Website"
        assert bookmark["object"]["apiVersion"] == "example.com/v1"
        metadata = bookmark["object"]["metadata"]
        assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(metadata["resourceVersion"]) >= int(created.version)
        await api.merge(f"{sites}/a", {"spec": {"html": "x"}})
        assert await watch.short() == ("MODIFIED", "a")


async def test_watch_list_of_metadata_sends_partial_objects_and_a_partial_bookmark(
    api: Api, sites: str
) -> None:
    await api.post(sites, site("a"))
    async with api.watch(
        sites,
        accept=PARTIAL,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    ) as watch:
        added, bookmark = await watch.next(), await watch.next()
    assert added["object"]["kind"] == "PartialObjectMetadata"
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_watch_list_without_the_match_it_needs_is_refused(api: Api, sites: str) -> None:
    (await api.get(sites, watch="true", sendInitialEvents="true")).check(
        422, says="sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    )


async def test_watch_from_before_the_history_gets_an_expired_error_event(api: Api, sites: str) -> None:
    await api.post(sites, site("a"))
    async with api.watch(sites, resourceVersion="1") as watch:
        assert watch.status == 200
        event = await watch.next()
        assert event["type"] == "ERROR"
        assert event["object"]["kind"] == "Status"
        assert event["object"]["code"] == 410
        assert event["object"]["reason"] == "Expired"
        assert event["object"]["message"].startswith("too old resource version: 1 (")
        with pytest.raises(EOFError):
            await watch.next()


async def test_watch_ends_when_its_time_is_over(api: Api, sites: str) -> None:
    version = (await api.get(sites)).version
    async with api.watch(sites, resourceVersion=version, timeoutSeconds="1") as watch:
        assert await watch.until_end() == []


async def test_bookmark_tells_a_filtered_watch_of_changes_that_it_does_not_show(api: Api, sites: str) -> None:
    """About once a minute, and two seconds before the watch's time is over.

    Nothing newer in the whole resource, no bookmark: silence alone does not mean that a watch is dead.
    """
    version = (await api.get(sites)).version
    async with api.watch(
        sites,
        labelSelector=f"{SHARD}=nobody",
        resourceVersion=version,
        allowWatchBookmarks="true",
        timeoutSeconds="5",
    ) as watch:
        created = (await api.post(sites, site("a"))).check(201)
        events = await watch.until_end()
    assert {event["type"] for event in events} == {"BOOKMARK"}, "one, or another one in the last two seconds"
    assert events[0]["object"]["kind"] == "Website"
    assert events[0]["object"]["metadata"]["resourceVersion"] == created.version


async def test_watch_of_an_unknown_resource_is_not_found(api: Api, namespace: str) -> None:
    (await api.get(f"/apis/example.com/v1/namespaces/{namespace}/nopes", watch="true")).check(404)
