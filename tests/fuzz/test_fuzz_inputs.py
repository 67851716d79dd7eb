"""What comes from tenants, at random, into the code that reads it: nothing but declared errors comes out.

Sixty inputs each in the everyday suite; `make fuzz` tries RINGLEADER_FUZZ of them (5,000), then runs `scripts/fuzz.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Iterable
from typing import Any, cast

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubeio.clock import ManualClock
from kubeio.decoding import UNREADABLE, object_from
from kubeio.errors import ApiError, NotFound, Unreachable
from kubeio.leases.lease import decode_lease
from kubeio.models import GroupResource, HasMeta, Lease, LeaseSpec, Meta, OwnerReference
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from kubeio.rest.answers import Unexpected, decode, decode_page
from kubeio.rest.client import Client
from kubeio.shard.lease_validity import LeaseValidity
from kubeio.watches.storage import COMPRESSED, PLAIN, RAW
from kubeio.watches.store import Store
from kubeio.watches.watch_events import Changed, Removed, decode_line
from shard_controller.declare.resource import Resource as Declared
from shard_controller.shard.ownership import ShardOwnership
from sharder.admission.review import BadReview, read_review
from sharder.membership.membership import Membership
from sharder.membership.shards import ShardState, read_lease
from sharder.membership.view import AssignmentHold, OwnerState, View, WaitReason
from sharder.planning.controllers import read_controller
from sharder.planning.decisions import Assign, Drain, NeedController, Nothing, ReportUnknown, Strip, Wait
from sharder.planning.keys import Controlled, RingKinds
from sharder.planning.patches import patch_of
from sharder.planning.planner import Subject, Terms, may_be_left_behind, plan
from sharder.ringspec.spec import KeyKind, RingResource
from tests.sharder.pure.lease_simulation import make_spec
from tests.sharder.pure.views import make_view

EXAMPLES = int(os.environ.get("RINGLEADER_FUZZ", "60"))
fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
KEYS = RingKeys("r")
OWNERSHIP = ShardOwnership(KEYS, "a-1", validity=LeaseValidity(duration_s=15, sent_at=0), clock=ManualClock())
WORDS = [
    *(
        "metadata",
        "name",
        "namespace",
        "uid",
        "labels",
        "annotations",
        "ownerReferences",
        "managedFields",
        "items",
    ),
    *(
        "resourceVersion",
        "object",
        "type",
        "spec",
        "status",
        "controller",
        "kind",
        "apiVersion",
        "a/b",
        "..",
        "",
    ),
    *(
        KEYS.shard,
        KEYS.drain,
        KEYS.turn,
        "ADDED",
        "DELETED",
        "BOOKMARK",
        "ERROR",
        "Website",
        "1",
        "-1",
        "9" * 30,
        "٣",
    ),
]
REVIEW = (
    b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",'
    b'"request":{"uid":"u","operation":"CREATE","resource":{"resource":"configmaps"},"object":%b}}'
)
texts = st.sampled_from(WORDS) | st.text(max_size=20)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(width=32) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=30,
)
depths = st.sampled_from([0, 0, 0, 5, sys.getrecursionlimit() + 100])
maps = st.dictionaries(texts, texts, max_size=6)


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """The JSON of something like an object, some of it deep, torn or no JSON at all."""
    fields: dict[str, Any] = draw(st.dictionaries(texts, values, max_size=4))
    if draw(st.booleans()):
        fields["metadata"] = {
            **draw(st.dictionaries(texts, values, max_size=4)),
            "labels": draw(maps | values),
        }
    raw = json.dumps(fields, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    if depth := draw(depths):
        opening, closing = draw(st.sampled_from([(b"[", b"]"), (b'{"a":', b"}")]))
        name = json.dumps(draw(texts)).encode("utf-8", "surrogatepass")
        raw = b"{%b:%b1%b,%b" % (name, opening * depth, closing * depth, raw[1:] if fields else b'"z":1}')
    cut = draw(st.integers(0, len(raw))) if draw(st.integers(0, 5)) == 0 else len(raw)
    return raw[:cut]


metas = st.builds(
    Meta,
    name=texts,
    namespace=texts,
    uid=texts,
    resource_version=st.integers(0, 2**63).map(str),
    creation_timestamp=st.none() | texts,
    deletion_timestamp=st.none() | texts,
    labels=maps,
    annotations=maps,
    owner_references=st.lists(
        st.builds(
            OwnerReference, api_version=texts, kind=texts, name=texts, uid=texts, controller=st.booleans()
        ),
        max_size=3,
    ),
)
seconds = st.none() | st.integers(-5, 2**31)
instants = st.none() | texts | st.just("2026-01-01T00:00:00.000000Z")
specs = st.builds(
    LeaseSpec,
    holder_identity=st.none() | texts,
    lease_duration_seconds=seconds,
    acquire_time=instants,
    renew_time=instants,
    lease_transitions=seconds,
)
MARKS = ("member", "weight", "protocol", "contested", "duration-seconds", "resources", "synced", "hold")
lease_marks = st.dictionaries(
    st.sampled_from([f"ringleader.dev/{word}" for word in MARKS]) | texts, texts, max_size=6
)


@fuzzed
@given(documents(), documents())
def test_no_json_brings_a_reader_of_objects_down(raw: bytes, other: bytes) -> None:
    with contextlib.suppress(*UNREADABLE):
        object_from(raw)
    with contextlib.suppress(Unexpected):
        decode(raw, Meta)
    for body in (raw, b'{"metadata":{"resourceVersion":"1"},"items":[%b,%b]}' % (raw, other)):
        with contextlib.suppress(Unexpected):
            decode_page(body)
    with contextlib.suppress(BadReview):
        read_review(REVIEW % raw).may_bring(KEYS)
    for said in (b"ADDED", b"MODIFIED", b"DELETED", b"BOOKMARK", b"ERROR", b"x"):
        for line in (
            b'{"type":"%b","object":%b}' % (said, raw),
            b'{"object":%b, "type":"%b"}' % (raw, said),
            raw,
        ):
            with contextlib.suppress(ApiError, Unreachable):
                decode_line(line, "WATCH")


@fuzzed
@given(st.lists(documents(), max_size=5), st.sampled_from([PLAIN, RAW, COMPRESSED]))
def test_no_object_brings_a_store_or_a_model_down(raws: list[bytes], form: Any) -> None:
    class Model(msgspec.Struct):
        spec: dict[str, str] = {}

    resource = Declared("websites.example.com/v1", Model)
    store = Store(form, indexes={"x": lambda raw: resource.decode(raw).spec.values()})
    for raw in raws:
        try:
            event = decode_line(b'{"type":"ADDED","object":%b}' % raw, "WATCH")
        except (ApiError, Unreachable):
            continue
        if isinstance(event, Changed | Removed):
            store.learn(event.object)
            found = store.get(event.object.meta.key)
            assert found is not None
            OWNERSHIP.token(found.meta)
            with contextlib.suppress(msgspec.ValidationError):
                resource.decode(found.raw)
    for key in list(store):
        store.remove(key)
    assert len(store) == 0


@fuzzed
@given(metas, specs, lease_marks, st.data())
def test_no_lease_brings_the_membership_down(
    meta: Meta, spec: LeaseSpec, marks: dict[str, str], data: Any
) -> None:
    ring = make_spec()
    lease = Lease(msgspec.structs.replace(meta, annotations=marks), spec)
    lease = decode_lease(msgspec.json.encode(lease))
    read_lease(lease, keys=ring.keys, max_duration_s=60)
    labels = {**meta.labels, ring.keys.ring_label: ring.keys.ring}
    ours = msgspec.structs.replace(lease, metadata=msgspec.structs.replace(lease.metadata, labels=labels))
    members = Membership(ring)
    members.observe_list([lease, ours], resource_version="5", begun_at=999.0, at=1000.0)
    members.unknown_name_seen(data.draw(texts), at=1000.5)
    for at in (1001.0, 1020.0, 1100.0):
        members.observe_one(lease, at=at)
        members.note_fresh(at=at)
        members.iterate(at=at, acting=True)


SITES, PAGES = (
    ApiResource("example.com", "v1", "websites", "Website"),
    ApiResource("", "v1", "configmaps", "ConfigMap"),
)
HELD, GONE = ("a-1", "b-1"), ("c-dead", "c-contested", "c-expired")
owners = st.sampled_from([*HELD, *GONE, "unknown-1", "foreign-1", ""]) | texts
references = st.builds(
    OwnerReference,
    api_version=st.sampled_from(["example.com/v1", "v1"]) | texts,
    kind=st.sampled_from(["Website", "ConfigMap"]) | texts,
    name=texts,
    uid=st.sampled_from(["u-1", "u-2"]) | texts,
    controller=st.booleans() | st.just(value=True),
)


@st.composite
def ring_objects(draw: st.DrawFn) -> Meta:
    """Metadata with whatever somebody may write of a ring's keys, and controllers of the ring's kinds and of others."""
    meta: Meta = draw(metas)
    ours = draw(st.dictionaries(st.sampled_from([KEYS.shard, KEYS.drain]), owners, max_size=2))
    return msgspec.structs.replace(
        meta,
        uid=draw(st.sampled_from(["u-1", "u-2"]) | texts),
        labels={**meta.labels, **ours},
        owner_references=draw(st.lists(references, max_size=2)),
    )


@st.composite
def ring_views(draw: st.DrawFn) -> View:
    states = st.sampled_from(ShardState)
    lives = {name: draw(states | st.just(ShardState.READY)) for name in (*HELD, *GONE)}
    places = draw(st.dictionaries(st.sampled_from("abc"), st.sampled_from([*HELD, None]), max_size=3))
    holds = st.none() | st.sampled_from(WaitReason).map(AssignmentHold)
    return make_view(lives, places, hold=draw(holds), foreign=frozenset({"foreign-1"}))


class Cluster:
    """Answers GETs with the next of *objects*, 404 at the end."""

    def __init__(self, objects: Iterable[Meta]) -> None:
        self._objects = iter(objects)

    async def get(self, resource: ApiResource, name: str, *, namespace: str, **_: object) -> HasMeta:
        resource.path(namespace=namespace, name=name)
        for meta in self._objects:
            return HasMeta(meta)
        raise NotFound("GET", status=404)


@fuzzed
@given(
    st.sampled_from([SITES, PAGES]),
    ring_objects(),
    st.lists(ring_objects(), max_size=3),
    ring_views(),
    st.builds(Terms, *[st.booleans()] * 4),
    st.sampled_from(KeyKind),
    texts,
)
def test_no_object_brings_the_planner_down_or_leaves_a_live_owner_otherwise_than_by_its_hand(
    kind: ApiResource, meta: Meta, above: list[Meta], view: View, terms: Terms, key: KeyKind, label: str
) -> None:
    sites, pages = (GroupResource(kind.group, kind.plural) for kind in (SITES, PAGES))
    spec = make_spec(resources=(RingResource(sites, (pages,)),), key=key, key_label=label)
    kinds = RingKinds(spec, {sites: SITES, pages: PAGES})
    subject = Subject(meta, kinds.role(kind, meta))
    if isinstance(subject.role, Controlled):
        cluster = cast(Client, Cluster(above))
        seen = asyncio.run(read_controller(cluster, subject.role.controller, kinds=kinds, keys=KEYS))
        may_be_left_behind(subject, view=view, terms=terms, keys=KEYS)
        plan(subject, view=view, terms=terms, keys=KEYS)
        subject = msgspec.structs.replace(subject, controller=seen)
    decision = plan(subject, view=view, terms=terms, keys=KEYS)
    owner = meta.labels.get(KEYS.shard)
    is_kept = owner is not None and view.owner_state(owner) is not OwnerState.DEAD
    match decision:
        case Assign(to=to):
            assert view.holds(to)
            assert not is_kept
        case Drain(to=to):
            assert view.may_receive(to)
        case Strip():
            assert not is_kept
        case Wait() | ReportUnknown() | NeedController() | Nothing():
            return
    patch_of(decision, meta, keys=KEYS).encode()
