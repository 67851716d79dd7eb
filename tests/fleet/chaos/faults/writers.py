"""Faults by hand: objects, Leases and the ring."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from functools import partial

from kubeio.protocol import CONTROLLER_RINGS, PROTOCOL_VERSION
from kubeio.resource import LEASES
from ringleader.testing.client import Doc
from ringleader.testing.commands import CONFIGMAPS
from tests.fleet.chaos.faults.table import fault
from tests.fleet.chaos.strike import Strike


@fault(is_alone=True, is_gentle=True)
async def labels_forged(strike: Strike) -> None:
    """Labels are removed, or name no shard, a dead one, or another one in the drain label."""
    fleet, keys = strike.fleet, strike.fleet.spec.keys
    lives = fleet.lives()
    dead = sorted({record.shard for record in fleet.records()} - lives.keys())
    for ref in strike.rng.sample(fleet.objects.refs, min(8, len(fleet.objects.refs))):
        labels: Doc = strike.rng.choice(
            [
                {keys.shard: None},
                {keys.shard: f"nobody-{secrets.token_hex(4)}"},
                {keys.shard: "No.Lease_can-be-called-so"},
                {keys.shard: strike.rng.choice(dead or ["nobody-00000000"])},
                {keys.drain: strike.rng.choice(sorted(lives) or ["nobody-00000000"])},
                {keys.drain: f"nobody-{secrets.token_hex(4)}"},
                {keys.drain: ""},
            ]
        )
        key, value = next(iter(labels.items()))
        strike.struck.append(f"{ref.name} {key.partition('.')[0]}={value}")
        await strike.merge(ref.resource, ref.name, {"metadata": {"labels": labels}}, namespace=ref.namespace)


@fault(is_gentle=True)
async def children_deleted(strike: Strike) -> None:
    """ConfigMaps that objects control are deleted; their owners make them anew."""
    fleet = strike.fleet
    refs = strike.rng.sample(fleet.objects.refs, min(10, len(fleet.objects.refs)))
    for ref in refs:
        deletion = partial(fleet.client.delete, CONFIGMAPS, ref.name, namespace=ref.namespace)
        await strike.insist(deletion, accepts=(404,))

    async def are_back() -> bool:
        names = {
            item["metadata"]["name"]
            for item in await fleet.client.list_all(CONFIGMAPS, namespace=ref.namespace, metadata_only=True)
        }
        return all(ref.name in names for ref in refs)

    await fleet.wait_for(are_back, "deleted ConfigMaps to be back", within_s=180)


@fault()
async def lease_deleted(strike: Strike) -> None:
    """The Lease of a replica that works is deleted."""
    namespace = strike.fleet.spec.lease_namespace
    await strike.fleet.client.delete(LEASES, strike.live_shard(), namespace=namespace)


@fault()
async def lease_edited(strike: Strike) -> None:
    """Duration, renewTime or holder of the Lease of a replica that works is changed."""
    renewed = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    changes: list[Doc] = [
        {"leaseDurationSeconds": strike.lease_s + 1},
        {"renewTime": renewed},
        {"holderIdentity": "a-person"},
    ]
    change = strike.rng.choice(changes)
    strike.struck.append(next(iter(change)))
    namespace = strike.fleet.spec.lease_namespace
    await strike.merge(LEASES, strike.live_shard(), {"spec": change}, namespace=namespace)


@fault(is_gentle=True)
async def lease_forged(strike: Strike) -> None:
    """A Lease of the ring is created that no process renews, of a new member or of one that works."""
    fleet, keys = strike.fleet, strike.fleet.spec.keys
    member = strike.rng.choice(["ghost", *sorted(fleet.members)])
    name = f"{member}-{secrets.token_hex(4)}"
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    strike.struck.append(name)
    lease: Doc = {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {
            "name": name,
            "namespace": fleet.spec.lease_namespace,
            "labels": {keys.ring_label: keys.ring},
            "annotations": {keys.member: member, keys.protocol: PROTOCOL_VERSION, keys.synced: "true"},
        },
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": strike.lease_s,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        },
    }
    await fleet.client.create(LEASES, lease, namespace=fleet.spec.lease_namespace)


@fault(is_gentle=True)
async def ring_edited(strike: Strike) -> None:
    """A member's weight, imbalancePercent, virtualNodes or paused is changed, and changed back."""
    member = strike.rng.choice(sorted(strike.fleet.members))
    edits: list[tuple[Doc, Doc]] = [
        (
            {"members": {member: {"weight": strike.rng.choice((0.3, 3))}}},
            {"members": {member: {"weight": None}}},
        ),
        ({"imbalancePercent": strike.rng.choice((1, 50))}, {"imbalancePercent": None}),
        ({"virtualNodes": strike.rng.choice((10, 300))}, {"virtualNodes": None}),
        ({"paused": True}, {"paused": None}),
    ]
    await _edit_for_a_while(strike, *strike.rng.choice(edits))


@fault(is_gentle=True)
async def member_cordoned(strike: Strike) -> None:
    """A member is cordoned for a while."""
    member = strike.rng.choice(sorted(strike.fleet.members))
    cordoned, undone = ({"members": {member: {"cordoned": value}}} for value in (True, None))
    await _edit_for_a_while(strike, cordoned, undone)


async def _edit_for_a_while(strike: Strike, edit: Doc, undo: Doc) -> None:
    ring = strike.fleet.spec.ring
    strike.struck.append(str(edit))
    try:
        await strike.merge(CONTROLLER_RINGS, ring, {"spec": edit})
        await strike.pause()
    finally:
        await strike.insist(lambda: strike.merge(CONTROLLER_RINGS, ring, {"spec": undo}))
