"""Access control of a process's internal pages: local requests at once, others with an authorized token.

Owns the definition of a local request and the time for which an answer of the API server holds. Knows neither
sockets nor pages.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
from collections import OrderedDict
from enum import Enum
from typing import Final, NamedTuple, Protocol

import structlog

from kubeio.clock import Clock
from kubeio.errors import KubeError
from kubeio.program.http_server import HttpRequest, Reply
from kubeio.rest.reviews import User

_log = structlog.get_logger("kubeio")
_AT_ONCE: Final = 4
"""Reviews under way: unknown tokens must not become a load on the API server."""
_KEPT: Final = 256
_LONGEST_TOKEN: Final = 8192


class Access(Enum):
    """Answer to a request; the value is the HTTP status."""

    ADMITTED = 200
    UNKNOWN = 401
    DENIED = 403
    UNDECIDED = 503


_REFUSED: Final = {
    Access.UNKNOWN: b"only from this machine, or with a bearer token that the API server accepts\n",
    Access.DENIED: b"the account has no right to get this nonResourceURL\n",
    Access.UNDECIDED: b"the API server could not be asked about the token; see the log\n",
}
_FORWARDED: Final = frozenset({"forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip"})


class RequestOrigin(NamedTuple):
    """Origin of a request: the peer's address, and the headers that identify the caller."""

    address: str = ""
    host: str = ""
    authorization: str = ""
    is_forwarded: bool = False
    fetch_site: str = ""
    fetch_mode: str = ""
    """The browser's description of the page that sends the request, and of how; other clients send none."""

    @classmethod
    def of(cls, request: HttpRequest) -> RequestOrigin:
        headers = request.headers
        return cls(
            request.peer,
            headers.get("host", ""),
            headers.get("authorization", ""),
            not _FORWARDED.isdisjoint(headers),
            headers.get("sec-fetch-site", ""),
            headers.get("sec-fetch-mode", ""),
        )

    @property
    def is_local(self) -> bool:
        """Whether the request was made on this machine (or in this pod), and for it.

        A page of a browser whose name was pointed at loopback names another host; a proxy beside us says that it
        forwards, or calls from an address of its own (127.0.0.6 in a mesh). Neither is local. Nor is what another
        site's page fetches in a browser on this machine; a link on that page may be followed, though.
        """
        is_another_page = self.fetch_site in ("cross-site", "same-site") and self.fetch_mode != "navigate"
        is_ours = not self.is_forwarded and not is_another_page
        return is_ours and self.address in _LOCAL and _names_loopback(self.host)

    @property
    def token(self) -> str:
        """The bearer token; empty without one."""
        scheme, _, token = self.authorization.partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""


class Asks(Protocol):
    """The part of `kubeio.rest.reviews.Reviews` that an access gate needs."""

    async def bearer(self, token: str) -> User | None: ...
    async def may(self, user: User, *, verb: str, path: str) -> bool: ...


class AccessGate:
    """Admits local requests, and tokens that TokenReview accepts and SubjectAccessReview lets `get` *path*.

    An answer holds for *kept_s*: so long a token that was revoked still opens. Failed reviews are retried.
    Tokens are remembered as hashes only. Admitted tokens have limits of their own: unknown tokens neither delay nor
    evict them.
    """

    def __init__(self, reviews: Asks, *, path: str, clock: Clock, kept_s: float = 10.0) -> None:
        self._reviews = reviews
        self._path = path
        self._clock = clock
        self._kept_s = kept_s
        self._admitted: OrderedDict[bytes, float] = OrderedDict()
        self._refused: OrderedDict[bytes, tuple[float, Access]] = OrderedDict()
        self._of_strangers = asyncio.Semaphore(_AT_ONCE)
        self._of_others = asyncio.Semaphore(_AT_ONCE)

    async def refusal(self, request: HttpRequest) -> Reply | None:
        """The answer to a request that is not admitted; None for one that is."""
        origin = RequestOrigin.of(request)
        access = self.at_once(origin)  # first: reviews under way delay no known token
        if access is None:
            access = await self.admit(origin)
        return None if access is Access.ADMITTED else Reply(access.value, _REFUSED[access])

    def at_once(self, origin: RequestOrigin) -> Access | None:
        """The answer, if the API server need not be asked; None if `admit` must ask."""
        if origin.is_local:
            return Access.ADMITTED
        if not origin.token or len(origin.token) > _LONGEST_TOKEN:
            return Access.UNKNOWN
        token, now = _digest(origin.token), self._clock.now()
        if token in self._admitted:
            return Access.ADMITTED if now - self._admitted[token] < self._kept_s else None
        answered_at, entry = self._refused.get(token, (0.0, None))
        return entry if now - answered_at < self._kept_s else None

    async def admit(self, origin: RequestOrigin) -> Access:
        """The answer, by asking the API server if need be."""
        was_admitted = _digest(origin.token) in self._admitted
        async with self._of_others if was_admitted else self._of_strangers:
            if (entry := self.at_once(origin)) is not None:
                return entry
            asked_at = self._clock.now()
            try:
                entry = await self._ask(origin.token)
            except (KubeError, TimeoutError) as error:
                _log.warning("TokenReview or SubjectAccessReview failed", error=str(error) or "timed out")
                return Access.UNDECIDED
            self._keep(origin.token, asked_at, entry)
            return entry

    async def _ask(self, token: str) -> Access:
        user = await self._reviews.bearer(token)
        if user is None:
            return Access.UNKNOWN
        return (
            Access.ADMITTED if await self._reviews.may(user, verb="get", path=self._path) else Access.DENIED
        )

    def _keep(self, token: str, asked_at: float, entry: Access) -> None:
        digest = _digest(token)
        self._admitted.pop(digest, None)
        self._refused.pop(digest, None)
        if entry is Access.ADMITTED:
            self._admitted[digest] = asked_at
        else:
            self._refused[digest] = (asked_at, entry)
        for known in (self._admitted, self._refused):
            while len(known) > _KEPT:
                known.popitem(last=False)


_LOCAL: Final = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})


def _names_loopback(host: str) -> bool:
    """Whether *host* (a Host header, perhaps with a port) is this machine's own name for itself."""
    name = host.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
