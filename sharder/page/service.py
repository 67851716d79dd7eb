"""The page as a service on a port of its own: its paths and its access check.

Composes board, streams and access gate. In the sharder, `page_ring` fills it.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.errors import InputError, KubeError
from kubeio.program.access_gate import AccessGate, Asks
from kubeio.program.failures import failure
from kubeio.program.http_server import HttpServer, Limits, Reply
from kubeio.program.pages import GuardedPages
from sharder.page.board import Board
from sharder.page.facts import NotFoundHere
from sharder.page.live import Live
from sharder.page.whatif import MOST, WhatIf, what_if

if TYPE_CHECKING:
    from kubeio.clock import Clock
    from ring.ring import HashRing

RIGHT: Final = "/page"
"""The nonResourceURL that a token's account must be allowed to get."""
CLUSTER_SCOPED: Final = "_"
"""Stands in the place of the namespace."""
CONNECTIONS: Final = 48
_JSON: Final = "application/json"
_INLINE: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


class LivePage:
    """Listens while the scope lasts; `port` is known inside, `run` lasts until cancelled.

    *reviews* asks the API server about tokens. Raises InputError naming *flag* if the address is taken.
    """

    def __init__(self, board: Board, reviews: Asks, *, bind: str, port: int, flag: str, clock: Clock) -> None:
        self.board = board
        self._live = Live(board)
        self._turn = asyncio.Semaphore(1)
        self._known: tuple[HashRing | None, dict[int, WhatIf]] = (None, {})
        pages = GuardedPages(
            gate=AccessGate(reviews, path=RIGHT, clock=clock),
            home=home(),
            computed={"where": self._where, "whatif": self._what_if},
            streams={"events": self._live.open},
        )
        self._site = HttpServer(bind, port, pages.answer, flag=flag, limits=Limits(connections=CONNECTIONS))

    async def __aenter__(self) -> LivePage:
        await self._site.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._site.__aexit__(exc_type, exc, traceback)

    @property
    def port(self) -> int:
        return self._site.port

    @property
    def url(self) -> str:
        """URL for a browser on this machine."""
        host = self._site.bind
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
        return f"http://{shown}:{self.port}/"

    async def run(self) -> None:
        await self._live.run()

    async def _where(self, parts: list[str]) -> Reply:
        """`RING/RESOURCE/NAMESPACE/NAME`."""
        if len(parts) != 4 or not all(parts):
            return _problem(400, "ask for /where/RING/RESOURCE/NAMESPACE/NAME")
        ring, resource, namespace, name = parts
        subject = self.board.subject(ring)
        if subject is None:
            return _problem(404, f"no ring {ring} is shown here")
        try:
            found = await subject.find(resource, "" if namespace == CLUSTER_SCOPED else namespace, name)
        except NotFoundHere as problem:
            return _problem(404, str(problem))
        except InputError as error:
            return _problem(400, str(error))
        except KubeError as error:
            return _problem(502, failure(error).message)
        return Reply(200, msgspec.json.encode(found), _JSON)

    async def _what_if(self, parts: list[str]) -> Reply:
        """`RING/MEMBERS`, `RING/MEMBERS/RESOURCE`: of that main resource; of the first one without."""
        if len(parts) not in (2, 3) or not (
            parts[1].isascii() and parts[1].isdecimal() and 1 <= int(parts[1][:9]) <= MOST
        ):
            return _problem(400, f"ask for /whatif/RING/MEMBERS[/RESOURCE], from 1 to {MOST} members")
        subject = self.board.subject(parts[0])
        by_main = subject.by_main() if subject is not None else {}
        ring = by_main.get(parts[2]) if len(parts) == 3 else next(iter(by_main.values()), None)
        if ring is None or not len(ring):
            of = f" that works {parts[2]}" if len(parts) == 3 else ""
            return _problem(404, f"ring {parts[0]} has no member{of}, or is not shown here")
        return Reply(200, msgspec.json.encode(await self._answer(ring, int(parts[1]))), _JSON)

    async def _answer(self, ring: HashRing, members: int) -> WhatIf:
        """Compute in a thread, one at a time; answers are remembered for as long as the ring is the same."""
        async with self._turn:
            if self._known[0] is not ring:
                self._known = (ring, {})
            known = self._known[1]
            if members not in known:
                known[members] = await asyncio.to_thread(what_if, ring, members)
            return known[members]


def _problem(status: int, text: str) -> Reply:
    return Reply(status, msgspec.json.encode({"problem": text}), _JSON)


def home() -> Reply:
    """The page itself, without any data of the cluster."""
    text = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    return Reply(200, text.encode(), "text/html; charset=utf-8", policy(text))


def policy(text: str) -> tuple[tuple[str, str], ...]:
    """Headers that let a browser run the scripts of *text* and no other, and connect to this server alone."""
    hashes: dict[str, list[str]] = {"script": [], "style": []}
    for kind, inline in _INLINE.findall(text):
        hashes[kind].append(f"'sha256-{b64encode(sha256(inline.encode()).digest()).decode()}'")
    rules = [
        "default-src 'none'",
        f"script-src {' '.join(hashes['script'])}",
        f"style-src {' '.join(hashes['style'])}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    return (
        ("Content-Security-Policy", "; ".join(rules)),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Referrer-Policy", "no-referrer"),
        ("X-Frame-Options", "DENY"),
    )
