"""Probes, metrics and debug pages over the small HTTP server of `kubeio.program.listening`.

Knows nothing of what is healthy (that are the checks passed in). Started by every process of ours: `sharder.app`,
`shard_controller.process.app`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from kubeio.errors import InputError
from kubeio.program.access_gate import Access, AccessGate, RequestOrigin
from kubeio.program.listening import (
    MAX_CONNECTIONS,
    NOBODY,
    PATIENCE_S,
    TEXT,
    HttpServer,
    Reply,
    ServerConnection,
)

_log = structlog.get_logger("kubeio")

Check = Callable[[], str | None]
"""None: fine. Text: why not."""

Page = Callable[[str], bytes | None]
"""What stands at a path below its own (`/ns/name`; empty for itself); None: nothing does."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """Pages by the path that they begin with, for those whom *door* admits."""

    pages: Mapping[str, Page]
    door: AccessGate

    def find(self, path: str) -> tuple[Page, str] | None:
        """The page for *path* and what is left of it."""
        for begin, page in self.pages.items():
            if path == begin or path.startswith(begin + "/"):
                return page, path[len(begin) :]
        return None


TURNED_AWAY: Final = {
    Access.UNKNOWN: b"only from this machine, or with a bearer token that the API server accepts\n",
    Access.DENIED: b"the account has no right to get this nonResourceURL\n",
    Access.UNDECIDED: b"the API server could not be asked about the token; see the log\n",
}


def parse_bind(field: str, bind: str) -> tuple[str, int]:
    """Host and port of *bind*: `host:port` or `[v6]:port`; an empty host is every interface.

    Raises: InputError naming *field*.
    """
    host, colon, port = bind.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in bare and bare == host):
        remedy = "write HOST:PORT, such as 127.0.0.1:8081 or [::1]:8081; port 0 picks a free one"
        raise InputError(field, bind, "is not an address", remedy)
    return bare or "0.0.0.0", int(port)


def write_port(path: Path | None, port: int, *, flag: str = "--probes-port-file") -> None:
    """Make *port* known in one step: readers never see half a file.

    Raises: InputError naming *flag* if *path* cannot be written to.
    """
    if path is None:
        return
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.write_text(f"{port}\n")
        fresh.replace(path)
    except OSError as error:
        raise InputError(
            flag,
            str(path),
            f"cannot be written to ({error.strerror})",
            "name a file in a folder that exists",
        ) from None


class ProbeServer(HttpServer):
    """`/healthz`, `/livez`, `/readyz`, `/metrics` and *routes*, while the scope lasts; `port` is known inside.

    *checks* count for all three probes, *ready_checks* for `/readyz` only: what a restart would not cure belongs
    there. `?verbose=1` lists every check; a probe that fails always does. A check that raises has failed.
    *routes* give the bytes of a page; HTML, JSON and SVG are recognised. *guarded* pages are for those whom
    their door admits. Raises InputError if the address is taken.
    """

    def __init__(
        self,
        bind: str,
        port: int,
        registry: CollectorRegistry,
        checks: Mapping[str, Check],
        routes: Mapping[str, Callable[[], bytes]] = MappingProxyType({}),
        *,
        ready_checks: Mapping[str, Check] = MappingProxyType({}),
        guarded: Guarded | None = None,
        patience_s: float = PATIENCE_S,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        super().__init__(
            bind, port, flag="--probes-bind", patience_s=patience_s, max_connections=max_connections
        )
        self._registry = registry
        self._checks = checks
        self._ready_checks = ready_checks
        self._routes = routes
        self._guarded = guarded

    def answer(self, method: str, target: str, accept: str, visitor: RequestOrigin = NOBODY) -> Reply | None:
        """The answer to one request; None if the API server must be asked about *visitor* first: see `ask`."""
        path = unquote(target.partition("?")[0])
        if method not in ("GET", "HEAD"):
            return Reply(405, TEXT, b"only GET and HEAD\n")
        if self._guarded is not None and self._guarded.find(path) is not None:
            entry = self._guarded.door.at_once(visitor)
            return None if entry is None else self._behind_the_door(path, entry)
        return self._shown(path, lambda: self._page(path, target.partition("?")[2], accept))

    def ask(self, connection: ServerConnection, target: str, visitor: RequestOrigin) -> asyncio.Task[None]:
        """Answer *connection* once it is known whether *visitor* may see *target*."""
        path = unquote(target.partition("?")[0])
        return self._tasks.create_task(self._ask(connection, path, visitor), name="visitor")

    async def _ask(self, connection: ServerConnection, path: str, visitor: RequestOrigin) -> None:
        entry = Access.UNDECIDED
        try:
            if self._guarded is not None:
                entry = await self._guarded.door.admit(visitor)
        except Exception:
            # whoever asks must get an answer, and the server must go on
            _log.exception("visitor not reviewed", path=path)
        connection.answer(self._behind_the_door(path, entry))

    def _behind_the_door(self, path: str, entry: Access) -> Reply:
        if entry is not Access.ADMITTED:
            return Reply(entry.value, TEXT, TURNED_AWAY[entry])
        return self._shown(path, lambda: self._inner_page(path))

    def _inner_page(self, path: str) -> Reply:
        found = self._guarded.find(path) if self._guarded is not None else None
        body = found[0](found[1]) if found is not None else None
        return Reply(404, TEXT, b"no such page\n") if body is None else Reply(200, _content_type(body), body)

    @staticmethod
    def _shown(path: str, page: Callable[[], Reply]) -> Reply:
        try:
            return page()
        except Exception as error:
            # A page that fails must neither end the process nor hide: the probe's reader gets a 500.
            _log.exception("page failed", path=path)
            return Reply(500, TEXT, f"{type(error).__name__}\n".encode())

    def _page(self, path: str, query: str, accept: str) -> Reply:
        match path:
            case "/healthz" | "/livez":
                return _probe(self._checks, is_verbose=_is_verbose(query))
            case "/readyz":
                return _probe({**self._checks, **self._ready_checks}, is_verbose=_is_verbose(query))
            case "/metrics":
                encode, content_type = choose_encoder(accept)
                return Reply(200, content_type, encode(self._registry))
        route = self._routes.get(path)
        if route is None:
            return Reply(404, TEXT, b"no such page\n")
        body = route()
        return Reply(200, _content_type(body), body)


def _is_verbose(query: str) -> bool:
    return any(part in ("verbose", "verbose=1", "verbose=true", "verbose=") for part in query.split("&"))


def _probe(checks: Mapping[str, Check], *, is_verbose: bool) -> Reply:
    problems = {name: _run(check) for name, check in checks.items()}
    is_fine = not any(problems.values())
    if is_fine and not is_verbose:
        return Reply(200, TEXT, b"ok\n")
    lines = [f"[-] {name}: {why}" if why else f"[+] {name}: ok" for name, why in problems.items()]
    lines.append("ok" if is_fine else "failed")
    return Reply(200 if is_fine else 503, TEXT, ("\n".join(lines) + "\n").encode())


def _run(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:
        # What cannot be checked is not healthy.
        return f"the check failed ({type(error).__name__}: {error})"


def _content_type(body: bytes) -> str:
    head = body[:32].lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "text/html; charset=utf-8"
    if head.startswith(b"<svg"):
        return "image/svg+xml"
    return "application/json" if head.startswith((b"{", b"[")) else TEXT
