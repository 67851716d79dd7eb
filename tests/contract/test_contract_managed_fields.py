"""managedFields: who wrote which field, by create, update, patch and apply."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.api import CORE, Answer, Api
from tests.contract.definitions import site

pytestmark = pytest.mark.asyncio(loop_scope="session")
Doc = dict[str, Any]
SPEC: Doc = {".": {}, "f:html": {}, "f:theme": {}}
"""The theme has a default."""


def written(answer: Answer) -> dict[str, Doc]:
    """The fields of each entry, by manager; an entry of a subresource is `manager/subresource`."""
    entries = answer.meta.get("managedFields") or []
    assert all(entry["fieldsType"] == "FieldsV1" and entry["time"] for entry in entries)
    names = ["/".join(filter(None, (each["manager"], each.get("subresource")))) for each in entries]
    assert len(set(names)) == len(names), names
    return {name: entry["fieldsV1"] for name, entry in zip(names, entries, strict=True)}


async def test_create_is_an_update_entry_with_every_field(api: Api, sites: str) -> None:
    body = site("a", html="x", labels={"team": "web"})
    created = (await api.post(sites, body, fieldManager="ann")).check(201)
    (entry,) = created.meta["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("ann", "Update")
    assert (entry["apiVersion"], entry["time"]) == ("example.com/v1", created.meta["creationTimestamp"])
    assert "subresource" not in entry
    labels: Doc = {"f:labels": {".": {}, "f:team": {}}}
    assert entry["fieldsV1"] == {"f:metadata": labels, "f:spec": SPEC}
    assert (await api.get(f"{sites}/a")).meta["managedFields"] == [entry]


async def test_without_a_field_manager_the_user_agent_is_it(api: Api, sites: str) -> None:
    headers = {"User-Agent": "robot/1.2 (linux) x/3"}
    created = await api.request("POST", sites, site("a"), headers=headers)
    assert list(written(created.check(201))) == ["robot"]


async def test_a_field_goes_to_its_last_writer(api: Api, sites: str) -> None:
    body = site("a", html="x", labels={"team": "web", "tier": "1"})
    await api.post(sites, body, fieldManager="ann")
    patch = {"metadata": {"labels": {"team": "ops", "new": "1"}}}
    patched = (await api.merge(f"{sites}/a", patch, fieldManager="ben")).check(200)
    assert written(patched) == {
        "ann": {"f:metadata": {"f:labels": {".": {}, "f:tier": {}}}, "f:spec": SPEC},
        "ben": {"f:metadata": {"f:labels": {"f:new": {}, "f:team": {}}}},
    }


async def test_a_removed_field_is_nobodys(api: Api, sites: str) -> None:
    await api.post(sites, site("a", html="x", labels={"team": "web"}), fieldManager="ann")
    remove: dict[str, object] = {"op": "remove", "path": "/metadata/labels/team"}
    patched = (await api.json_patch(f"{sites}/a", remove, fieldManager="ben")).check(200)
    assert "f:team" not in str(written(patched))
    assert "ben" not in written(patched)


async def test_update_that_changes_nothing_leaves_the_entries(api: Api, sites: str) -> None:
    created = await api.post(sites, site("a", labels={"team": "web"}), fieldManager="ann")
    again = await api.put(f"{sites}/a", created.body, fieldManager="ben")
    assert (again.version, again.meta["managedFields"]) == (created.version, created.meta["managedFields"])


async def test_status_has_an_entry_of_its_own(api: Api, sites: str) -> None:
    await api.post(sites, site("a"), fieldManager="ann")
    for message in ("one", "two"):
        patch = {"status": {"message": message}}
        answer = (await api.merge(f"{sites}/a/status", patch, fieldManager="ann")).check(200)
    assert written(answer)["ann/status"] == {"f:status": {".": {}, "f:message": {}}}
    assert list(written(answer)) == ["ann", "ann/status"]


async def test_list_is_one_field_or_its_items(api: Api, configmaps: str) -> None:
    """Whoever reads it for finalizers finds the field either way."""
    body = {"metadata": {"name": "a", "finalizers": ["example.com/x"]}}
    created = (await api.post(configmaps, body, fieldManager="ann")).check(201)
    assert "f:finalizers" in written(created)["ann"]["f:metadata"]
    await api.merge(f"{configmaps}/a", {"metadata": {"finalizers": None}})


async def test_builtin_kinds(api: Api, configmaps: str, secrets_: str, leases: str, namespace: str) -> None:
    async def fields(path: str, body: Doc) -> Doc:
        named: Doc = {"metadata": {"generateName": "a-"}} | body
        return written((await api.post(path, named, fieldManager="ann")).check(201))["ann"]

    meta: Doc = {"f:metadata": {"f:generateName": {}}}
    assert await fields(configmaps, {"data": {"k": "v"}}) == meta | {"f:data": {".": {}, "f:k": {}}}
    secret = await fields(secrets_, {"stringData": {"k": "v"}})
    assert secret == meta | {"f:data": {".": {}, "f:k": {}}, "f:type": {}}
    lease = await fields(leases, {"spec": {"holderIdentity": "me"}})
    assert lease == meta | {"f:spec": {"f:holderIdentity": {}}}
    label: Doc = {"f:labels": {".": {}, "f:kubernetes.io/metadata.name": {}}}
    body = {"metadata": {"name": f"{namespace}-other"}}
    assert await fields(f"{CORE}/namespaces", body) == {"f:metadata": label}


async def test_entries_can_be_reset(api: Api, sites: str) -> None:
    await api.post(sites, site("a"), fieldManager="ann")
    answer = await api.merge(f"{sites}/a", {"metadata": {"managedFields": [{}]}}, fieldManager="ben")
    assert written(answer.check(200)) == {}


async def test_entries_that_a_writer_sends_are_taken(api: Api, sites: str) -> None:
    """So kubectl hands the fields of `kubectl apply` to `kubectl apply --server-side`."""
    created = await api.post(sites, site("a"), fieldManager="ann")
    entry = created.meta["managedFields"][0] | {"manager": "ben"}
    rename: dict[str, object] = {"op": "replace", "path": "/metadata/managedFields", "value": [entry]}
    assert list(written((await api.json_patch(f"{sites}/a", rename)).check(200))) == ["ben"]
    assert list(written(await api.merge(f"{sites}/a", {"metadata": {"managedFields": []}}))) == ["ben"]


async def test_apply_of_another_value_is_in_conflict_with_the_writer(api: Api, sites: str) -> None:
    await api.post(sites, site("a", html="x", labels={"team": "web"}), fieldManager="ann")
    wanted = site("a", html="y", labels={"team": "web"})
    refused = (await api.apply(f"{sites}/a", wanted, fieldManager="ben")).check(409)
    who = 'conflict with "ann" using example.com/v1'
    assert refused.message == f"Apply failed with 1 conflict: {who}: .spec.html"
    assert refused.body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": who, "field": ".spec.html"}
    ]


async def test_forced_apply_takes_the_field_and_shares_the_equal_one(api: Api, sites: str) -> None:
    await api.post(sites, site("a", html="x", labels={"team": "web"}), fieldManager="ann")
    wanted = site("a", html="y", labels={"team": "web"})
    forced = (await api.apply(f"{sites}/a", wanted, fieldManager="ben", force="true")).check(200)
    assert written(forced) == {
        "ann": {"f:metadata": {"f:labels": {".": {}, "f:team": {}}}, "f:spec": {".": {}, "f:theme": {}}},
        "ben": {"f:metadata": {"f:labels": {"f:team": {}}}, "f:spec": {"f:html": {}}},
    }
    both = {entry["manager"]: entry["operation"] for entry in forced.meta["managedFields"]}
    assert both == {"ann": "Update", "ben": "Apply"}


async def test_conflicts_with_several_are_listed_by_manager(api: Api, sites: str) -> None:
    await api.apply(f"{sites}/a", site("a", html="x", labels={"team": "web"}), fieldManager="ann")
    other = site("a", html="y", labels={"team": "ops"})
    refused = (await api.apply(f"{sites}/a", other, fieldManager="ben")).check(409)
    listed = 'conflicts with "ann":\n- .metadata.labels.team\n- .spec.html'
    assert refused.message == f"Apply failed with 2 conflicts: {listed}"
