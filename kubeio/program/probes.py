"""Probes, metrics and debug pages of a process.

Knows nothing of what is healthy (the checks passed in do) nor of sockets (`kubeio.program.http_server`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from kubeio.program.http_server import HttpRequest, Reply, Stream
from kubeio.program.pages import NO_PAGE, GuardedPages

FLAG: Final = "--health-probe-bind-address"

Check = Callable[[], str | None]
"""None: fine. Text: why not."""


class Probes:
    """`/healthz`, `/livez`, `/readyz`, `/metrics` and *guarded* pages.

    *checks* count for all three probes, *ready_checks* for `/readyz` only: what a restart would not cure belongs
    there. `?verbose=1` lists every check; a probe that fails always does. A check that raises has failed.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        checks: Mapping[str, Check],
        *,
        ready_checks: Mapping[str, Check] = MappingProxyType({}),
        guarded: GuardedPages | None = None,
    ) -> None:
        self._registry = registry
        self._checks = checks
        self._ready_checks = ready_checks
        self._guarded = guarded

    async def answer(self, request: HttpRequest) -> Reply | Stream:
        match unquote(request.path):
            case "/healthz" | "/livez":
                return _probe(self._checks, is_verbose=_is_verbose(request.query))
            case "/readyz":
                return _probe({**self._checks, **self._ready_checks}, is_verbose=_is_verbose(request.query))
            case "/metrics":
                encode, content_type = choose_encoder(request.headers.get("accept", ""))
                return Reply(200, encode(self._registry), content_type)
        return NO_PAGE if self._guarded is None else await self._guarded.answer(request)


def _is_verbose(query: str) -> bool:
    return any(part in ("verbose", "verbose=1", "verbose=true", "verbose=") for part in query.split("&"))


def _probe(checks: Mapping[str, Check], *, is_verbose: bool) -> Reply:
    problems = {name: _run(check) for name, check in checks.items()}
    is_fine = not any(problems.values())
    if is_fine and not is_verbose:
        return Reply(200, b"ok\n")
    lines = [f"[-] {name}: {why}" if why else f"[+] {name}: ok" for name, why in problems.items()]
    lines.append("ok" if is_fine else "failed")
    return Reply(200 if is_fine else 503, ("\n".join(lines) + "\n").encode())


def _run(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:
        # A check that cannot run is not healthy.
        return f"the check failed ({type(error).__name__}: {error})"
