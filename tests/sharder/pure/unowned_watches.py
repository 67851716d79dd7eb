"""Unowned watches over a server of pages and events, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TypeVar, cast

import msgspec
import pytest

from kubeio.errors import KubeError, ServerFailure
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from sharder.ringspec.scope import EVERYWHERE
from sharder.unowned import reflector
from sharder.unowned.access import ObjectAccess
from sharder.unowned.pending import PendingObjects
from sharder.unowned.permissions import MissingPermissions
from sharder.unowned.reflectors import UnownedReflectors
from tests.kubeio.virtual import LoopClock, rng
from tests.kubeio.watches.fake_server import FakeServer
from tests.sharder.pure.views import KEYS, WEBSITES

pytestmark = pytest.mark.looptime

T = TypeVar("T")
PAGE = reflector.PAGE


class Servers:
    """One fake server for each of two resources."""

    def __init__(self) -> None:
        self.websites = FakeServer()
        self.configmaps = FakeServer()
        self.on_their_way_s = 0.0
        """How long a list that was made is on its way."""
        self.selectors: dict[str, list[str]] = {"websites": [], "configmaps": []}
        """Of the first pages that were asked for, each one once."""
        self.without_numbers = ""
        """The resource whose versions are no numbers."""
        self.orphans = FakeServer()
        """What a list of `shard in (...)` shows."""

    def _of(self, plural: str) -> FakeServer:
        return self.websites if plural.endswith("websites") else self.configmaps

    async def list_as(
        self,
        resource: ApiResource,
        *,
        type: type[T],  # noqa: A002 - the client's word
        limit: int,
        label_selector: str,
        continue_: str = "",
        **_: object,
    ) -> T:
        if label_selector not in self.selectors[resource.plural]:
            self.selectors[resource.plural].append(label_selector)
        server = self.orphans if " in (" in label_selector else self._of(resource.plural)
        page = await server.list_page(WEBSITES, limit=limit, continue_=continue_)
        await asyncio.sleep(self.on_their_way_s)
        items = b",".join(item.raw for item in page.objects)
        prefix = "opaque-" if resource.plural == self.without_numbers else ""
        meta = msgspec.json.encode(
            {"resourceVersion": prefix + page.resource_version, "continue": page.continue_}
        )
        return msgspec.json.decode(b'{"metadata":%s,"items":[%s]}' % (meta, items), type=type)

    def stream(
        self, path: str, *, query: Mapping[str, str], **more: Any
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._of(path).stream("/apis/example.com/v1/websites", query=query, **more)


class Watched:
    """An unowned watch over *resources*, and what it told."""

    def __init__(self, *resources: ApiResource, controlled: tuple[ApiResource, ...] = ()) -> None:
        self.servers = Servers()
        self.pending = PendingObjects()
        self.waiting = 0
        self.enqueued: list[str] = []
        self.reported: list[str] = []
        self.listed: list[float] = []
        clock = LoopClock()
        self.permissions = MissingPermissions(
            now=clock.now, on_change=lambda right, missing: self.reported.append(f"{right} {missing}")
        )
        self.access = ObjectAccess(cast(Client, self.servers), self.permissions, clock, rng())
        self.unowned = UnownedReflectors(
            self.access,
            resources,
            self.pending,
            self,
            keys=KEYS,
            scope=EVERYWHERE,
            controlled=controlled,
        )

    def enqueue_name(self, name: str) -> None:
        self.enqueued.append(name[1:])

    def controlled_listed(self) -> None:
        self.enqueue_all()

    def enqueue_all(self) -> None:
        self.listed.append(asyncio.get_running_loop().time())

    def backlog(self) -> int:
        return self.waiting

    @property
    def server(self) -> FakeServer:
        return self.servers.websites

    def fill(self, count: int) -> None:
        for number in range(count):
            self.server.put(f"site-{number:05}")

    def settle(self, name: str) -> None:
        """The assigner assigned it: it leaves the selection."""
        found = self.pending.by_name(self.pending.prefix(WEBSITES.group_resource) + f"default/{name}")
        assert found is not None
        self.pending.drop_up_to(self.pending.name(found.ref), int(found.meta.resource_version))
        self.server.remove(name)


@asynccontextmanager
async def watching(
    *resources: ApiResource, controlled: tuple[ApiResource, ...] = ()
) -> AsyncIterator[Watched]:
    watched = Watched(*(resources or (WEBSITES,)), controlled=controlled)
    running = asyncio.create_task(watched.unowned.run())
    yield watched
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


def broken(count: int = 1000) -> list[KubeError]:
    message = "conversion webhook for example.com/v1, Kind=Website failed: connection refused"
    return [ServerFailure("LIST configmaps", status=500, reason="InternalError", message=message)] * count
