"""Who may write what under the fence, as tables of writes on a real API server (docs/adr/0051).

Every verb and encoding: what a life writes to an object that another one owns is refused, the same to its own is not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, NamedTuple

import pytest

from ringleader.testing.client import MERGE_PATCH, Doc, IndependentClient, RequestFailedError
from tests.chart.guarded import type_warnings
from tests.fence.fenced import (
    CONFIGMAPS,
    DEPLOYMENTS,
    KEYS,
    PODS,
    RING,
    SITES,
    WEBSITES,
    A,
    B,
    Fenced,
    named,
    refused_by_policy,
    website,
)

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

C = "web-2-cccccccc"
_numbers = count()
Write = Callable[[IndependentClient, Doc], Awaitable[object]]


def path(obj: Doc, subresource: str = "") -> str:
    return WEBSITES.path(namespace=SITES, name=obj["metadata"]["name"], subresource=subresource)


def labels(**changed: str | None) -> Doc:
    """A merge patch of labels of the ring: shard, drain, visible."""
    keys = {"shard": KEYS.shard, "drain": KEYS.drain, "visible": KEYS.visible}
    return {"metadata": {"labels": {keys[name]: value for name, value in changed.items()}}}


async def merge(client: IndependentClient, obj: Doc, patch: Doc) -> object:
    return await client.merge(WEBSITES, obj["metadata"]["name"], patch, namespace=SITES)


async def merge_spec(client: IndependentClient, obj: Doc) -> object:
    return await merge(client, obj, {"spec": {"html": "y"}})


async def json_patch(client: IndependentClient, obj: Doc) -> object:
    operations: Any = [{"op": "replace", "path": "/spec/html", "value": "y"}]
    return await client.request(
        "PATCH", path(obj), body=operations, content_type="application/json-patch+json"
    )


async def apply(client: IndependentClient, obj: Doc, **query: str) -> object:
    """With force, and with the label as it is: leaving it out changes nothing that this manager owns."""
    wanted = website(
        obj["metadata"]["name"], label=obj["metadata"].get("labels", {}).get(KEYS.shard, ""), html="y"
    )
    return await client.request(
        "PATCH",
        path(obj),
        query={"fieldManager": "test", "force": "true", **query},
        body=wanted,
        content_type="application/apply-patch+yaml",
    )


async def put(client: IndependentClient, obj: Doc) -> object:
    return await client.request("PUT", path(obj), body={**obj, "spec": {"html": "y"}})


async def patch_status(client: IndependentClient, obj: Doc) -> object:
    return await client.request("PATCH", path(obj, "status"), body={"status": {}}, content_type=MERGE_PATCH)


async def put_status(client: IndependentClient, obj: Doc) -> object:
    return await client.request("PUT", path(obj, "status"), body={**obj, "status": {}})


async def delete(client: IndependentClient, obj: Doc) -> object:
    return await client.delete(WEBSITES, obj["metadata"]["name"], namespace=SITES)  # type: ignore[func-returns-value]


async def delete_collection(client: IndependentClient, obj: Doc) -> object:
    """By a field that this object alone has."""
    query = {"fieldSelector": f"metadata.name={obj['metadata']['name']}"}
    return await client.request("DELETE", WEBSITES.path(namespace=SITES), query=query)


WRITES: list[Write] = [
    merge_spec,
    json_patch,
    apply,
    put,
    patch_status,
    put_status,
    delete,
    delete_collection,
]
each_write = pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)


@each_write
async def test_a_life_writes_its_own_object_only(fenced: Fenced, write: Write) -> None:
    obj = await fenced.site(f"site-{next(_numbers)}")
    assert await refused_by_policy(write(await fenced.by(f"life {B}"), obj))
    assert await fenced.admin.get(WEBSITES, obj["metadata"]["name"], namespace=SITES) == obj
    assert not await refused_by_policy(write(await fenced.by(f"life {A}"), obj))


@each_write
async def test_a_life_writes_no_object_without_an_owner(fenced: Fenced, write: Write) -> None:
    obj = await fenced.site(f"site-{next(_numbers)}", label="")
    assert await refused_by_policy(write(await fenced.by(f"life {A}"), obj))


@each_write
async def test_who_names_no_life_of_the_ring_is_not_fenced(fenced: Fenced, write: Write) -> None:
    for who in ("admin", f"life {B} of another"):
        obj = await fenced.site(f"site-{next(_numbers)}")
        assert not await refused_by_policy(write(await fenced.by(who), obj))


async def test_of_two_lives_that_a_request_names_each_must_be_the_owner(fenced: Fenced) -> None:
    """Were one of them enough, a client's own header would open the fence."""
    obj = await fenced.site("two-lives")
    both = named(f"life {A}")
    header = next(name for name in both if "Extra" in name)
    async with IndependentClient(fenced.plane.kubeconfig, headers=both | {header.lower(): B}) as client:
        assert await refused_by_policy(merge_spec(client, obj))


class Row(NamedTuple):
    text: str
    who: str
    before: tuple[str, str | None]
    """Shard and drain label."""
    patch: Doc
    passes: bool = False


OWN, ASKED, FREE = (A, None), (A, B), ("", None)
ROWS = [
    Row("a life takes another's object", f"life {B}", OWN, labels(shard=B)),
    Row("a life takes an object without owner", f"life {A}", FREE, labels(shard=A)),
    Row("a life takes what it shall get", f"life {B}", ASKED, labels(shard=B, drain=None)),
    Row("a life gives its object up", f"life {A}", OWN, labels(shard=None)),
    Row("a life passes its object on", f"life {A}", OWN, labels(shard=B)),
    Row("a life asks for a handoff", f"life {A}", OWN, labels(drain=B)),
    Row("a life removes the drain label", f"life {A}", ASKED, labels(drain=None)),
    Row("a life shows its object", f"life {A}", OWN, labels(visible=A)),
    Row("a life writes while it is asked", f"life {A}", ASKED, {"spec": {"html": "y"}}, passes=True),
    Row("a shard gives up", f"shard {A}", ASKED, labels(shard=None, drain=None), passes=True),
    Row("a shard passes on", f"shard {A}", ASKED, labels(shard=B, drain=None), passes=True),
    Row("a shard keeps its object", f"shard {A}", (A, A), labels(drain=None), passes=True),
    Row("a shard gives another's object up", f"shard {B}", ASKED, labels(shard=None, drain=None)),
    Row("a shard takes another's object", f"shard {B}", ASKED, labels(shard=B, drain=None)),
    Row("a shard takes an object without owner", f"shard {B}", FREE, labels(shard=B)),
    Row("a shard asks for another's object", f"shard {B}", OWN, labels(drain=B), passes=True),
    Row("a shard asks in another's name", f"shard {B}", OWN, labels(drain=C)),
    Row("a shard asks for an object without owner", f"shard {B}", FREE, labels(drain=B)),
    Row("a shard asks and takes", f"shard {B}", OWN, labels(shard=B, drain=B)),
    Row("a shard that has asked writes", f"shard {B}", ASKED, {"spec": {"html": "y"}}),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.text.replace(" ", "_"))
async def test_whose_labels_who_may_change(fenced: Fenced, row: Row) -> None:
    shard, drain = row.before
    obj = await fenced.site(f"site-{next(_numbers)}", label=shard, drain=drain)
    assert await refused_by_policy(merge(await fenced.by(row.who), obj, row.patch)) is not row.passes


@pytest.mark.parametrize(
    ("who", "label", "drain", "passes"),
    [
        (f"life {A}", A, None, True),
        (f"life {A}", "", None, True),
        (f"life {A}", B, None, False),
        (f"life {A}", A, B, False),
        (f"life {A}", A, A, True),
        (f"shard {A}", A, None, True),
        (f"shard {A}", B, None, False),
    ],
)
async def test_creates_bear_the_own_name_or_none(
    fenced: Fenced, who: str, label: str, drain: str | None, passes: bool
) -> None:
    client = await fenced.by(who)
    obj = website(f"site-{next(_numbers)}", label=label, drain=drain)
    assert await refused_by_policy(client.create(WEBSITES, obj, namespace=SITES)) is not passes
    applied = apply(client, website(f"site-{next(_numbers)}", label=label))
    assert await refused_by_policy(applied) is not (passes or drain is not None)


async def test_what_a_life_creates_is_visible_to_itself_alone(fenced: Fenced) -> None:
    client = await fenced.by(f"life {A}")
    for shown, passes in ((A, True), (B, False)):
        obj = website(f"site-{next(_numbers)}", label=A)
        obj["metadata"]["labels"][KEYS.visible] = shown
        assert await refused_by_policy(client.create(WEBSITES, obj, namespace=SITES)) is not passes


async def test_controlled_kinds_are_fenced_as_mains_are_also_in_a_put_of_any_version(fenced: Fenced) -> None:
    child = {"metadata": {"name": "child", "labels": {KEYS.shard: A}}}
    await fenced.admin.create(CONFIGMAPS, child, namespace=SITES)
    place = CONFIGMAPS.path(namespace=SITES, name="child")
    for life, passes in ((B, False), (A, True)):
        client = await fenced.by(f"life {life}")
        assert await refused_by_policy(client.request("PUT", place, body=child)) is not passes


async def test_no_life_writes_what_shows_no_label(fenced: Fenced) -> None:
    """Scale, eviction and binding: refused for the owner as well."""
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
    deployment = {"selector": {"matchLabels": {"app": "x"}}, "replicas": 1, "template": template}
    meta = {"name": "web", "labels": {KEYS.shard: A}}
    await fenced.admin.create(DEPLOYMENTS, {"metadata": meta, "spec": deployment}, namespace=SITES)
    pod = {"metadata": {**meta, "labels": {**meta["labels"], "app": "x"}}, "spec": template["spec"]}  # type: ignore[dict-item]
    await fenced.admin.create(PODS, pod, namespace=SITES)
    scale = DEPLOYMENTS.path(namespace=SITES, name="web", subresource="scale")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}}
    binding = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "n"}}
    for who, passes in ((f"life {A}", False), (f"life {B}", False), (f"shard {A}", False), ("admin", True)):
        client = await fenced.by(who)
        by_patch = client.request("PATCH", scale, body={"spec": {"replicas": 2}}, content_type=MERGE_PATCH)
        assert await refused_by_policy(by_patch) is not passes
        for name, body in (("binding", binding), ("eviction", eviction)):
            to = PODS.path(namespace=SITES, name="web", subresource=name)
            assert await refused_by_policy(client.request("POST", to, body=body)) is not passes


async def test_the_audit_log_names_the_life_and_the_owner_that_the_policy_saw(fenced: Fenced) -> None:
    obj = await fenced.site("audited")
    await merge_spec(await fenced.by(f"life {A}"), obj)
    with pytest.raises(RequestFailedError):
        await merge_spec(await fenced.by(f"life {B}"), obj)
    found: list[tuple[int, str]] = []
    async with asyncio.timeout(10):
        while len(found) < 2:
            found = [
                (event["responseStatus"]["code"], event["annotations"].get(f"ringleader-fence-{RING}/fence"))
                for event in audited(fenced)
                if event["verb"] == "patch" and event["objectRef"]["name"] == "audited"
            ]
            await asyncio.sleep(0.1)
    assert found == [(200, f"{A} {A}"), (422, f"{B} {A}")]


def audited(fenced: Fenced) -> list[Doc]:
    lines = (fenced.plane.kubeconfig.parent / "audit.log").read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


async def test_the_server_s_type_checker_has_nothing_to_say(fenced: Fenced) -> None:
    assert await type_warnings(fenced.admin) == []
