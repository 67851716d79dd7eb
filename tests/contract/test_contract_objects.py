"""Contract: the life of an object: creation, names, generations, finalizers, deletion, garbage collection."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import pytest

from tests.contract.api import Api
from tests.contract.definitions import configmap, gadget, site, until_gone

pytestmark = pytest.mark.asyncio(loop_scope="session")

GADGETS = "/apis/example.com/v1/gadgets"
FINALIZER = "example.com/hold"


# -- creation -------------------------------------------------------------------------------------------------


async def test_create_fills_the_metadata(api: Api, sites: str, namespace: str) -> None:
    created = (await api.post(sites, site("a", labels={"x": "1"}))).check(201)
    meta = created.meta
    assert (created.body["kind"], created.body["apiVersion"]) == ("Website", "example.com/v1")
    assert (meta["name"], meta["namespace"], meta["labels"]) == ("a", namespace, {"x": "1"})
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", meta["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["creationTimestamp"])
    assert meta["resourceVersion"].isdigit()
    assert meta["generation"] == 1
    assert (await api.get(f"{sites}/a")).check(200).body == created.body


async def test_what_the_server_owns_in_metadata_is_ignored_at_creation(api: Api, sites: str) -> None:
    body = site("a")
    body["metadata"] |= {"uid": "mine", "generation": 7, "creationTimestamp": "2001-01-01T00:00:00Z"}
    meta = (await api.post(sites, body)).check(201).meta
    assert meta["uid"] != "mine"
    assert meta["generation"] == 1
    assert not meta["creationTimestamp"].startswith("2001")


async def test_core_objects_may_leave_kind_and_version_out(api: Api, configmaps: str) -> None:
    created = (await api.post(configmaps, {"metadata": {"name": "a"}})).check(201)
    assert (created.body["kind"], created.body["apiVersion"]) == ("ConfigMap", "v1")
    assert "generation" not in created.meta


async def test_generate_name_adds_five_characters(api: Api, configmaps: str, sites: str) -> None:
    names = set()
    for _ in range(5):
        created = await api.post(configmaps, {"metadata": {"generateName": "made-"}})
        names.add(created.check(201).meta["name"])
        assert created.meta["generateName"] == "made-"
    assert len(names) == 5
    assert all(re.fullmatch(r"made-[a-z0-9]{5}", name) for name in names)
    body = site("")
    body["metadata"] = {"generateName": "made-"}
    assert re.fullmatch(r"made-[a-z0-9]{5}", (await api.post(sites, body)).check(201).meta["name"])


async def test_generated_name_is_cut_to_63_characters(api: Api, configmaps: str) -> None:
    created = (await api.post(configmaps, {"metadata": {"generateName": "g" * 70}})).check(201)
    assert re.fullmatch(r"g{58}[a-z0-9]{5}", created.meta["name"])


async def test_versions_grow_across_resources(api: Api, sites: str, configmaps: str) -> None:
    answers = [
        await api.post(sites, site("a")),
        await api.post(configmaps, configmap("a")),
        await api.merge(f"{sites}/a", {"spec": {"html": "x"}}),
        await api.merge(f"{configmaps}/a", {"data": {"x": "y"}}),
    ]
    versions = [int(answer.version) for answer in answers]
    assert versions == sorted(set(versions))


async def test_dry_run_create_leaves_nothing(api: Api, sites: str) -> None:
    (await api.post(sites, site("a"), dryRun="All")).check(201)
    (await api.get(f"{sites}/a")).check(404)


async def test_create_in_a_missing_namespace_is_404_naming_it(api: Api) -> None:
    for path, body in (
        ("/api/v1/namespaces/nowhere/configmaps", configmap("a")),
        ("/apis/coordination.k8s.io/v1/namespaces/nowhere/leases", {"metadata": {"name": "a"}}),
        ("/apis/example.com/v1/namespaces/nowhere/websites", site("a")),
    ):
        refused = (await api.post(path, body)).check(404, message='namespaces "nowhere" not found')
        assert refused.body["details"] == {"name": "nowhere", "kind": "namespaces"}


async def test_list_in_a_missing_namespace_is_empty(api: Api) -> None:
    assert (await api.get("/api/v1/namespaces/nowhere/configmaps")).check(200).body["items"] == []


async def test_namespace_of_the_object_must_be_that_of_the_path(api: Api, sites: str) -> None:
    body = site("a")
    body["metadata"]["namespace"] = "other"
    (await api.post(sites, body)).check(
        400, message="the namespace of the provided object does not match the namespace sent on the request"
    )


async def test_create_with_a_version_is_refused(api: Api, configmaps: str) -> None:
    refused = await api.post(configmaps, configmap("a", resourceVersion="1"))
    assert refused.status >= 400
    assert "resourceVersion should not be set on objects to be created" in refused.message


@pytest.mark.parametrize("name", ["Bad_Name", "-a", "a-", "a b", "a..b", "x" * 254])
async def test_bad_name_is_422_on_the_field(api: Api, sites: str, configmaps: str, name: str) -> None:
    for path, body in ((sites, site(name)), (configmaps, configmap(name))):
        refused = (await api.post(path, body)).check(422)
        assert {cause["field"] for cause in refused.body["details"]["causes"]} == {"metadata.name"}


@pytest.mark.parametrize(
    "labels",
    [
        {"ok": "-x"},
        {"ok": "x" * 64},
        {"a b": "x"},
        {"a/b/c": "x"},
        {"x" * 64: "x"},
        {"Up.Per/a": "x"},
        {"/a": "x"},
    ],
    ids=str,
)
async def test_bad_label_is_422_on_the_field(
    api: Api, sites: str, configmaps: str, labels: dict[str, str]
) -> None:
    for path, body in ((sites, site("a", labels=labels)), (configmaps, configmap("a", labels=labels))):
        refused = (await api.post(path, body)).check(422)
        assert {cause["field"] for cause in refused.body["details"]["causes"]} == {"metadata.labels"}


async def test_longest_label_and_empty_value_are_accepted(api: Api, sites: str) -> None:
    labels = {"a.b-c/" + "k" * 63: "v" * 63, "empty": ""}
    assert (await api.post(sites, site("a", labels=labels))).check(201).labels == labels


# -- change ---------------------------------------------------------------------------------------------------


async def test_generation_grows_with_the_spec_only(api: Api, sites: str) -> None:
    await api.post(sites, site("a"))
    labelled = await api.merge(f"{sites}/a", {"metadata": {"labels": {"x": "1"}, "annotations": {"y": "2"}}})
    assert labelled.meta["generation"] == 1
    assert (await api.merge(f"{sites}/a", {"spec": {"html": "x"}})).meta["generation"] == 2
    status = await api.merge(f"{sites}/a/status", {"status": {"message": "done"}})
    assert status.check(200).meta["generation"] == 2


async def test_without_a_status_subresource_status_is_part_of_the_generation(api: Api) -> None:
    name = f"g-{time.time_ns()}"
    assert (await api.post(GADGETS, gadget(name))).check(201).meta["generation"] == 1
    changed = await api.merge(f"{GADGETS}/{name}", {"status": {"message": "x"}})
    assert changed.check(200).meta["generation"] == 2
    assert changed.body["status"] == {"message": "x"}
    assert (await api.merge(f"{GADGETS}/{name}", {"metadata": {"labels": {"x": "1"}}})).meta[
        "generation"
    ] == 2
    (await api.merge(f"{GADGETS}/{name}/status", {"status": {}})).check(404)


async def test_status_is_written_through_its_subresource_only(api: Api, sites: str) -> None:
    created = (await api.post(sites, site("a") | {"status": {"message": "smuggled"}})).check(201)
    assert "status" not in created.body
    through_object = await api.merge(f"{sites}/a", {"status": {"message": "smuggled"}})
    assert "status" not in through_object.check(200).body
    written = await api.merge(
        f"{sites}/a/status",
        {"status": {"message": "true"}, "spec": {"html": "no"}, "metadata": {"labels": {"x": "no"}}},
    )
    assert written.check(200).body["status"] == {"message": "true"}
    assert written.body["spec"]["html"] == created.body["spec"]["html"]
    assert written.labels == {}
    assert (await api.get(f"{sites}/a/status")).check(200).body == written.body


async def test_status_survives_a_put_of_the_object(api: Api, sites: str) -> None:
    await api.post(sites, site("a"))
    written = await api.merge(f"{sites}/a/status", {"status": {"message": "kept"}})
    body = site("a", html="new")
    body["metadata"]["resourceVersion"] = written.version
    assert (await api.put(f"{sites}/a", body)).check(200).body["status"] == {"message": "kept"}


async def test_put_swaps_only_against_the_version_it_names(api: Api, sites: str, configmaps: str) -> None:
    for path, body in ((sites, site("a")), (configmaps, configmap("a"))):
        first: dict[str, Any] = (await api.post(path, body)).body
        first["metadata"]["labels"] = {"turn": "1"}
        second = (await api.put(f"{path}/a", first)).check(200)
        first["metadata"]["labels"] = {"turn": "2"}
        (await api.put(f"{path}/a", first)).check(
            409,
            reason="Conflict",
            says="the object has been modified; please apply your changes to the latest version",
        )
        assert (await api.get(f"{path}/a")).body == second.body


async def test_put_without_a_version_is_422_for_custom_resources_and_overwrites_core_ones(
    api: Api, sites: str, configmaps: str
) -> None:
    await api.post(sites, site("a"))
    (await api.put(f"{sites}/a", site("a"))).check(422, field="metadata.resourceVersion")
    await api.post(configmaps, configmap("a"))
    overwritten = (
        await api.put(f"{configmaps}/a", {"metadata": {"name": "a"}, "data": {"only": "this"}})
    ).check(200)
    assert overwritten.body["data"] == {"only": "this"}


async def test_put_with_a_wrong_uid_is_409(api: Api, sites: str) -> None:
    created = await api.post(sites, site("a"))
    body = created.body
    body["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    (await api.put(f"{sites}/a", body)).check(409, says="Precondition failed: UID in precondition")


async def test_put_never_creates(api: Api, sites: str, configmaps: str) -> None:
    (await api.put(f"{sites}/nobody", site("nobody"))).check(404)
    (await api.put(f"{configmaps}/nobody", configmap("nobody"))).check(404)


async def test_put_under_another_name_is_400(api: Api, sites: str) -> None:
    await api.post(sites, site("a"))
    (await api.put(f"{sites}/a", site("b"))).check(
        400, message="the name of the object (b) does not match the name on the URL (a)"
    )


async def test_write_that_changes_nothing_keeps_the_version(api: Api, sites: str, configmaps: str) -> None:
    for path, body in ((sites, site("a")), (configmaps, configmap("a"))):
        created = await api.post(path, body)
        again = (await api.put(f"{path}/a", created.body)).check(200)
        assert again.version == created.version


async def test_immutable_configmap_stays_as_it_is(api: Api, configmaps: str) -> None:
    await api.post(configmaps, configmap("a") | {"immutable": True})
    (await api.merge(f"{configmaps}/a", {"data": {"k": "w"}})).check(
        422, message='ConfigMap "a" is invalid: data: Forbidden: field is immutable when `immutable` is set'
    )
    (await api.merge(f"{configmaps}/a", {"metadata": {"labels": {"x": "1"}}})).check(200)


# -- secrets --------------------------------------------------------------------------------------------------


async def test_string_data_of_a_secret_becomes_data(api: Api, secrets_: str) -> None:
    body = {"metadata": {"name": "a"}, "stringData": {"plain": "x"}, "data": {"coded": "eQ=="}}
    created = (await api.post(secrets_, body)).check(201)
    assert created.body["data"] == {"plain": "eA==", "coded": "eQ=="}
    assert created.body["type"] == "Opaque"
    assert "stringData" not in created.body
    changed = (await api.merge(f"{secrets_}/a", {"stringData": {"coded": "z"}})).check(200)
    assert changed.body["data"] == {"plain": "eA==", "coded": "eg=="}


async def test_secret_data_must_be_base64(api: Api, secrets_: str) -> None:
    (await api.post(secrets_, {"metadata": {"name": "a"}, "data": {"k": "***"}})).check(
        400, says="illegal base64 data"
    )


async def test_type_of_a_secret_is_immutable(api: Api, secrets_: str) -> None:
    await api.post(secrets_, {"metadata": {"name": "a"}})
    (await api.merge(f"{secrets_}/a", {"type": "other"})).check(422, field="type")


# -- deletion -------------------------------------------------------------------------------------------------


async def test_delete_answers_with_the_uid_and_the_object_is_gone(
    api: Api, sites: str, configmaps: str
) -> None:
    for path, body, details in (
        (sites, site("a"), {"name": "a", "group": "example.com", "kind": "websites"}),
        (configmaps, configmap("a"), {"name": "a", "kind": "configmaps"}),
    ):
        created = await api.post(path, body)
        deleted = (await api.delete(f"{path}/a")).check(200)
        assert deleted.body == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details | {"uid": created.meta["uid"]},
        }
        (await api.get(f"{path}/a")).check(404)
        (await api.delete(f"{path}/a")).check(404)


@pytest.mark.parametrize(
    "preconditions", [{"uid": "00000000-0000-0000-0000-000000000000"}, {"resourceVersion": "1"}], ids=str
)
async def test_delete_with_a_failed_precondition_is_409(
    api: Api, sites: str, configmaps: str, preconditions: dict[str, str]
) -> None:
    for path, body in ((sites, site("a")), (configmaps, configmap("a"))):
        await api.post(path, body)
        (await api.delete(f"{path}/a", {"preconditions": preconditions})).check(
            409, reason="Conflict", says="in the precondition"
        )
        (await api.get(f"{path}/a")).check(200)


async def test_delete_with_true_preconditions_passes(api: Api, sites: str) -> None:
    created = await api.post(sites, site("a"))
    options = {"preconditions": {"uid": created.meta["uid"], "resourceVersion": created.version}}
    (await api.delete(f"{sites}/a", options)).check(200)
    (await api.get(f"{sites}/a")).check(404)


async def test_finalizer_keeps_the_object_until_it_is_removed(api: Api, sites: str) -> None:
    body = site("a")
    body["metadata"]["finalizers"] = [FINALIZER]
    created = await api.post(sites, body)
    async with api.watch(sites, resourceVersion=created.version) as watch:
        deleted = (await api.delete(f"{sites}/a")).check(200)
        assert deleted.body["kind"] == "Website"
        assert deleted.meta["deletionTimestamp"]
        assert deleted.meta["deletionGracePeriodSeconds"] == 0
        assert deleted.meta["generation"] == 2
        again = (await api.delete(f"{sites}/a")).check(200)
        assert again.version == deleted.version
        removed = (await api.merge(f"{sites}/a", {"metadata": {"finalizers": None}})).check(200)
        assert removed.meta["name"] == "a"
        (await api.get(f"{sites}/a")).check(404)
        marked, gone = await watch.next(), await watch.next()
        assert marked["type"] == "MODIFIED"
        assert marked["object"]["metadata"]["deletionTimestamp"] == deleted.meta["deletionTimestamp"]
        assert gone["type"] == "DELETED"
        assert await watch.is_silent()


async def test_object_on_its_way_out_takes_label_patches_but_no_new_finalizers(api: Api, sites: str) -> None:
    body = site("a")
    body["metadata"]["finalizers"] = [FINALIZER]
    await api.post(sites, body)
    await api.delete(f"{sites}/a")
    labelled = await api.json_patch(
        f"{sites}/a", {"op": "add", "path": "/metadata/labels", "value": {"x": "1"}}
    )
    assert labelled.check(200).labels == {"x": "1"}
    assert labelled.meta["deletionTimestamp"]
    refused = await api.merge(f"{sites}/a", {"metadata": {"finalizers": [FINALIZER, "example.com/more"]}})
    assert "no new finalizers can be added if the object is being deleted" in refused.check(422).message


async def test_name_may_be_used_again_and_gets_another_uid(api: Api, sites: str) -> None:
    first = await api.post(sites, site("a"))
    await api.delete(f"{sites}/a")
    second = (await api.post(sites, site("a"))).check(201)
    assert first.meta["uid"] != second.meta["uid"]
    (await api.delete(f"{sites}/a", {"preconditions": {"uid": first.meta["uid"]}})).check(409)


async def test_deletecollection_deletes_what_the_selector_picks(
    api: Api, configmaps: str, sites: str
) -> None:
    for path, make in ((configmaps, configmap), (sites, site)):
        for name, turn in (("a", "1"), ("b", "1"), ("c", "2")):
            await api.post(path, make(name, labels={"turn": turn}))
        deleted = (await api.delete(path, labelSelector="turn=1")).check(200)
        assert deleted.body["kind"].endswith("List")
        assert deleted.names == ["a", "b"]
        left = await api.get(path)
        assert left.names == ["c"]


async def test_foreground_deletion_marks_the_object_first(api: Api, configmaps: str) -> None:
    await api.post(configmaps, configmap("a"))
    deleted = await api.delete(f"{configmaps}/a", {"propagationPolicy": "Foreground"})
    assert deleted.check(200).meta["finalizers"] == ["foregroundDeletion"]
    assert deleted.meta["deletionTimestamp"]
    await until_gone(api, f"{configmaps}/a")


async def test_unknown_propagation_policy_is_422(api: Api, configmaps: str) -> None:
    await api.post(configmaps, configmap("a"))
    (await api.delete(f"{configmaps}/a", {"propagationPolicy": "Nonsense"})).check(
        422, field="propagationPolicy"
    )


def owned_by(owner: Any, name: str, *, kind: str, api_version: str) -> dict[str, Any]:
    reference = {"apiVersion": api_version, "kind": kind, "name": owner["name"], "uid": owner["uid"]}
    return configmap(name, ownerReferences=[reference | {"controller": True}])


async def test_children_go_in_the_background_when_their_owner_goes(api: Api, configmaps: str) -> None:
    parent = await api.post(configmaps, configmap("parent"))
    child = owned_by(parent.meta, "child", kind="ConfigMap", api_version="v1")
    (await api.post(configmaps, child)).check(201)
    (await api.post(configmaps, configmap("other"))).check(201)
    (await api.delete(f"{configmaps}/parent", propagationPolicy="Background")).check(200)
    await until_gone(api, f"{configmaps}/child")
    (await api.get(f"{configmaps}/other")).check(200)


async def test_children_of_a_custom_resource_go_with_it(api: Api, sites: str, configmaps: str) -> None:
    """The garbage collector of a real server learns of a new resource within half a minute."""
    parent = await api.post(sites, site("parent"))
    child = owned_by(parent.meta, "child", kind="Website", api_version="example.com/v1")
    (await api.post(configmaps, child)).check(201)
    (await api.delete(f"{sites}/parent")).check(200)
    await until_gone(api, f"{configmaps}/child")


async def test_orphaned_children_stay(api: Api, configmaps: str) -> None:
    parent = await api.post(configmaps, configmap("parent"))
    child = owned_by(parent.meta, "child", kind="ConfigMap", api_version="v1")
    await api.post(configmaps, child)
    (await api.delete(f"{configmaps}/parent", {"propagationPolicy": "Orphan"})).check(200)
    await until_gone(api, f"{configmaps}/parent")
    left = (await api.get(f"{configmaps}/child")).check(200)
    assert left.meta.get("ownerReferences", []) == []


async def test_owner_reference_without_its_parts_is_422(api: Api, configmaps: str) -> None:
    refused = (await api.post(configmaps, configmap("a", ownerReferences=[{"kind": "X"}]))).check(422)
    fields = {cause["field"] for cause in refused.body["details"]["causes"]}
    assert "metadata.ownerReferences.uid" in fields


# -- namespaces -----------------------------------------------------------------------------------------------


async def test_namespace_that_is_deleted_takes_its_content_along(
    api: Api, configmaps: str, leases: str, namespace: str
) -> None:
    body = configmap("held", finalizers=[FINALIZER])
    (await api.post(configmaps, body)).check(201)
    deleted = (await api.delete(f"/api/v1/namespaces/{namespace}")).check(200)
    assert deleted.body["status"]["phase"] == "Terminating"
    for path, body in ((configmaps, configmap("late")), (leases, {"metadata": {"name": "late"}})):
        (await api.post(path, body)).check(403, reason="Forbidden", says="because it is being terminated")
    (await api.get(f"/api/v1/namespaces/{namespace}")).check(200)
    deadline = time.monotonic() + 60
    while "deletionTimestamp" not in (await api.get(f"{configmaps}/held")).check(200).meta:
        assert time.monotonic() < deadline, "the content of the namespace is not being deleted"
        await asyncio.sleep(0.1)
    (await api.merge(f"{configmaps}/held", {"metadata": {"finalizers": None}})).check(200)
    await until_gone(api, f"/api/v1/namespaces/{namespace}")


async def test_namespace_carries_its_name_as_a_label(api: Api, namespace: str) -> None:
    found = await api.get("/api/v1/namespaces", labelSelector=f"kubernetes.io/metadata.name={namespace}")
    assert found.names == [namespace]
    assert found.body["items"][0]["status"] == {"phase": "Active"}
