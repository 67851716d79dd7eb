"""What each request of a shard names under `fence: policy`, by the headers that it is sent with."""

from __future__ import annotations

import random
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import msgspec
import pytest

from kubeio.access.cluster import Cluster, parse_server
from kubeio.clock import SystemClock
from kubeio.errors import InputError
from kubeio.http.endpoint import Trust
from kubeio.http.lines import Lines
from kubeio.http.messages import Answer, Call
from kubeio.models import Meta, ObjectKey
from kubeio.patch import JsonPatch, MergePatch
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.rest.impersonation import acting_as
from kubeio.rest.reviews import User
from kubeio.shard.lease_validity import LeaseValidity
from shard_controller.objects.caches import ResourceCache
from shard_controller.process.settings import Fence, Settings
from shard_controller.shard.identities import named
from shard_controller.shard.ownership import ShardOwnership
from shard_controller.shard.writer import FencedWriter

KEYS, ME = RingKeys("websites"), "web-0-aaaaaaaa"
CONFIGMAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
ACCOUNT = User(username="system:serviceaccount:sites:web", groups=["system:serviceaccounts"])
LIFE = "Impersonate-Extra-life.ringleader.dev%2Fwebsites"
URL = "https://api.example.com"
CLUSTER = Cluster(URL, "default", "web", parse_server(URL, field_="server"), Trust(), None)
META = Meta(name="page", namespace="ns", uid="u", resource_version="7", labels={KEYS.shard: ME})


class Recorder:
    """A transport that answers everything with one object, and keeps the calls."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def answer(self, call: Call, timeout_s: float) -> Answer:
        self.calls.append(call)
        metadata = {
            "name": "page",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "8",
            "labels": META.labels,
        }
        return Answer(200, [], msgspec.json.encode({"metadata": metadata}))

    def stream(self, call: Call, timeout_s: float) -> AbstractAsyncContextManager[Lines | Answer]:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""


async def test_writes_to_what_exists_name_the_life_and_what_changes_labels_does_not() -> None:
    recorder, clock = Recorder(), SystemClock()
    client = Client(CLUSTER, transport=recorder)
    validity = LeaseValidity(duration_s=600, sent_at=clock.now())
    writer = FencedWriter(
        named(client, ACCOUNT, keys=KEYS, shard=ME),
        ShardOwnership(KEYS, ME, validity=validity, clock=clock),
        leases=None,
        field_manager="test",
        observers=(),
        spans=None,
        clock=clock,
        rng=random.Random(1),
    )
    kind = ResourceCache(CONFIGMAPS)
    key = ObjectKey("ns", "page")
    await writer.patch(kind, META, JsonPatch().add("/data", {}))
    await writer.patch(kind, META, JsonPatch().add("/status", {}), subresource="status")
    await writer.delete(kind, META)
    await writer.read(kind, key)
    await writer.acknowledge(kind, META, MergePatch({"metadata": {"labels": {KEYS.shard: None}}}))
    await writer.create(kind, {}, key=key, owner_uid="o", is_wanted=lambda: True)
    as_itself = ("Impersonate-User", ACCOUNT.username)
    assert [(call.method, call.headers) for call in recorder.calls] == [
        *[(method, (as_itself, (LIFE, ME))) for method in ("PATCH", "PATCH", "DELETE")],
        *[(method, ()) for method in ("GET", "PATCH", "POST")],
    ]


@pytest.mark.parametrize(
    ("user", "before", "sent"),
    [
        (ACCOUNT, (), [("Impersonate-User", ACCOUNT.username)]),
        (
            User(username="kim", groups=["admins", "system:authenticated"]),
            (),
            [("Impersonate-User", "kim"), ("Impersonate-Group", "admins")],
        ),
        (User(username="kim"), (("Impersonate-User", "kim"),), []),
    ],
    ids=["a ServiceAccount", "a user with groups", "a kubeconfig that impersonates"],
)
async def test_who_is_impersonated(
    user: User, before: tuple[tuple[str, str], ...], sent: list[tuple[str, str]]
) -> None:
    """The server gives a ServiceAccount its groups; a kubeconfig's own headers go with each request anyway."""
    recorder = Recorder()
    client = Client(replace(CLUSTER, impersonation=before), transport=recorder)
    await acting_as(user, client, extra=KEYS.life_extra, value=ME).request("GET", "/version")
    assert list(recorder.calls[0].headers) == [*sent, (LIFE, ME)]


def test_a_fence_that_is_none_is_refused_and_a_word_is_as_good_as_the_value() -> None:
    assert Settings(fence="policy").fence == Fence.POLICY  # type: ignore[arg-type] # as `sc.run` may be called
    with pytest.raises(InputError, match="--fence: 'webhook' is no fence; use one of: tests, policy"):
        Settings(fence="webhook")  # type: ignore[arg-type]
