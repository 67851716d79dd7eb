"""Every change that etcd carried out, in its order, past all API servers: what no restart of theirs can hide.

Readable values need an API server that stores JSON: `STORES_JSON`.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import aiohttp
import msgspec

from devcluster.children import PlaneFailed

STORES_JSON: Final = "--storage-media-type=application/json"
"""Flag of kube-apiserver."""
_ALL: Final = base64.b64encode(b"\0").decode()
"""As key and as end of the range: every key."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One change: *key* is `/registry/pods/web/a`; *revision* is the object's resourceVersion; no *value*: deleted."""

    key: str
    revision: int
    value: bytes


class _Pair(msgspec.Struct):
    key: str
    mod_revision: str
    value: str = ""


class _Event(msgspec.Struct):
    kv: _Pair


class _Header(msgspec.Struct):
    revision: str = "0"


class _Result(msgspec.Struct):
    header: _Header = msgspec.field(default_factory=_Header)
    events: list[_Event] = []
    canceled: bool = False


class _Line(msgspec.Struct):
    result: _Result


class _Range(msgspec.Struct):
    header: _Header


async def watch_etcd(etcd_url: str, *, since: int = 1) -> AsyncIterator[list[Stored]]:
    """Changes from revision *since* on, for ever, several at a time.

    Raises: PlaneFailed if etcd ends, or has forgotten *since*.
    """
    request = {"create_request": {"key": _ALL, "range_end": _ALL, "start_revision": str(since)}}
    timeout = aiohttp.ClientTimeout(total=None)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, read_bufsize=1 << 26) as session,
            session.post(f"{etcd_url}/v3/watch", json=request) as answer,
        ):
            answer.raise_for_status()
            async for line in answer.content:
                result = _decode(line).result
                if result.canceled:
                    raise PlaneFailed(f"etcd does not show its changes since revision {since}")
                yield [_stored(event.kv) for event in result.events]
    except aiohttp.ClientError as error:
        raise PlaneFailed(f"etcd shows its changes no longer: {error!r}") from error
    raise PlaneFailed("etcd shows its changes no longer: it ended")


async def newest_revision(etcd_url: str) -> int:
    """The revision of the last change that etcd carried out. Raises: PlaneFailed."""
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{etcd_url}/v3/kv/range", json={"key": _ALL, "count_only": True}) as answer,
        ):
            answer.raise_for_status()
            return int(msgspec.json.decode(await answer.read(), type=_Range).header.revision)
    except aiohttp.ClientError as error:
        raise PlaneFailed(f"etcd does not answer: {error!r}") from error


_decode = msgspec.json.Decoder(_Line).decode


def _stored(pair: _Pair) -> Stored:
    return Stored(base64.b64decode(pair.key).decode(), int(pair.mod_revision), base64.b64decode(pair.value))
