"""Reflector of one resource's objects that need an owner, under one selector: pages and a watch at the same time.

The first page fixes a version, and the watch begins there at once: an object created during a long list is seen within
milliseconds. The other pages come one by one, as fast as the assigner handles them: many pending objects hold back the
list, never the watch. Recovers by itself; feeds `PendingObjects`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from kubeio.backoff import ExponentialBackoff
from kubeio.cancellation import cancellable
from kubeio.errors import (
    ApiError,
    Expired,
    Forbidden,
    HistoryWentBack,
    InputError,
    KubeError,
    NotFound,
    ServerFailure,
    Unauthorized,
    first_error,
)
from kubeio.models import ListMeta
from kubeio.versions import UNKNOWN, is_older, newest, number, order
from kubeio.watches.reflector import Bookmark, Changed, Gap, Removed, WatchEvent
from sharder.unowned.pending import AssignmentPriority, ListedMeta
from sharder.unowned.permissions import TRY_AGAIN_S, Permission

if TYPE_CHECKING:
    from kubeio.models import Meta, Object
    from kubeio.resource import ApiResource
    from sharder.unowned.access import ObjectAccess
    from sharder.unowned.pending import PendingObjects

log = structlog.get_logger("sharder")

PAGE: Final = 1000
"""Objects in a page: large pages cost the server less in all, small ones need less memory here."""
GIVES_UP_S: Final = 10.0
"""A first list that failed for so long delays no other resource any more; it is retried."""
_FINAL: Final = (InputError, Unauthorized)
"""A first list that fails like this ends the run under this spec: discovery or authentication has to be repeated."""


ListScope = tuple["ApiResource", str]
"""One list: a resource, in one namespace or (empty) in all."""


class _Item(msgspec.Struct, gc=False):
    metadata: ListedMeta


class _Page(msgspec.Struct, gc=False):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[_Item] | None = None


class UnownedReflector:
    """One resource under one selector, until cancelled.

    *may_list* is awaited before each page is taken in. *on_listed* is called once the list is complete.
    """

    def __init__(
        self,
        access: ObjectAccess,
        place: ListScope,
        pending: PendingObjects,
        *,
        label_selector: str,
        shard_label: str,
        on_pending: Callable[[str], None],
        on_listed: Callable[[], None],
        may_list: Callable[[], Awaitable[None]],
    ) -> None:
        self.resource, self.namespace = place
        self.area: Final = pending.area(self.resource.group_resource, self.namespace)
        self.begun = asyncio.Event()
        """A first page was read: the watch shows everything from now on."""
        self.listed = asyncio.Event()
        """A whole list was read."""
        self._access = access
        self._client = access.client
        self._permissions = access.permissions
        self._clock = access.clock
        self._rng = access.rng
        self._label_selector = label_selector
        self._shard_label = shard_label
        self._pending = pending
        self._on_pending = on_pending
        self._on_listed = on_listed
        self._may_list = may_list
        self._backoff = ExponentialBackoff(base_s=0.25, max_s=10.0, healthy_s=60.0, rng=access.rng)
        self._prefix = pending.prefix(self.resource.group_resource)
        self._version = ""
        self._listing: asyncio.Task[None] | None = None
        self._is_superseded = False
        self._made_at = access.clock.now()

    def stop_listing(self) -> None:
        """Stop the list, which a newer reflector reads instead; the watch goes on."""
        self._is_superseded = True
        if self._listing is not None:
            self._listing.cancel()

    async def run(self) -> None:
        """Raises what makes the first list impossible, and at any time NotFound: another version may be served."""
        while True:
            try:
                await cancellable(self._see(), name=f"unowned {self.resource.group_resource}")
            except* KubeError as group:
                error = first_error(group)
                if isinstance(error, Forbidden):
                    await self._denied(error)
                elif isinstance(error, NotFound) or (not self.begun.is_set() and isinstance(error, _FINAL)):
                    raise error from None
                else:
                    self._failed(error)
                    await self._back_off(error)

    def _failed(self, error: KubeError) -> None:
        """The server cannot list this resource: reported and retried. Other resources wait for it a while at most."""
        self._permissions.failed(self._right("list"), error)
        if self._clock.now() - self._made_at >= GIVES_UP_S:
            self._count_as_listed()

    def _count_as_listed(self) -> None:
        if not self.listed.is_set():
            self.listed.set()
            self._on_listed()

    async def list_orphans(self, selectors: Iterable[str]) -> None:
        """Take in what *selectors* match: objects of dead names, which the watch does not show. Raises KubeError.

        Ends early when too many objects of the resource wait: the next list shows the rest.
        """
        for selector in selectors:
            page = _Page(ListMeta(continue_=""))
            while not self._pending.is_full(self.resource.group_resource):
                await self._may_list()
                page = await self._page(page.metadata.continue_, label_selector=selector)
                for item in page.items or ():
                    name = self._name(item.metadata)
                    if self._pending.put_named(
                        name, item.metadata, at=self._clock.now(), priority=AssignmentPriority.ORPHANED
                    ):
                        self._on_pending(name)
                if not page.metadata.continue_:
                    break

    async def _denied(self, error: Forbidden) -> None:
        """Report the missing permission and retry; other resources do not wait for this list meanwhile."""
        self._permissions.failed(self._right("list"), error)
        self.begun.set()
        self._count_as_listed()
        await asyncio.sleep(TRY_AGAIN_S * self._rng.uniform(0.9, 1.1))

    def _right(self, verb: str) -> Permission:
        return Permission(verb, self.resource.group_resource, self.namespace)

    async def _see(self) -> None:
        """Read a list and follow the watch from its version on, until the watch cannot go on."""
        page = await self._first_page()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(), name=f"unowned watch {self.resource.group_resource}")
            if not self._is_superseded:
                self._listing = tasks.create_task(
                    self._list(page), name=f"unowned list {self.resource.group_resource}"
                )
            del page
            self.begun.set()

    # -- list

    async def _list(self, page: _Page) -> None:
        while True:
            try:
                await self._read_pages(page)
            except Expired:
                # Reading took longer than the server keeps history. What was assigned meanwhile is not shown again.
                page = await self._first_page()
            else:
                break
        self._count_as_listed()

    async def _first_page(self) -> _Page:
        if not self._is_superseded:
            self._pending.begin_list(self.area)  # before it is sent: objects handled from now on count
        seen = self._version
        page = await self._page("")
        self._check_order(page.metadata.resource_version)
        self._permissions.granted(self._right("list"))
        version = page.metadata.resource_version
        if is_older(version, seen):  # first pages are consistent reads
            raise HistoryWentBack(f"LIST {self.resource.group_resource}", version=version, seen=seen)
        self._version = newest(self._version, version)
        return page

    def _check_order(self, version: str) -> None:
        """Raises ServerFailure: an aggregated server's versions may be anything."""
        if number(version) == UNKNOWN:
            message = (
                f"resourceVersion {version!r} is no number: objects of this resource cannot be distributed"
            )
            raise ServerFailure(f"LIST {self.resource.group_resource}", status=500, message=message)

    async def _read_pages(self, page: _Page) -> None:
        version = order(page.metadata.resource_version)
        while True:
            await self._may_list()
            self._take_in(page)
            continue_ = page.metadata.continue_
            if not continue_:
                break
            page = _Page()  # the memory of one page, not of two
            page = await self._later_page(continue_)
        self._pending.end_list(self.area, version)

    async def _later_page(self, continue_: str) -> _Page:
        await self._may_list()
        while True:
            try:
                return await self._page(continue_)
            except Expired:
                raise
            except KubeError as error:
                await self._back_off(error)

    async def _page(self, continue_: str, *, label_selector: str | None = None) -> _Page:
        return await self._client.list_as(
            self.resource,
            type=_Page,
            namespace=self.namespace,
            label_selector=self._label_selector if label_selector is None else label_selector,
            limit=PAGE,
            continue_=continue_,
            metadata_only=True,
        )

    def _take_in(self, page: _Page) -> None:
        now = self._clock.now()
        for item in page.items or ():
            meta = item.metadata
            name = self._name(meta)
            priority = AssignmentPriority.ORPHANED if self._has_owner(meta) else AssignmentPriority.BACKLOG
            if self._pending.put_listed(self.area, name, meta, at=now, priority=priority):
                self._on_pending(name)

    # -- watch

    async def _watch(self) -> None:
        watch = self._access.list_watch(
            self.resource,
            namespace=self.namespace,
            label_selector=self._label_selector,
            since=self._version,
        )
        async for event in watch.events():
            self._handle(event)

    def _handle(self, event: WatchEvent) -> None:
        match event:
            case Changed(object=item):
                self._saw(item)
                self._permissions.granted(self._right("watch"))
            case Removed(object=item):
                self._permissions.granted(self._right("watch"))
                version = item.meta.resource_version
                self._version = newest(self._version, version)
                self._pending.drop_up_to(self._name(item.meta), int(version or 0))
            case Bookmark(resource_version=version):
                self._permissions.granted(self._right("watch"))
                self._version = newest(self._version, version)
            case Gap(error=error, retry_in_s=retry_in_s):
                self._permissions.failed(self._right("watch"), error)
                self._log_interruption(error, retry_in_s)
            case _:
                pass

    def _saw(self, item: Object) -> None:
        self._version = newest(self._version, item.meta.resource_version)
        name = self._name(item.meta)
        priority = AssignmentPriority.ORPHANED if self._has_owner(item.meta) else AssignmentPriority.NEW
        if self._pending.put_seen(name, item.meta, at=self._clock.now(), priority=priority):
            self._on_pending(name)

    # -- both

    def _name(self, meta: Meta | ListedMeta) -> str:
        return f"{self._prefix}{meta.namespace}/{meta.name}"

    def _has_owner(self, meta: Meta | ListedMeta) -> bool:
        return meta.labels is not None and self._shard_label in meta.labels

    async def _back_off(self, error: KubeError) -> None:
        asked_s = error.retry_after_s if isinstance(error, ApiError) else None
        delay_s = self._backoff.failed(self._clock.now(), at_least_s=asked_s or 0.0)
        self._log_interruption(error, delay_s)
        await asyncio.sleep(delay_s)

    def _log_interruption(self, error: KubeError, retry_in_s: float) -> None:
        log.warning(
            "unowned watch interrupted",
            resource=self.resource.group_resource,
            error=str(error),
            retry_in_s=round(retry_in_s, 2),
        )
