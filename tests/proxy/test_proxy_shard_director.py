"""What the director of a shard lets pass, with which labels, and what it makes of the server's refusals."""

from __future__ import annotations

import pytest

from kubeio.models import ObjectKey, OwnerReference
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from kubeio.rest.request_info import RequestInfo
from kubeio.shard.lease_validity import LeaseValidity
from proxy.director import Admitted, Write
from proxy.gate import Gate
from proxy.informers import TreeKind
from proxy.protobuf import Controller, ObjectHead
from proxy.refusals import Refusal
from proxy.shard_director import ShardDirector
from tests.kubeio.virtual import LoopClock
from tests.proxy.test_proxy_trees import BEFORE, SHARD, node, trees

pytestmark = pytest.mark.looptime(start=0)
KEYS = RingKeys("web")
DEPLOYMENTS = ApiResource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = ApiResource("apps", "v1", "replicasets", "ReplicaSet")
KINDS = [TreeKind(DEPLOYMENTS, is_main=True), TreeKind(REPLICA_SETS, is_main=False)]
LABELS = {KEYS.shard: SHARD, KEYS.visible: SHARD}


class Server:
    """Objects of other shards."""

    def __init__(self, *taken: str) -> None:
        self.taken = {ObjectKey("ns", name) for name in taken}

    async def is_gone(self, reference: OwnerReference, namespace: str) -> bool:
        return False

    async def is_free(self, name: str, key: ObjectKey) -> bool:
        return key not in self.taken


def director(*taken: str) -> ShardDirector:
    clock = LoopClock()
    gate = Gate(LeaseValidity(duration_s=600, sent_at=clock.now()), Server(*taken), clock=clock)
    gate.trees = trees(node("root"), node("child", of="root"), node("hidden", visible=BEFORE))
    return ShardDirector(gate, KINDS, keys=KEYS, shard=SHARD, newest=lambda _: "")


def write(verb: str, name: str, *, of: str | None = None, resource: str = "replicasets") -> Write:
    """*of*: the controller in the body; None: no body is read."""
    info = RequestInfo(verb, "", "apps", resource, "", "ns", "" if verb == "create" else name)
    controller = Controller("v1", "Any", of, of) if of else None
    return Write(info, None if of is None else ObjectHead("Any", name, "", controller))


async def test_an_apply_creates_as_a_create_does() -> None:
    """Controllers that apply what they control never send a create."""
    assert await director().admit(write("patch", "new", of="root")) == Admitted(LABELS)
    refused = await director().admit(write("patch", "new", of="hidden"))
    assert isinstance(refused, Refusal)
    assert refused.status == 409


async def test_an_apply_to_what_another_shard_has_is_a_conflict() -> None:
    refused = await director("foreign").admit(write("patch", "foreign", of="root"))
    assert isinstance(refused, Refusal)
    assert refused.status == 409


async def test_a_root_that_is_applied_anew_gets_no_label() -> None:
    assert await director().admit(write("patch", "new", of="", resource="deployments")) == Admitted()


@pytest.mark.parametrize("policy", ["ringleader-fence-web", "ringleader-unlabelled-web"])
async def test_a_refusal_of_the_fence_is_a_conflict(policy: str) -> None:
    answer = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request".encode()
    refusal = director().instead_of(write("update", "child"), answer)
    assert refusal is not None
    assert refusal.status == 409


async def test_another_refusal_is_the_controller_s_own_matter() -> None:
    other = b"ValidatingAdmissionPolicy 'ringleader-fence-website' denied request"
    assert director().instead_of(write("update", "child"), other) is None
