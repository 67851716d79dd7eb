"""Companions: what belongs to an object by its name is written while that object is visible, or gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from devcluster.embedded import EmbeddedPlane, Fault
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock
from kubeio.errors import InputError
from kubeio.models import Meta
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from kubeio.rest.request_info import request_info
from kubeio.shard.lease_validity import LeaseValidity
from proxy.companions import Companions, find_companions
from proxy.director import Write
from proxy.existence import Existence
from proxy.gate import Gate
from proxy.kinds import TreeKind
from proxy.protobuf import ObjectHead
from proxy.trees import Trees, node_of

KEYS = RingKeys("pairs")
SHARD, OTHER = "web-0-00000001", "web-1-00000001"
ROOTS = ApiResource("", "v1", "configmaps", "ConfigMap")
KIND = TreeKind(ROOTS, is_main=True)
PATH = "/api/v1/namespaces/default/secrets"


@dataclass
class Stage:
    client: Client
    plane: EmbeddedPlane
    trees: Trees
    companions: Companions

    async def root(self, name: str, shard: str, *, visible: bool = True, is_seen: bool = True) -> None:
        """An object of *shard*, which the informers have seen."""
        labels = {KEYS.shard: shard} | ({KEYS.visible: shard} if visible else {})
        body = {"metadata": {"name": name, "labels": labels}}
        await self.client.create(ROOTS, body, namespace="default", type=bytes)
        if is_seen:
            meta = Meta(name=name, namespace="default", uid=name, labels=labels)
            self.trees.put(node_of(meta, "configmaps", keys=KEYS, is_root=True, is_leaf=False))

    async def status(self, method: str, name: str) -> int:
        """Status of the refusal of a write; 0: it passes."""
        write = Write(request_info(method, f"{PATH}/{name}"))
        if method == "POST":
            write = Write(request_info(method, PATH), ObjectHead(name=name))
        refusal = await self.companions.admit(write)
        return 0 if refusal is None else refusal.status


@pytest.fixture
async def stage(new_plane: EmbeddedPlane) -> AsyncIterator[Stage]:
    async with Client(load_cluster(kubeconfig=str(new_plane.kubeconfig))) as client:
        clock = SystemClock()
        validity = LeaseValidity(duration_s=600, sent_at=clock.now())
        gate = Gate(validity, Existence(client, [KIND.resource]), clock=clock)
        gate.trees = Trees(SHARD, since="")
        kinds = await find_companions(Discovery(client), ["secrets=configmaps"], [KIND])
        yield Stage(client, new_plane, gate.trees, Companions(kinds, gate, client, keys=KEYS, shard=SHARD))


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_what_belongs_to_a_visible_object_is_written(stage: Stage, method: str) -> None:
    await stage.root("mine", SHARD)
    assert await stage.status(method, "mine") == 0


@pytest.mark.parametrize(("method", "status"), [("POST", 409), ("PUT", 409), ("PATCH", 409), ("DELETE", 404)])
async def test_what_belongs_to_another_shard_s_object_is_kept(stage: Stage, method: str, status: int) -> None:
    await stage.root("hers", OTHER, is_seen=False)
    assert await stage.status(method, "hers") == status


@pytest.mark.parametrize("is_seen", [True, False])
async def test_what_belongs_to_a_hidden_object_waits(stage: Stage, is_seen: bool) -> None:
    await stage.root("arrived", SHARD, visible=False, is_seen=is_seen)
    assert await stage.status("DELETE", "arrived") == 409


async def test_what_belonged_to_an_object_that_is_gone_is_cleaned_up(stage: Stage) -> None:
    assert await stage.status("DELETE", "gone") == 0


async def test_without_an_answer_nothing_is_cleaned_up(stage: Stage) -> None:
    await stage.plane.faults.add(Fault(what="error", verb="get", resource="configmaps", code=403))
    assert await stage.status("DELETE", "gone") == 503


async def test_all_of_them_are_not_deleted_at_once(stage: Stage) -> None:
    refusal = await stage.companions.admit(Write(request_info("DELETE", PATH)))
    assert refusal is not None
    assert refusal.status == 403


@pytest.mark.parametrize("pair", ["secrets", "=configmaps", "secrets=pods", "configmaps=configmaps"])
async def test_a_pair_that_is_none_is_bad_input(stage: Stage, pair: str) -> None:
    with pytest.raises(InputError, match="--companions"):
        await find_companions(Discovery(stage.client), [pair], [KIND])
