"""Snapshots written by hand: a ring, Leases and an election, without a server."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from kubeio.clock import micro_time
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.protocol import RingKeys
from ring import object_key
from ringleader.cluster.managed_fields import DatedMeta
from ringleader.cluster.object_state import ObjectState
from ringleader.cluster.placement import row
from ringleader.cluster.ring import Ring, ring_of
from ringleader.cluster.shards import shards_of
from ringleader.cluster.snapshot import ELECTION_LEASE, Election, Leadership, RingState, Snapshot

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
KEYS = RingKeys("websites")
SITE = "websites.example.com"
MAINS = [
    {
        "group": "example.com",
        "resource": "websites",
        "controlledResources": [{"group": "", "resource": "configmaps"}],
    },
    {"group": "", "resource": "secrets"},
]


def ago(seconds: float) -> str:
    return micro_time(NOW - timedelta(seconds=seconds))


def ring(*, status: Mapping[str, Any] | None = None, deleted: bool = False, **spec: Any) -> Ring:
    """A ring of Websites; *spec* as a person writes it."""
    meta = {"name": "websites", "creationTimestamp": "2026-11-21T11:00:00Z"}
    if deleted:
        meta["deletionTimestamp"] = ago(60)
    spec = {"resources": MAINS[:1], "leaseNamespace": "rings", **spec}
    return ring_of({"metadata": meta, "spec": spec, "status": dict(status or {})})


def condition(kind: str, status: str, reason: str = "", message: str = "") -> dict[str, Any]:
    """A status with one condition."""
    told = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": ago(30),
    }
    return {"conditions": [told]}


def lease(
    shard: str,
    *,
    age_s: float = 2.0,
    holder: str | None = None,
    state: str = "",
    works: str = "",
    marks: Mapping[str, str] | None = None,
) -> Lease:
    """The Lease of a shard that holds and renews it; *marks*: further annotations."""
    annotations = {KEYS.member: shard.rpartition("-")[0], KEYS.protocol: "v1", KEYS.synced: "true"}
    annotations |= {KEYS.resources: works} if works else {}
    labels = {KEYS.ring_label: "websites"} | ({KEYS.state: state} if state else {})
    meta = Meta(name=shard, namespace="rings", labels=labels, annotations={**annotations, **(marks or {})})
    renewed = ago(age_s)
    return Lease(meta, LeaseSpec(shard if holder is None else holder, 15, renewed, renewed, 0))


def leads(holder: str = "sharder-1", *, age_s: float = 2.0) -> Leadership:
    """The election that a sharder of that name won; it leads unless its Lease is old."""
    meta = Meta(name=ELECTION_LEASE, namespace="system")
    found = Lease(meta, LeaseSpec(holder, 15, ago(age_s), ago(age_s), 0))
    return Leadership([Election(found, NOW)])


def snapshot(
    of: Ring | None = None,
    *leases: Lease,
    leadership: Leadership | None = None,
    namespaces: Mapping[str, Mapping[str, str]] | None = None,
    former_holder: str = "",
) -> Snapshot:
    """One ring with these Leases; a sharder leads unless *leadership* says otherwise."""
    election = leads() if leadership is None else leadership
    found = of if of is not None else ring()
    shards = shards_of(found, leases, now=NOW)
    state = RingState(found, shards, former_holder=former_holder, began_at=NOW, read_at=NOW)
    return Snapshot(NOW, [state], election, namespaces)


def site(
    seen: Snapshot,
    labels: Mapping[str, str] | None = None,
    *,
    kind: str = SITE,
    main: str = SITE,
    namespace: str = "sites",
    age_s: float = 60.0,
    **state: Any,
) -> ObjectState:
    """The Website `blog` with these labels in the one ring of *seen*."""
    (of,) = seen.rings
    meta = DatedMeta(
        name="blog", namespace=namespace, labels=dict(labels or {}), creation_timestamp=ago(age_s)
    )
    key = object_key("example.com", namespace, "blog")
    return ObjectState(seen, of, row(of, kind, meta, key, main), meta, **state)
