"""Questions of viewers: `/where`, one object, and `/whatif`, another number of members. Answered in JSON.

Owns paths and statuses. What is read comes from the two functions passed in; what is computed runs on a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.errors import InputError, KubeError
from kubeio.models import ObjectKey
from kubeio.program.failures import failure
from kubeio.program.http_server import Reply
from kubeio.program.pages import JSON, Page
from ringleader.dashboard.whatif import MOST, WhatIf, what_if

if TYPE_CHECKING:
    from ring.ring import HashRing
    from ringleader.dashboard.find import FoundObject

CLUSTER_SCOPED: Final = "_"
"""Stands in the place of the namespace."""
Find = Callable[[str, str, ObjectKey], Awaitable["FoundObject"]]
"""Finds the object of a ring, by ring, resource and key. Raises InputError, KubeError."""
Rings = Callable[[str], Awaitable[Callable[[], "Mapping[str, HashRing]"]]]
"""Reads a ring; the function that it gives computes the hash ring of each main resource. Raises KubeError."""


class Questions:
    """Answers with the objects that *find* finds, and the rings that *rings* reads."""

    def __init__(self, find: Find, rings: Rings) -> None:
        self._find = find
        self._rings = rings
        self._one_at_a_time = asyncio.Semaphore(1)
        self._known: tuple[HashRing | None, dict[int, WhatIf]] = (None, {})
        """Answers for the last ring, by number of members."""

    def pages(self) -> dict[str, Page]:
        return {"/where": self._where, "/whatif": self._what_if}

    async def _where(self, below: list[str]) -> Reply:
        """`RING/RESOURCE/NAMESPACE/NAME`."""
        if len(below) != 4 or not all(below):
            return _problem(400, "ask for /where/RING/RESOURCE/NAMESPACE/NAME")
        ring, resource, namespace, name = below
        key = ObjectKey("" if namespace == CLUSTER_SCOPED else namespace, name)
        return await _answered(lambda: self._find(ring, resource, key))

    async def _what_if(self, below: list[str]) -> Reply:
        """`RING/MEMBERS`, `RING/MEMBERS/RESOURCE`: of that main resource; of the first one without."""
        if len(below) not in (2, 3) or not (
            below[1].isascii() and below[1].isdecimal() and 1 <= int(below[1][:9]) <= MOST
        ):
            return _problem(400, f"ask for /whatif/RING/MEMBERS[/RESOURCE], from 1 to {MOST} members")
        ring, members, *main = below
        return await _answered(lambda: self._other_number(ring, int(members), *main))

    async def _other_number(self, name: str, members: int, main: str = "") -> WhatIf:
        async with self._one_at_a_time:
            hash_rings = await self._rings(name)
            asked = asyncio.to_thread(self._compute, name, hash_rings, members, main)
            computing = asyncio.create_task(asked, name="what if")
            try:
                return await asyncio.shield(computing)
            finally:
                await asyncio.wait({computing})  # the thread goes on when its viewer has left

    def _compute(
        self, name: str, hash_rings: Callable[[], Mapping[str, HashRing]], members: int, main: str
    ) -> WhatIf:
        by_main = hash_rings()
        ring = by_main.get(main) if main else next(iter(by_main.values()), None)
        if ring is None or not len(ring):
            works = f" that works {main}" if main else ""
            raise InputError("RING", name, f"has no member{works}", "start a replica")
        if self._known[0] != ring:
            self._known = (ring, {})
        known = self._known[1]
        if members not in known:
            known[members] = what_if(ring, members)
        return known[members]


async def _answered(ask: Callable[[], Awaitable[msgspec.Struct]]) -> Reply:
    try:
        return Reply(200, msgspec.json.encode(await ask()), JSON)
    except InputError as error:
        return _problem(404, f"{error.value} {error.problem}; {error.remedy}")
    except KubeError as error:
        return _problem(502, failure(error).message)


def _problem(status: int, text: str) -> Reply:
    return Reply(status, msgspec.json.encode({"problem": text}), JSON)
