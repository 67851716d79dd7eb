"""The probe of the fence on a real API server: it sees a policy that is missing, not bound, or of other kinds."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from kubeio.access.cluster import load_cluster
from kubeio.fence import BINDINGS, FenceProbe, MissingRight, Verdict, each_server, policies_of
from kubeio.http.endpoint import Proxy
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.rest.impersonation import read_own_account
from kubeio.shard.fence_wait import problem_of
from tests.fence.fenced import CONFIGMAPS, DEPLOYMENTS, KEYS, PODS, RING, SITES, WEBSITES, Fenced, in_force

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

KINDS = [WEBSITES, CONFIGMAPS, DEPLOYMENTS, PODS]
LABELLED, BARE = policies_of(RING)
SECRETS = ApiResource("", "v1", "secrets", "Secret")


@pytest_asyncio.fixture(loop_scope="module")
async def client(fenced: Fenced) -> AsyncIterator[Client]:
    async with Client(load_cluster(kubeconfig=str(fenced.plane.kubeconfig))) as client:
        yield client


async def judged(client: Client, kinds: list[ApiResource] = KINDS) -> list[Verdict]:
    probe = FenceProbe(KEYS, await read_own_account(client), namespaces=[SITES])
    return await probe.judge(client, kinds)


async def test_without_objects_creates_are_tried_and_what_cannot_be_made_is_read(
    fenced: Fenced, client: Client
) -> None:
    """A ConfigMap needs nothing but its name; a Website, a Pod, a Deployment without a spec are refused before."""
    assert [each.found for each in await judged(client)] == ["fenced"] * 8


async def test_a_kind_that_the_policies_do_not_name_is_open(fenced: Fenced, client: Client) -> None:
    await fenced.admin.create(SECRETS, {"metadata": {"name": "theirs"}}, namespace=SITES)
    verdicts = await judged(client, [SECRETS])
    assert [verdict.found for verdict in verdicts] == ["open", "open"]
    assert "install it: ringleader fence websites" in problem_of(verdicts, RING)


@pytest.mark.parametrize("missing", [LABELLED, BARE])
@pytest.mark.parametrize("with_objects", [False, True])
async def test_either_policy_is_missed(
    fenced: Fenced, client: Client, missing: str, with_objects: bool
) -> None:
    """Each looks at half of the objects, so each is probed by itself."""
    if with_objects:
        for number, label in enumerate(("web-0-aaaaaaaa", "")):
            await fenced.admin.create(
                CONFIGMAPS,
                {
                    "metadata": {
                        "name": f"probed-{missing}-{number}",
                        "labels": {KEYS.shard: label} if label else {},
                    }
                },
                namespace=SITES,
            )
    binding = await fenced.admin.get(BINDINGS, missing)
    await fenced.admin.delete(BINDINGS, missing)
    try:
        await once_missed(client, missing)
        assert problem_of(await judged(client), RING).startswith(missing)
    finally:
        del binding["metadata"]["resourceVersion"], binding["metadata"]["uid"]
        await fenced.admin.create(BINDINGS, binding)
        await in_force(fenced)


async def once_missed(client: Client, policy: str) -> None:
    """A server hears of the end of a policy a moment later."""
    async with asyncio.timeout(20):
        while True:
            verdicts = await judged(client, [CONFIGMAPS])
            if [each.policy for each in verdicts if each.found == "open"] == [policy]:
                return
            await asyncio.sleep(0.1)


async def test_without_the_right_to_impersonate_the_account_and_the_extra_are_named(
    fenced: Fenced, tmp_path: Path
) -> None:
    kubeconfig = await fenced.plane.kubeconfig_for("nobody-special", admin=False)
    async with Client(load_cluster(kubeconfig=str(kubeconfig))) as client:
        account = await read_own_account(client)
        with pytest.raises(
            MissingRight, match=r"nobody-special may not impersonate itself .*life\.ringleader\.dev/web"
        ):
            await FenceProbe(KEYS, account).check_rights(client)


async def test_a_kubeconfig_that_impersonates_already_keeps_its_user(fenced: Fenced, tmp_path: Path) -> None:
    config: dict[str, Any] = yaml.safe_load(fenced.plane.kubeconfig.read_text())
    config["users"][0]["user"] |= {"as": "somebody", "as-groups": ["system:masters"]}
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    async with Client(load_cluster(kubeconfig=str(path))) as client:
        account = await read_own_account(client)
        assert account.username == "somebody"
        await FenceProbe(KEYS, account).check_rights(client)
        assert [each.found for each in await judged(client, [CONFIGMAPS])] == ["fenced"] * 2


async def test_each_address_of_a_server_s_name_is_a_server(
    fenced: Fenced, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = load_cluster(kubeconfig=str(fenced.plane.kubeconfig))
    assert await each_server(cluster) == [cluster]
    named = dataclasses.replace(
        cluster, endpoint=dataclasses.replace(cluster.endpoint, host="api.example.com")
    )

    async def found(host: str, port: int, **_: object) -> list[Any]:
        addresses = ("10.0.0.1", "10.0.0.2", "10.0.0.1")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
    servers = await each_server(named)
    assert [each.endpoint.host for each in servers] == ["10.0.0.1", "10.0.0.2"]
    assert {each.trust.server_name for each in servers} == {"api.example.com"}
    behind = dataclasses.replace(named, proxy=Proxy("proxy.example.com", 3128))
    assert await each_server(behind) == [behind]


async def test_a_kind_that_cannot_be_probed_counts_beside_one_that_is_fenced() -> None:
    unknown = Verdict("websites.example.com", LABELLED, "unknown", "spec: Required value")
    bare = Verdict("websites.example.com", BARE, "unknown", "no object is without the label")
    assert problem_of([unknown, bare, Verdict("configmaps", LABELLED, "fenced")], RING) == ""
    said = problem_of([unknown, bare, Verdict("configmaps", BARE, "fenced")], RING)
    assert said == "the fence cannot be probed: websites.example.com: spec: Required value"


async def test_a_refusal_of_another_kind_proves_nothing(fenced: Fenced, client: Client) -> None:
    """A Pod without a spec is refused by its schema. The ring has no policies, and nothing else says so."""
    probe = FenceProbe(RingKeys("absent"), await read_own_account(client), namespaces=[SITES])
    assert [verdict.found for verdict in await probe.judge(client, [PODS])] == ["open", "open"]
