"""The key of an object is what the sharder hashes, whatever the ring's key is."""

from __future__ import annotations

import pytest

from kubeio.errors import InputError
from kubeio.models import ObjectKey
from kubeio.rest.discovery import Discovery
from ringleader.cluster.reader import ClusterReader
from ringleader.describe.object import Found, read_placed
from ringleader.describe.object_view import describe
from tests.sharder.io.environment import CONFIGMAPS, SECRETS, TREE, WEBSITES, SharderEnvironment


async def asked(env: SharderEnvironment, kind: str) -> Found:
    reader, key = ClusterReader(env.client, timeout_s=10), ObjectKey("default", "one")
    return await read_placed(reader, Discovery(env.client), kind, key, ring_name=None)


async def tree(env: SharderEnvironment) -> None:
    """A site of a tenant, its page, and the page's secret; all called `one`."""
    site = await env.make(WEBSITES, "one", labels={"tenant": "acme"})
    page = await env.make(CONFIGMAPS, "one", above=(WEBSITES, site))
    await env.make(SECRETS, "one", above=(CONFIGMAPS, page))


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
    env: SharderEnvironment, spec: dict[str, object], kind: str, key: str, source: str
) -> None:
    await env.ring(**spec)
    await env.shard("a")
    await tree(env)
    found = await asked(env, kind)
    assert found.state.row.key == key
    assert source in describe(found).key_from
    assert found.state.row.desired_shard == "a-00000001"


async def test_an_object_that_nobody_of_the_ring_controls_is_told(env: SharderEnvironment) -> None:
    await env.ring(key="Owner", resources=[TREE])
    page = await env.make(CONFIGMAPS, "one")
    await env.make(SECRETS, "one", above=(CONFIGMAPS, page))
    with pytest.raises(InputError, match="has no controller"):
        await asked(env, "secret")
