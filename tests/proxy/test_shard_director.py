"""The director of a shard: what is selected and hidden, and which labels a write of the controller gets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from devcluster.embedded import EmbeddedPlane
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock
from kubeio.models import ObjectKey, OwnerReference
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.rest.request_info import request_info
from kubeio.shard.lease_validity import LeaseValidity
from proxy.alias import NAME_LENGTH, Alias
from proxy.companions import Companions
from proxy.director import Admitted, Write
from proxy.gate import Gate
from proxy.kinds import TreeKind
from proxy.locks import EchoLocks
from proxy.protobuf import ObjectHead
from proxy.refusals import Refusal
from proxy.relay import Relay
from proxy.shard_director import ShardDirector
from proxy.trees import Trees
from tests.kubeio.http.wire_server import WireServer
from tests.proxy.relays import LOOPBACK, raw_client
from tests.proxy.test_proxy_trees import SINCE, node

KEYS = RingKeys("web")
SHARD = "web-0-".ljust(NAME_LENGTH, "0")
NEXT = "web-1-".ljust(NAME_LENGTH, "0")
OWN = {KEYS.shard: SHARD, KEYS.visible: SHARD}
LEAF = {KEYS.shard: SHARD, KEYS.visible: NEXT}
"""Of a leaf that came from another shard: nothing makes it visible."""
KINDS = [
    TreeKind(ApiResource("apps", "v1", "deployments", "Deployment"), is_main=True),
    TreeKind(ApiResource("apps", "v1", "replicasets", "ReplicaSet")),
    TreeKind(ApiResource("", "v1", "pods", "Pod"), is_leaf=True),
]
APPS, PODS = "/apis/apps/v1/namespaces/ns", "/api/v1/namespaces/ns/pods"
UPDATES = [
    ("PUT", f"{APPS}/deployments/root"),
    ("PUT", f"{APPS}/replicasets/child"),
    ("PUT", f"{APPS}/replicasets/child/status"),
    ("PATCH", f"{APPS}/replicasets/child"),
    ("PATCH", f"{APPS}/replicasets/child/status"),
    ("PATCH", f"{PODS}/pod/ephemeralcontainers"),
    ("PUT", f"{PODS}/pod/resize"),
]


class Others:
    """Objects of other shards."""

    def __init__(self) -> None:
        self.taken: set[ObjectKey] = set()

    async def is_gone(self, reference: OwnerReference, namespace: str) -> bool:
        return False

    async def is_free(self, name: str, key: ObjectKey) -> bool:
        return key not in self.taken


@pytest.fixture
def others() -> Others:
    return Others()


@pytest.fixture
def trees() -> Trees:
    found = Trees(SHARD, since=SINCE)
    found.put(node("root", visible=SHARD))
    found.put(node("child", of="root", visible=SHARD))
    found.put(node("hidden", visible=NEXT))
    found.put(node("hers", of="hidden", visible=SHARD))
    found.put(replace(node("pod", of="child", visible=NEXT), resource="pods", is_leaf=True))
    return found


@pytest.fixture
def validity() -> LeaseValidity:
    return LeaseValidity(duration_s=3600, sent_at=SystemClock().now())


@pytest.fixture
def gate(trees: Trees, validity: LeaseValidity, others: Others) -> Gate:
    found = Gate(validity, others, clock=SystemClock())
    found.trees = trees
    return found


@pytest.fixture
async def director(gate: Gate, new_plane: EmbeddedPlane) -> AsyncIterator[ShardDirector]:
    async with Client(load_cluster(kubeconfig=str(new_plane.kubeconfig))) as client:
        companions = Companions({"endpoints": KINDS[0]}, gate, client, keys=KEYS, shard=SHARD)
        yield ShardDirector(gate, KINDS, keys=KEYS, shard=SHARD, newest=lambda _: "7", companions=companions)


def below(uid: str, *, kind: str = "Deployment", labels: dict[str, str] | None = None) -> ObjectHead:
    """An object `new` that the one of *uid*, a *kind*, controls."""
    owner = OwnerReference("apps/v1", kind, "any", uid, controller=True)
    return ObjectHead(name="new", controller=owner, labels=labels or {})


async def labels_of(
    director: ShardDirector, method: str, target: str, body: ObjectHead | None = None
) -> object:
    verdict = await director.admit(Write(request_info(method, target), body))
    return verdict.labels if isinstance(verdict, Admitted) else verdict.status


async def test_what_controls_others_is_selected_by_what_is_visible(director: ShardDirector) -> None:
    found = [
        director.selection(request_info("GET", path))
        for path in (f"{APPS}/replicasets", PODS, "/api/v1/nodes")
    ]
    assert [each.terms if each else None for each in found] == [
        f"{KEYS.shard}={SHARD},{KEYS.visible}={SHARD}",
        f"{KEYS.shard}={SHARD}",
        None,
    ]


@pytest.mark.parametrize(
    "target", ["/apis/apps/v1/replicasets", f"{APPS}/replicasets", f"{APPS}/replicasets?watch=1"]
)
async def test_every_informer_of_a_kind_sees_the_same_objects(director: ShardDirector, target: str) -> None:
    """One of all namespaces, one of a namespace: encodings and metadata alone are a matter of headers."""
    assert director.selection(request_info("GET", target)) == director.selection(
        request_info("DELETE", f"{APPS}/replicasets")
    )


async def test_the_end_of_a_deletecollection_is_waited_for(director: ShardDirector, gate: Gate) -> None:
    write = Write(request_info("DELETE", f"{APPS}/replicasets"))
    assert isinstance(await director.admit(write), Admitted)
    director.begin(write)
    waiting = asyncio.create_task(gate.wait_ended())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    director.end(write, 200)
    async with asyncio.timeout(5):
        await waiting


@pytest.mark.parametrize("target", [APPS + "/replicasets", PODS + "/x", PODS + "/x/status"])
async def test_all_that_is_said_of_the_ring_s_objects_has_the_alias(
    director: ShardDirector, target: str
) -> None:
    alias = director.alias(request_info("GET", target))
    assert alias is not None
    assert alias.name == Alias(NEXT, KEYS).name
    assert director.alias(request_info("GET", "/api/v1/namespaces/ns/configmaps")) is None


@pytest.mark.parametrize(("method", "target"), UPDATES)
async def test_an_update_of_whatever_subresource_keeps_the_labels(
    director: ShardDirector, method: str, target: str
) -> None:
    """The API server takes labels from updates of a status, too."""
    assert director.reads_body(request_info(method, target))
    assert await labels_of(director, method, target) == (LEAF if "/pods/" in target else OWN)


async def test_what_a_controller_beside_the_ring_controls_is_a_root(director: ShardDirector) -> None:
    for body in (below("fleet", kind="Fleet"), ObjectHead(name="new")):
        assert await labels_of(director, "POST", f"{APPS}/deployments", body) == {}


async def test_what_is_created_below_an_object_is_another_kind_s(director: ShardDirector) -> None:
    assert not director.reads_body(request_info("POST", f"{PODS}/x/eviction"))
    assert director.reads_body(request_info("POST", PODS))


async def test_a_companion_gets_no_labels(director: ShardDirector) -> None:
    target = "/api/v1/namespaces/ns/endpoints"
    assert director.reads_body(request_info("POST", target))
    assert await labels_of(director, "POST", target, ObjectHead(name="root")) == {}
    assert await labels_of(director, "PUT", f"{target}/hidden") == 409


async def test_an_update_keeps_the_label_that_the_controller_does_not_see(
    director: ShardDirector, trees: Trees
) -> None:
    trees.put(node("root", visible=SHARD, drain=NEXT))
    target = f"{APPS}/deployments/root"
    assert await labels_of(director, "PUT", target) == OWN | {KEYS.drain: NEXT}
    assert await labels_of(director, "PATCH", target) == OWN


@pytest.mark.parametrize(
    ("method", "name", "found"),
    [("PUT", "turned", "4711"), ("PUT", "root", None), ("PATCH", "turned", None), ("POST", "", "0")],
)
async def test_the_turn_stays_and_is_zero_at_birth(
    director: ShardDirector, trees: Trees, method: str, name: str, found: str | None
) -> None:
    """The controller sees an empty one; the guard refuses a change, and shards order owners by it."""
    trees.put(replace(node("turned", visible=SHARD), turn="4711"))
    target = f"{APPS}/deployments/{name}" if name else PODS
    write = Write(request_info(method, target), None if name else below("child"))
    verdict = await director.admit(write)
    assert isinstance(verdict, Admitted)
    assert verdict.annotations == {KEYS.turn: found}


@pytest.mark.parametrize(("uid", "found"), [("child", OWN), ("hers", 409), ("unknown", 409)])
async def test_a_child_is_created_with_the_labels_below_what_is_visible_only(
    director: ShardDirector, uid: str, found: object
) -> None:
    body = below(uid, labels={KEYS.shard: "copied"})
    assert await labels_of(director, "POST", PODS, body) == found


@pytest.mark.parametrize(
    ("labels", "found"),
    [({}, {}), ({KEYS.shard: "copied"}, OWN), (OWN | {KEYS.drain: NEXT}, OWN | {KEYS.drain: SHARD})],
)
async def test_a_root_is_assigned_by_the_sharder_unless_it_copies_the_labels_of_another(
    director: ShardDirector, labels: dict[str, str], found: object
) -> None:
    assert (
        await labels_of(director, "POST", f"{APPS}/deployments", ObjectHead(name="new", labels=labels))
        == found
    )


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("PUT", f"{APPS}/deployments/root/scale"),
        ("POST", f"{PODS}/x/eviction"),
        ("POST", f"{PODS}/x/binding"),
        ("PATCH", f"{APPS}/replicasets/child/scale"),
    ],
)
async def test_what_shows_no_labels_is_forbidden(director: ShardDirector, method: str, target: str) -> None:
    verdict = await director.admit(Write(request_info(method, target)))
    assert isinstance(verdict, Refusal)
    assert verdict.status == 403


async def test_what_stood_in_a_socket_while_the_proxy_was_frozen_is_not_sent(
    director: ShardDirector, validity: LeaseValidity, server: WireServer
) -> None:
    clock, target = SystemClock(), f"{APPS}/replicasets/child"
    relay = Relay(server.cluster(), loopback=LOOPBACK, director=director, locks=EchoLocks(()))
    async with relay.serving() as port, raw_client(port) as client:
        assert (await client.ask("DELETE", target))[0] == 200
        validity.duration_s = 0.3
        validity.renewed(sent_at=clock.now())
        client.send("DELETE", target)
        time.sleep(0.4)  # noqa: ASYNC251 - nothing runs meanwhile
        assert (await client.answer())[0] == 429
    assert len(server.requests) == 1


@pytest.mark.parametrize(("uid", "found"), [("child", OWN), ("hers", 409)])
async def test_an_apply_creates_as_a_create_does(director: ShardDirector, uid: str, found: object) -> None:
    """Controllers that apply what they control never send a create."""
    assert await labels_of(director, "PATCH", f"{PODS}/new", below(uid)) == found


async def test_an_apply_to_what_another_shard_has_is_a_conflict(
    director: ShardDirector, others: Others
) -> None:
    others.taken.add(ObjectKey("ns", "new"))
    assert await labels_of(director, "PATCH", f"{PODS}/new", below("child")) == 409


async def test_a_root_that_is_applied_anew_is_assigned_by_the_sharder(director: ShardDirector) -> None:
    target = f"{APPS}/deployments/new"
    assert await labels_of(director, "PATCH", target, ObjectHead(name="new")) == {}


@pytest.mark.parametrize("policy", ["ringleader-fence-web", "ringleader-unlabelled-web"])
async def test_a_refusal_of_the_fence_is_a_conflict(director: ShardDirector, policy: str) -> None:
    answer = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request".encode()
    refusal = director.instead_of(Write(request_info("PUT", f"{APPS}/replicasets/child")), answer)
    assert refusal is not None
    assert refusal.status == 409


async def test_another_refusal_is_the_controller_s_own_matter(director: ShardDirector) -> None:
    other = b"ValidatingAdmissionPolicy 'ringleader-fence-website' denied request"
    assert director.instead_of(Write(request_info("PUT", f"{APPS}/replicasets/child")), other) is None
