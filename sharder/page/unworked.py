"""A ring that cannot be worked, on the page: its last facts, and the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from sharder.page.facts import FoundObject, NotFoundHere, RingFacts, RingSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ring.ring import HashRing


class Unworked:
    """A ring that is not worked, and why: as it was seen last, *before* (None: it never was worked)."""

    def __init__(self, before: RingSource | None, problem: str) -> None:
        self._before = before
        self._problem = problem

    @property
    def before(self) -> RingSource | None:
        return self._before

    def facts(self) -> RingFacts:
        seen = self._before.facts() if self._before is not None else RingFacts()
        note = "this ring is not worked"
        return msgspec.structs.replace(seen, acting=False, converged=False, note=note, problem=self._problem)

    def by_main(self) -> Mapping[str, HashRing | None]:
        return self._before.by_main() if self._before is not None else {}

    async def find(self, resource: str, namespace: str, name: str) -> FoundObject:
        if self._before is None:
            raise NotFoundHere(f"this ring is not worked: {self._problem}")
        return await self._before.find(resource, namespace, name)
