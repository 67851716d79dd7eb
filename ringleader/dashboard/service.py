"""The dashboard as an HTTP service: its paths, its access check, and what a browser may do with its page."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kubeio.program.access_gate import AccessGate, Asks
from kubeio.program.http_server import HttpRequest, HttpServer, Limits, Reply, Stream
from kubeio.program.pages import NO_PAGE, GuardedPages, Page

if TYPE_CHECKING:
    from kubeio.clock import Clock

FLAG: Final = "--bind"
RIGHT: Final = "/dashboard"
"""The nonResourceURL that a token's account must be allowed to get."""
CONNECTIONS: Final = 48
_INLINE: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


class Dashboard:
    """The page at `/` and *pages* beside it, served while the scope lasts; `port` is known inside.

    *reviews* asks the API server about tokens. Raises InputError naming `--bind` if the address is taken.
    """

    def __init__(
        self, pages: Mapping[str, Page], reviews: Asks, *, bind: str, port: int, clock: Clock
    ) -> None:
        self._home = home()
        self._pages = GuardedPages(AccessGate(reviews, path=RIGHT, clock=clock), {"/": self._page, **pages})
        self.server: Final = HttpServer(
            bind, port, self._answer, flag=FLAG, limits=Limits(connections=CONNECTIONS)
        )

    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.server.__aexit__(exc_type, exc, traceback)

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def url(self) -> str:
        """URL for a browser on this machine."""
        host = self.server.bind
        own = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}
        shown = own.get(host, f"[{host}]" if ":" in host else host)
        return f"http://{shown}:{self.port}/"

    async def _answer(self, request: HttpRequest) -> Reply | Stream:
        answer = await self._pages.answer(request)
        if request.path == "/" and isinstance(answer, Reply) and answer.status == 401:
            return self._home._replace(
                status=401
            )  # it holds nothing that is not public: a token is given there
        return answer

    async def _page(self, below: list[str]) -> Reply:
        return NO_PAGE if below else self._home


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
