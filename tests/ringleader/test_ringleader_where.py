"""`ringleader where` hashes what the sharder hashes, whatever the ring's key is."""

from __future__ import annotations

import pytest

from kubeio.errors import InputError
from kubeio.models import ObjectKey
from kubeio.rest.discovery import Discovery
from ringleader.inspect.cluster.reading import read_rings
from ringleader.inspect.where.many import ring_rows
from ringleader.inspect.where.one import Placement, find
from tests.sharder.io.ground import CONFIGMAPS, KEYS, SECRETS, WEBSITES, Ground
from tests.sharder.io.test_sharder_placing import TREE


async def asked(ground: Ground, kind: str) -> Placement:
    return await find(ground.client, kind, ObjectKey("default", "one"), ring_name=None, timeout_s=10)


async def tree(ground: Ground) -> None:
    """A site of a tenant, its page, and the page's secret; all called `one`."""
    site = await ground.make(WEBSITES, "one", labels={"tenant": "acme"})
    page = await ground.make(CONFIGMAPS, "one", above=(WEBSITES, site))
    await ground.make(SECRETS, "one", above=(CONFIGMAPS, page))


@pytest.mark.parametrize(
    ("spec", "kind", "key", "source"),
    [
        ({}, "website", "example.com_default_one", "of the object itself"),
        ({}, "configmap", "example.com_default_one", "of its controller, Website one"),
        ({"key": "Namespace"}, "website", "_default_", "its namespace"),
        ({"key": "Namespace"}, "configmap", "_default_", "as its controller"),
        ({"key": "Label", "keyLabel": "tenant"}, "website", "=acme", "label tenant"),
        ({"key": "Label", "keyLabel": "tenant"}, "configmap", "=acme", "label tenant of its controller"),
        ({"key": "Label", "keyLabel": "team"}, "website", "example.com_default_one", "it has no label team"),
        ({"key": "Owner", "resources": [TREE]}, "secret", "example.com_default_one", "root owner"),
    ],
)
async def test_the_key_is_the_sharder_s(
    ground: Ground, spec: dict[str, object], kind: str, key: str, source: str
) -> None:
    await ground.ring(**spec)
    await ground.shard("a")
    await tree(ground)
    placement = await asked(ground, kind)
    assert placement.key == key
    assert source in placement.key_from
    assert placement.desired_shard == "a-00000001"


async def test_an_object_that_nobody_of_the_ring_controls_is_told(ground: Ground) -> None:
    await ground.ring(key="Owner", resources=[TREE])
    page = await ground.make(CONFIGMAPS, "one")
    await ground.make(SECRETS, "one", above=(CONFIGMAPS, page))
    with pytest.raises(InputError, match="has no controller"):
        await asked(ground, "secret")


async def test_of_many_objects_one_whose_owner_does_not_watch_its_kind_is_not_placed(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a", works="websites.example.com")
    mine = {KEYS.shard: "a-00000001"}
    await ground.page(await ground.site("one", labels=mine), labels=mine)
    (ring,) = await read_rings(ground.client, timeout_s=5)
    pages = ring_rows(
        ground.client, Discovery(ground.client), ring, namespace="", controlled=True, timeout_s=5
    )
    placed = {row.resource: row.is_placed async for rows in pages for row in rows}
    assert placed == {"websites.example.com": True, "configmaps": False}
