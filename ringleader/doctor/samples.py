"""Whether replicas observe their own objects: a few whole objects of each, twice.

The only place where more than metadata is read: `status.observedGeneration` stands nowhere else. At most `LOOKED_AT`
objects of each shard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.observed import observed
from ringleader.doctor.seen import Behind, named

if TYPE_CHECKING:
    from kubeio.resource import ApiResource
    from ringleader.doctor.reader import Reader
    from ringleader.doctor.seen import RingSeen, Tally

LOOKED_AT: Final = 20


class _Page(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


First = dict[tuple[str, str], dict[str, int]]
"""By ring and shard: the generation of the objects that were behind."""


async def look_at_samples(reader: Reader, *, first: First | None) -> First:
    """One look at some objects of every shard; the second one notes in the rings what has not moved since *first*."""
    found: First = {}
    jobs = [
        (ring, tally, name)
        for ring in reader.seen.rings
        for tally in ring.tallies[:1]
        for name in sorted(ring.shards)
        if tally.is_main and tally.owners[name]
    ]

    async def one(job: tuple[RingSeen, Tally, str]) -> None:
        ring, tally, name = job
        selector = f"{ring.ring.keys.shard}={name}"
        part = f"samples:{ring.name}"
        page = await reader.attempt(part, _page(reader, tally.resource, selector))
        if page is None:
            return
        raws = [bytes(raw) for raw in page.items or ()]
        tally.bytes_each = max(tally.bytes_each, sum(map(len, raws)) / max(len(raws), 1))
        objects = [whole for raw in raws if (whole := observed(raw)) is not None]
        late = [whole.metadata for whole in objects if whole.is_behind]
        behind = {named(tally.resource, meta): meta.generation for meta in late}
        found[ring.name, name] = behind
        if first is not None:
            before = first.get((ring.name, name), {})
            moved = before.keys() - behind.keys()
            stuck = [] if moved else [shown for shown in behind if shown in before]
            is_told = any(whole.generation is not None for whole in objects)
            ring.behind[name] = Behind(tally.resource, len(objects), stuck, is_told)

    await reader.each(jobs, one)
    if first is not None:
        _spread_told(reader)
    return found


def _spread_told(reader: Reader) -> None:
    """A kind tells observedGeneration if any object of it does: a shard that never worked shows none itself."""
    for ring in reader.seen.rings:
        is_told = any(found.is_told for found in ring.behind.values())
        for found in ring.behind.values():
            found.is_told = is_told


async def _page(reader: Reader, resource: ApiResource, selector: str) -> _Page:
    return await reader.client.list_as(
        resource, type=_Page, label_selector=selector, limit=LOOKED_AT, timeout_s=reader.timeout_s
    )
