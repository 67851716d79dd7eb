"""Reads what the doctor judges: rings, two looks at their Leases, every object by pages of metadata.

Owns the order of reading: Leases, objects, a pause, Leases and the objects in trouble once more, so that what is on
its way is not taken for what is stuck. Never writes. What stands around the rings is `surroundings`'s.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.errors import Expired, Forbidden, NotFound
from kubeio.models import HasMeta, Lease, ListMeta
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import LEASES, NAMESPACES, ApiResource
from ringleader.doctor.counting import count, trouble_of
from ringleader.doctor.reader import Reader
from ringleader.doctor.samples import look_at_samples
from ringleader.doctor.seen import (
    ELECTION_LEASE,
    FullRing,
    Item,
    RingSeen,
    Sample,
    SeenShard,
    Tally,
    Trouble,
    instant,
)
from ringleader.inspect.cluster.rings import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubeio.rest.discovery import Discovery
    from sharder.ringspec.spec import LabelSelector

CHECKED_AGAIN: Final = 200
"""Samples that are read a second time, of all troubles together."""
STRANGERS: Final = 10


class _Page(msgspec.Struct):
    metadata: ListMeta
    items: list[Item] | None = None


@dataclass(frozen=True, slots=True)
class LookPace:
    """*again_s*: how long after the first look the second one begins; *tell* hears how far the reading is."""

    again_s: float
    tell: Callable[[str], None]


async def read_rings(reader: Reader) -> list[FullRing]:
    """Every ring, by name. A definition that is missing means none."""
    rings = []
    try:
        async for page in reader.client.pages(CONTROLLER_RINGS, timeout_s=reader.timeout_s):
            rings += [msgspec.json.decode(found.raw, type=FullRing) for found in page.objects]
    except NotFound:
        return []  # the check `crd` says so
    return sorted(rings, key=lambda ring: ring.name)


async def look(reader: Reader, rings: list[FullRing], discovery: Discovery, pace: LookPace) -> None:
    """Fill the rings' part of the picture."""
    seen, began = reader.seen, asyncio.get_running_loop().time()
    seen.rings = [RingSeen(ring, reader.now(), reader.now(), _selector(ring)) for ring in rings]
    if any(ring.selector for ring in seen.rings):
        seen.namespaces = await reader.attempt("namespaces", _namespaces(reader))
    pace.tell("reading Leases")
    await _look_at_leases(reader, is_first=True)
    for ring in seen.rings:
        if f"leases:{ring.name}" not in seen.gaps:
            await _count_objects(reader, ring, discovery, pace)
    behind = await look_at_samples(reader, first=None)
    pace.tell("waiting for the second look")
    await asyncio.sleep(max(0.0, began + pace.again_s - asyncio.get_running_loop().time()))
    await _look_at_leases(reader, is_first=False)
    # a status is written late: what the first look found in it may be over
    again = {ring.name: ring for ring in await reader.attempt("rings", read_rings(reader)) or []}
    for ring in seen.rings:
        ring.ring = again.get(ring.name, ring.ring)
    await look_at_samples(reader, first=behind)
    await _look_at_troubles(reader)
    seen.now = reader.now()


def _selector(ring: FullRing) -> LabelSelector | None:
    from sharder.ringspec.spec import LabelSelector, Requirement

    if ring.spec.namespace_selector is None:
        return None
    written = ring.spec.namespace_selector
    expressions = tuple(
        Requirement(each.get("key", ""), each.get("operator", ""), tuple(each.get("values") or ()))
        for each in written.get("matchExpressions") or ()
    )
    return LabelSelector(dict(written.get("matchLabels") or {}), expressions)


async def _namespaces(reader: Reader) -> dict[str, dict[str, str]]:
    pages = reader.client.pages(NAMESPACES, metadata_only=True, timeout_s=reader.timeout_s)
    return {found.meta.name: found.meta.labels async for page in pages for found in page.objects}


# -- Leases ---------------------------------------------------------------------------------------------------


async def _look_at_leases(reader: Reader, *, is_first: bool) -> None:
    """What cannot be read leaves the rings as the first look showed them, and a gap."""
    seen, began = reader.seen, reader.now()
    everywhere: dict[str, list[Lease] | None] = {}
    for ring in seen.rings:
        label = ring.ring.keys.ring_label
        if is_first:
            ring.first_at = began
        if label not in everywhere:
            everywhere[label] = await reader.attempt("strays", _leases(reader, selector=label))
        found = everywhere[label]
        if found is None:
            where = ring.ring.spec.lease_namespace
            asked = _leases(reader, namespace=where, selector=f"{label}={ring.name}")
            found = await reader.attempt(f"leases:{ring.name}", asked)
        if found is not None:
            named = [lease for lease in found if lease.metadata.labels.get(label) == ring.name]
            _take(ring, named, is_first)
            ring.second_at = reader.now()
    elections = await reader.attempt("election", _elections(reader))
    if elections is not None:
        before = {_place(each.first): each.first for each in seen.elections}
        seen.elections = [SeenShard(before.get(_place(lease), lease), lease) for lease in elections]


def _take(ring: RingSeen, found: list[Lease], is_first: bool) -> None:
    right = ring.ring.spec.lease_namespace
    here = {lease.metadata.name: lease for lease in found if lease.metadata.namespace == right}
    before = {} if is_first else {name: shard.first for name, shard in ring.shards.items()}
    ring.shards = {name: SeenShard(before.get(name, lease), lease) for name, lease in here.items()}
    ring.strays = [lease for lease in found if lease.metadata.namespace != right]


def _place(lease: Lease) -> tuple[str, str]:
    return lease.metadata.namespace, lease.metadata.name


async def _leases(reader: Reader, *, namespace: str = "", selector: str = "", name: str = "") -> list[Lease]:
    pages = reader.client.pages(
        LEASES,
        namespace=namespace,
        label_selector=selector,
        field_selector=f"metadata.name={name}" if name else "",
        timeout_s=reader.timeout_s,
    )
    return [msgspec.json.decode(found.raw, type=Lease) async for page in pages for found in page.objects]


async def _elections(reader: Reader) -> list[Lease]:
    """The sharders' election Leases, wherever they are; else where they usually are."""
    try:
        return await _leases(reader, name=ELECTION_LEASE)
    except Forbidden:
        usual = {"ringleader-system", *(ring.ring.spec.lease_namespace for ring in reader.seen.rings)}
        found = []
        for namespace in sorted(usual):
            with suppress(Forbidden):
                found += await _leases(reader, namespace=namespace, name=ELECTION_LEASE)
        if not found:
            raise
        return found


# -- objects --------------------------------------------------------------------------------------------------


async def _count_objects(reader: Reader, ring: RingSeen, discovery: Discovery, pace: LookPace) -> None:
    """One tally for each resource of *ring*: mains first, then what they control."""
    mains: dict[Kind, ApiResource] = {}
    above: dict[Kind, list[Kind]] = {}
    for each in ring.ring.spec.resources:
        resource = await reader.attempt(
            f"objects:{ring.name}:{each.kind.name}", discovery.resolve(each.kind.name)
        )
        if resource is None:
            continue
        mains[each.kind] = resource
        ring.tallies.append(Tally(resource, is_main=True))
        for child in each.controlled_resources:
            above.setdefault(child, []).append(each.kind)
    for child, kinds in above.items():
        asked = discovery.resolve(child.name)
        if child not in mains and (
            resource := await reader.attempt(f"objects:{ring.name}:{child.name}", asked)
        ):
            parents = {(mains[kind].group, mains[kind].kind) for kind in kinds}
            ring.tallies.append(Tally(resource, is_main=False, controllers=frozenset(parents)))
    for tally in ring.tallies:
        part = f"objects:{ring.name}:{tally.resource.group_resource}"
        await reader.attempt(part, _read_objects(reader, ring, tally, pace))
    names = [name for tally in ring.tallies for name in tally.trouble(Trouble.UNKNOWN)]
    for name in list(dict.fromkeys(names))[:STRANGERS]:
        await _look_for_stranger(reader, ring, name)


async def _read_objects(reader: Reader, ring: RingSeen, tally: Tally, pace: LookPace) -> None:
    since = instant(ring.ring.metadata.creation_timestamp)
    continue_ = ""
    while True:
        try:
            page = await reader.client.list_as(
                tally.resource,
                type=_Page,
                continue_=continue_,
                metadata_only=True,
                timeout_s=reader.timeout_s,
            )
        except Expired as expired:
            if not expired.continue_:
                raise
            continue_ = expired.continue_  # goes on with a newer version: the count is good enough for that
            continue
        count(tally, page.items or (), seen=ring, namespaces=reader.seen.namespaces, since=since)
        pace.tell(f"ring {ring.name}: {tally.objects:,} {tally.resource.group_resource}")
        continue_ = page.metadata.continue_
        if not continue_:
            return


async def _look_for_stranger(reader: Reader, ring: RingSeen, name: str) -> None:
    """Whose Lease it is that has the *name* of no shard of the ring."""
    from kubeio.protocol import is_shard_name

    if not is_shard_name(name):
        return
    try:
        ring.strangers[name] = await reader.client.get(
            LEASES, name, namespace=ring.ring.spec.lease_namespace, type=Lease, timeout_s=reader.timeout_s
        )
    except (NotFound, Forbidden):
        return


async def _look_at_troubles(reader: Reader) -> None:
    """Whether the samples are still in the trouble that the first look found."""
    samples = [
        (ring, sample)
        for ring in reader.seen.rings
        for tally in ring.tallies
        for group in tally.groups.values()
        for sample in group.samples
    ]

    async def again(pair: tuple[RingSeen, Sample]) -> None:
        ring, sample = pair
        sample.persists = await _persists(reader, ring, sample)

    await reader.each(samples[:CHECKED_AGAIN], again)


async def _persists(reader: Reader, ring: RingSeen, sample: Sample) -> bool:
    try:
        found = await reader.client.get(
            sample.resource,
            sample.meta.name,
            namespace=sample.meta.namespace,
            type=HasMeta,
            metadata_only=True,
            timeout_s=reader.timeout_s,
        )
    except NotFound:
        return False
    except Forbidden:  # may list, may not get: believe what was listed
        return True
    labels, keys = found.metadata.labels, ring.ring.keys
    owner, drain = labels.get(keys.shard, ""), labels.get(keys.drain)
    shard = ring.shards.get(owner)
    kind = sample.resource.group_resource
    trouble = trouble_of(owner, drain, ring.ring, shard.now if shard else None, kind=kind)
    if sample.trouble is Trouble.UNKNOWN and trouble is Trouble.CONTESTED:
        return False  # the sharder has found the name meanwhile
    return trouble is sample.trouble and owner == sample.owner and drain == sample.drain
