"""Pages that are computed when they are asked for, and streams, for those whom an access gate admits.

Knows neither sockets (`kubeio.program.http_server`) nor who is admitted (`kubeio.program.access_gate`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import unquote

from kubeio.program.access_gate import AccessGate
from kubeio.program.http_server import HttpRequest, Reply, Stream

Compute = Callable[[list[str]], Awaitable[Reply]]
"""Computes the answer for the parts of the path below the page's own."""
Open = Callable[[], Reply | Stream]
"""Opens a stream for one client, or refuses it."""


class GuardedPages:
    """*home* at `/`, *computed* pages and *streams* by the first part of their path.

    *home* must hold nothing that is not public: an unauthenticated client gets it with the status 401, so
    that a token can be given there.
    """

    def __init__(
        self,
        *,
        gate: AccessGate,
        home: Reply,
        computed: Mapping[str, Compute],
        streams: Mapping[str, Open],
    ) -> None:
        self._gate: Final = gate
        self._home = home
        self._computed = computed
        self._streams = streams

    async def answer(self, request: HttpRequest) -> Reply | Stream:
        # each part is decoded by itself: a name may contain the separator
        first, *below = [unquote(part) for part in request.path.removeprefix("/").split("/")]
        if first not in self._computed and (below or (first and first not in self._streams)):
            return Reply(404, b"no such page\n")
        refusal = await self._gate.refusal(request)
        if refusal is not None:
            return self._home._replace(status=401) if not first and refusal.status == 401 else refusal
        if first in self._streams:
            return self._streams[first]()
        return await self._computed[first](below) if first else self._home
