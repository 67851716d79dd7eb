"""From pages of metadata to a tally: whose objects they are, which are in trouble, who wrote them. Pure.

Owns the sorting of one object by its labels and the Leases of the first look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.doctor.seen import (
    MAX_NAMES,
    OTHER_NAMES,
    SAMPLES,
    Group,
    Hand,
    Item,
    RingSeen,
    Sample,
    Tally,
    Trouble,
    Written,
    named,
)
from ringleader.inspect.cluster.writers import is_tool
from sharder.membership.shards import watched_kinds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from kubeio.models import Lease, Meta
    from ringleader.inspect.cluster.rings import Ring


def count(
    tally: Tally,
    items: Iterable[Item],
    *,
    seen: RingSeen,
    namespaces: Mapping[str, Mapping[str, str]] | None,
    since: datetime | None,
) -> None:
    """Add a page to *tally*. *since*: writes before that are of the time before the ring."""
    for item in items:
        meta = item.metadata
        if _belongs(tally, meta, seen, namespaces):
            tally.objects += 1
            _sort(tally, item, seen)
            _note_hands(tally, item, seen.ring, since)


def _belongs(
    tally: Tally, meta: Meta, seen: RingSeen, namespaces: Mapping[str, Mapping[str, str]] | None
) -> bool:
    """Whether the ring distributes this object."""
    if seen.selector is not None and meta.namespace:
        if namespaces is None:  # could not be read: what bears the label belongs for sure
            return seen.ring.keys.shard in meta.labels
        labels = namespaces.get(meta.namespace)
        if labels is None or not seen.selector.matches(labels):
            return False
    if tally.is_main:
        return True
    above = meta.controller
    return above is not None and (above.api_version.rpartition("/")[0], above.kind) in tally.controllers


def _sort(tally: Tally, item: Item, seen: RingSeen) -> None:
    meta, keys = item.metadata, seen.ring.keys
    owner, drain = meta.labels.get(keys.shard, ""), meta.labels.get(keys.drain)
    counted = owner if owner in tally.owners or len(tally.owners) < MAX_NAMES else OTHER_NAMES
    tally.owners[counted] += 1
    tally.one_of.setdefault(counted, named(tally.resource, meta))
    lease = seen.shards[owner].first if owner in seen.shards else None
    trouble = trouble_of(owner, drain, seen.ring, lease, kind=tally.resource.group_resource)
    if trouble is None:
        return
    group = tally.groups.setdefault((trouble, counted), Group())
    group.count += 1
    if len(group.samples) < SAMPLES:
        since = _wrote(item.metadata.managed_fields, keys.drain) if drain is not None else None
        slim = type(meta)(name=meta.name, namespace=meta.namespace, uid=meta.uid, labels=dict(meta.labels))
        group.samples.append(Sample(tally.resource, slim, owner, trouble, drain, since))


def trouble_of(
    owner: str, drain: str | None, ring: Ring, lease: Lease | None, *, kind: str
) -> Trouble | None:
    """What is wrong with an object of *kind* and *owner*, whose Lease is *lease*; one in a handoff is one, too."""
    if not owner:
        return Trouble.UNOWNED
    if lease is None:
        return Trouble.UNKNOWN
    if lease.spec.holder_identity not in ("", None, owner):
        is_contested = ring.keys.contested in lease.metadata.annotations
        return Trouble.CONTESTED if is_contested else Trouble.DEAD
    watched = watched_kinds(lease.metadata.annotations.get(ring.keys.resources, ""))
    if lease.spec.holder_identity == owner and watched is not None and kind not in watched:
        return Trouble.UNWATCHED  # whatever is asked of that owner
    return Trouble.LEAVING if drain is not None else None


def _wrote(entries: Iterable[Written], key: str) -> datetime | None:
    """When the label *key* was written last, if managedFields tell."""
    sign = f'"f:{key}"'.encode()
    return max((at for entry in entries if sign in bytes(entry.fields_v1) and (at := entry.at)), default=None)


def _note_hands(tally: Tally, item: Item, ring: Ring, since: datetime | None) -> None:
    """Who wrote this object as controllers do: its status, or, if it is controlled, anything of it."""
    meta = item.metadata
    owner = meta.labels.get(ring.keys.shard, "")
    label = f'"f:{ring.keys.shard}"'.encode()
    for entry in meta.managed_fields:
        fields = bytes(entry.fields_v1)
        if label in fields:
            tally.ours.add(entry.manager)
        is_status = entry.subresource == "status" or b'"f:status"' in fields
        if not owner or not (is_status or not tally.is_main) or is_tool(entry.manager):
            continue
        at = entry.at
        if at is not None and since is not None and at < since:
            continue
        hand = tally.hands.get(entry.manager)
        if hand is None:
            if len(tally.hands) >= MAX_NAMES:
                continue
            hand = tally.hands[entry.manager] = Hand()
        _note(hand, owner, named(tally.resource, meta), at)


def _note(hand: Hand, owner: str, shown: str, at: datetime | None) -> None:
    hand.count += 1
    if len(hand.owners) < MAX_NAMES:
        hand.owners.add(owner)
    if at is not None and (hand.last is None or at >= hand.last):
        hand.last, hand.sample, hand.sample_owner = at, shown, owner
    elif not hand.sample:
        hand.sample, hand.sample_owner = shown, owner
