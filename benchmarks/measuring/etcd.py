"""Bulk writes past the API server, into its etcd: how 100,000 objects come and are set back within a minute.

What is written is what the API server itself had written before for an object of that kind, so that it serves them
like its own; each write is a revision of its own, as the API server's are. Speaks etcd's JSON gateway.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from benchmarks.measuring.senders import spread
from kubeio.access.cluster import Cluster, parse_server
from kubeio.http.endpoint import Trust
from kubeio.rest.client import Client

_AT_ONCE: Final = 32


class _Pair(msgspec.Struct):
    value: str


class _Header(msgspec.Struct):
    revision: str


class _Range(msgspec.Struct):
    header: _Header
    kvs: list[_Pair] = []


class EtcdFailed(Exception):
    """etcd has no such key."""


def etcd_client(url: str) -> Client:
    """Connections to the etcd at *url*."""
    cluster = Cluster(
        server=url,
        namespace="",
        user="anonymous",
        endpoint=parse_server(url, field_="etcd"),
        trust=Trust(),
        proxy=None,
    )
    return Client(cluster, max_connections=_AT_ONCE, user_agent="ringleader-bench")


class Etcd:
    """The keys of an etcd, by its JSON gateway."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, key: str) -> bytes:
        """The value of *key*. Raises: EtcdFailed if there is none."""
        found = await self._range(key)
        if not found.kvs:
            raise EtcdFailed(f"etcd has no {key}")
        return base64.b64decode(found.kvs[0].value)

    async def put_all(self, pairs: Iterable[tuple[str, bytes]], *, tick: Callable[[int], None]) -> None:
        """Write every pair; *tick* gets the number of those written since."""

        async def put(pair: tuple[str, bytes]) -> None:
            key, value = pair
            await self._post("/v3/kv/put", {"key": _text(key.encode()), "value": _text(value)})
            tick(1)

        await spread(put, pairs, at_once=_AT_ONCE)

    async def compact(self) -> None:
        """Forget the history so far: each measurement begins with an equally small database."""
        found = await self._range("/")
        await self._post("/v3/kv/compaction", {"revision": found.header.revision, "physical": True})

    async def _range(self, key: str) -> _Range:
        answer = await self._post("/v3/kv/range", {"key": _text(key.encode())})
        return msgspec.json.decode(answer, type=_Range)

    async def _post(self, path: str, body: dict[str, object]) -> bytes:
        answer = await self._client.request("POST", path, body=msgspec.json.encode(body), timeout_s=60)
        return answer.body


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
