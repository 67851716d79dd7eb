"""A replica's own pages (`/debug/objects`, `/debug/queue`, `/metrics`), read from outside.

Owns the two ways there: a URL, usually the near end of `kubectl port-forward`, and the API server's proxy to a pod.
The proxy takes the bearer token off, so it reaches what is open to all (`/metrics`) and not the pages below `/debug`,
which a replica shows to its own pod and to tokens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.errors import ApiError, Forbidden, InputError, KubeError, NotFound, Unauthorized, Unreachable
from kubeio.resource import ApiResource

if TYPE_CHECKING:
    from kubeio.http.endpoint import Endpoint
    from kubeio.models import ObjectKey
    from kubeio.rest.client import Client
    from ringleader.cluster.shards import Pod

PORT: Final = 8081
PODS: Final = ApiResource("", "v1", "pods", "Pod")
_FORWARD: Final = (
    "kubectl port-forward pod/POD 8081, then --endpoint http://127.0.0.1:8081 (docs/debugging.md)"
)


class Cached(msgspec.Struct, rename="camel"):
    """The version in the replica's cache."""

    resource_version: str = ""
    owner: str | None = None
    drain: str | None = None


class LastError(msgspec.Struct):
    type: str = ""
    message: str = ""
    at: str | None = None


class LastOutcome(msgspec.Struct, rename="camel"):
    outcome: str = ""
    at: str | None = None
    took_seconds: float = 0.0


class ObjectPage(msgspec.Struct, rename="camel"):
    """A replica's page of one object; *state* is there only while it starts."""

    controller: str = ""
    shard: str = ""
    object: str = ""
    cached: Cached | None = None
    queued_since: str | None = None
    running_since: str | None = None
    next_try: str | None = None
    failures: int = 0
    last_error: LastError | None = None
    last_outcome: LastOutcome | None = None
    state: str = ""


class _QueuePage(msgspec.Struct):
    shard: str = ""


@dataclass(frozen=True, slots=True)
class DebugAnswer:
    """Answer about one object: the *page*, or the *problem*. *is_unknown*: the replica does not know the object.

    *shard*: the replica that answered, as it says itself; empty if it did not.
    """

    page: ObjectPage | None = None
    problem: str = ""
    is_unknown: bool = False
    shard: str = ""

    def is_of_another(self, owner: str) -> bool:
        """Whether another replica than *owner* answered: its answer does not count."""
        return self.shard not in ("", owner)


class DebugEndpoint:
    """Probes port of one replica, reached through *client* below *base*; *name* is for messages."""

    def __init__(self, client: Client, base: str, *, name: str, timeout_s: float) -> None:
        self.name = name
        self._client = client
        self._base = base
        self._timeout_s = timeout_s

    async def read(self, path: str) -> bytes:
        """The page at *path*. Raises KubeError."""
        answer = await self._client.request(
            "GET", f"{self._base}{path}", accept="*/*", timeout_s=self._timeout_s
        )
        return answer.body

    async def object_page(self, key: ObjectKey) -> DebugAnswer:
        """The replica's answer about its object *key*; a refusal or a failure is an answer too."""
        try:
            body = await self.read(f"/debug/objects/{key.namespace or '_'}/{key.name}")
            page = msgspec.json.decode(body, type=ObjectPage)
        except NotFound as error:
            if (
                error.message.startswith("{") or "pods" in error.message
            ):  # the API server's word, not the replica's
                return DebugAnswer(problem=f"{self.name} could not be asked: {error.message}; {_FORWARD}")
            return DebugAnswer(is_unknown=True, shard=await self.shard())
        except (KubeError, msgspec.DecodeError) as error:
            return DebugAnswer(problem=f"{self.name} could not be asked: {_why(error)}")
        if page.state:
            return DebugAnswer(problem=f"{self.name}: {page.state}")
        return DebugAnswer(page, shard=page.shard)

    async def shard(self) -> str:
        """The shard whose pages these are; empty if it does not say."""
        try:
            return msgspec.json.decode(await self.read("/debug/queue"), type=_QueuePage).shard
        except (KubeError, msgspec.DecodeError):
            return ""


def _why(error: Exception) -> str:
    match error:
        case Unauthorized():
            return f"it shows this page to its own pod only, or to a token (401); {_FORWARD}"
        case Forbidden():
            return f"403 {error.message}; {_FORWARD}"
        case Unreachable():
            return f"no answer: {error.reason}"
        case ApiError():
            return f"{error.status} {error.message or error.reason}"
        case _:
            return f"its answer is no page of a replica ({error})"


def check_url(url: str) -> tuple[str, Endpoint]:
    """*url* with its scheme, and taken apart. Raises InputError if a replica cannot be reached there."""
    from kubeio.access.cluster import parse_server

    full = url if "://" in url else f"http://{url}"
    try:
        return full.rstrip("/"), parse_server(full, field_="--endpoint")
    except InputError:
        remedy = f"write http://127.0.0.1:{PORT}"
        raise InputError("--endpoint", url, "is no URL of a replica's probes", remedy) from None


@asynccontextmanager
async def at_url(url: str, *, timeout_s: float) -> AsyncIterator[DebugEndpoint]:
    """The replica at *url*. Raises InputError if that is no URL."""
    from kubeio.access.cluster import Cluster
    from kubeio.http.endpoint import Trust
    from kubeio.rest.client import Client

    full, endpoint = check_url(url)
    server = Cluster(full, "", "anonymous", endpoint, Trust(), None)
    async with Client(server, user_agent="ringleader-cli", max_connections=2) as client:
        yield DebugEndpoint(client, "", name=full, timeout_s=timeout_s)


def in_pod(client: Client, pod: Pod, *, port: int, timeout_s: float) -> DebugEndpoint:
    """The replica in *pod*, through the API server's proxy; needs `get` on `pods/proxy`."""
    base = PODS.path(namespace=pod.namespace, name=f"{pod.name}:{port}", subresource="proxy")
    return DebugEndpoint(client, base, name=f"pod {pod.namespace}/{pod.name}", timeout_s=timeout_s)
