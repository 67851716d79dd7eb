"""What comes from tenants, at random, into the code that reads it: nothing but declared errors comes out.

Sixty inputs each in the everyday suite; `make fuzz` tries RINGLEADER_FUZZ of them (5,000), then runs `scripts/fuzz.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubeio.decoding import UNREADABLE, object_from
from kubeio.errors import ApiError, Unreachable
from kubeio.labels import RingKeys
from kubeio.leases.lease import decode_lease
from kubeio.models import Lease, LeaseSpec, Meta, OwnerReference
from kubeio.resource import Resource
from kubeio.rest.answers import Unexpected, decode, decode_page
from kubeio.watches.events import Changed, Removed, decode_line
from kubeio.watches.forms import COMPRESSED, PLAIN, RAW
from kubeio.watches.store import Store
from shard_controller.declared import Resource as Declared
from shard_controller.fence import ShardFence
from sharder.membership.lives import read_lease
from sharder.membership.membership import Membership
from sharder.planning.keys import RingKinds
from sharder.ringspec.spec import GroupResource, KeyKind, RingResource
from tests.sharder.pure.story import make_spec

EXAMPLES = int(os.environ.get("RINGLEADER_FUZZ", "60"))
fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
KEYS = RingKeys("r")
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
            ShardFence(KEYS, "a-1").token(found.meta)
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
        members.decide(at=at)
        members.view(at=at)
        members.next_deadline(at=at)


SITES, PAGES = (
    Resource("example.com", "v1", "websites", "Website"),
    Resource("", "v1", "configmaps", "ConfigMap"),
)


@fuzzed
@given(metas, st.sampled_from(KeyKind), texts)
def test_no_labels_and_no_owner_reference_bring_the_roles_down(meta: Meta, key: KeyKind, label: str) -> None:
    sites, pages = (GroupResource(kind.group, kind.plural) for kind in (SITES, PAGES))
    spec = make_spec(resources=(RingResource(sites, (pages,)),), key=key, key_label=label)
    kinds = RingKinds(spec, {sites: SITES, pages: PAGES})
    for kind in (SITES, PAGES):
        kinds.role(kind, meta)
