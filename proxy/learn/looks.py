"""Looks at the objects that a controller writes: before a write is sent, and after it was carried out.

Directs the relay of learn mode: everything passes unchanged; a write that is looked at waits for one GET. Bounded for
each kind, so that a busy controller is not slowed down.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from kubeio.errors import KubeError, NotFound
from kubeio.models import HasMeta, Meta, OwnerReference
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from kubeio.rest.request_info import RequestInfo
from proxy.director import Admitted, Selection, Write
from proxy.learn.comparing import copied_labels, template_labels
from proxy.learn.requests import LEASES, Call
from proxy.learn.seen import Seen, keep
from proxy.refusals import Refusal

LOOKS: Final = 30
"""Looks of each sort at objects of one kind."""
_WITHIN_S: Final = 5.0
_AT_ONCE: Final = 4
_CHANGES: Final = ("update", "patch", "delete")
_T = TypeVar("_T")


class Looks:
    """Director that limits nothing, refuses nothing and notes in *seen* what writes did. *tasks*: its own end them."""

    def __init__(self, seen: Seen, client: Client, tasks: asyncio.TaskGroup) -> None:
        self._seen: Final = seen
        self._client: Final = client
        self._tasks: Final = tasks
        self._discovery: Final = Discovery(client)
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._before: dict[Write, Meta] = {}
        self._made: Counter[tuple[str, str]] = Counter()
        self._owners: dict[tuple[str, str], str] = {}

    # -- Director ----------------------------------------------------------------------------------------

    def selection(self, request: RequestInfo) -> Selection | None:
        return None

    def reads_body(self, write: RequestInfo) -> bool:
        return False  # it is read once the answer came

    async def admit(self, write: Write) -> Admitted:
        info = write.info
        is_change = info.verb in _CHANGES and not info.subresource and info.group_resource != LEASES
        if is_change and self._may_look(info.group_resource, info.verb):
            before = await self._meta(info.group_resource, info.namespace, info.name)
            if before is not None:
                self._before[write] = before
        return Admitted()

    def begin(self, write: Write) -> None:
        """Nothing to note: `end` follows."""

    def alias(self, request: RequestInfo) -> None:
        """Nothing is hidden."""

    def instead_of(self, write: Write, answer: bytes) -> Refusal | None:
        """Every answer passes."""

    def end(self, write: Write, status: int | None) -> None:
        before = self._before.pop(write, None)
        if before is not None and status is not None and status < 300:
            self._start(self._compare(write.info, before))

    async def prepare(self) -> None:
        """Read the server's catalog: the first look must not come late. Raises: KubeError."""
        await self._discovery.refresh()

    # -- for the observer --------------------------------------------------------------------------------

    def note_created(self, call: Call) -> None:
        """An object was created by *call*."""
        if call.head is not None and call.is_about_objects:
            self._start(self._look_at_new(call, call.head.controller))

    # -- inside ------------------------------------------------------------------------------------------

    def _start(self, look: Coroutine[Any, Any, None]) -> None:
        self._tasks.create_task(look, name="look at a write")

    def _may_look(self, kind: str, what: str) -> bool:
        self._made[kind, what] += 1
        return self._made[kind, what] <= LOOKS

    async def _compare(self, info: RequestInfo, before: Meta) -> None:
        kind = self._seen.kind(info.group_resource)
        name = f"{info.namespace}/{info.name}".strip("/")
        if before.controller is not None:
            is_orphan = await self._is_orphan(info.namespace, before.controller)
            kind.orphans += is_orphan
        else:
            await self._note_namesakes(
                info.group_resource, info.namespace, info.name, is_gone=info.verb == "delete"
            )
        if info.verb == "delete":
            return
        after = await self._meta(info.group_resource, info.namespace, info.name)
        if after is None or after.uid != before.uid:
            return
        kind.finalizers += set(before.finalizers) != set(after.finalizers)
        kind.adopted += before.controller is None and after.controller is not None
        if info.verb == "update":
            for label in sorted(before.labels.keys() - after.labels.keys()):
                keep(kind.dropped, f"{name} lost {label}")

    async def _is_orphan(self, namespace: str, reference: OwnerReference) -> bool:
        """Whether the controller that *reference* names does not exist."""
        kind = await self._kind_of(reference)
        return await self._meta(kind, namespace, reference.name, counts_absence=True) is not None

    async def _look_at_new(self, call: Call, controller: OwnerReference | None) -> None:
        info, kind = call.info, self._seen.kind(call.info.group_resource)
        if controller is None:
            if call.name and self._may_look(info.group_resource, "namesakes"):
                await self._note_namesakes(info.group_resource, info.namespace, call.name, is_gone=False)
            return
        owner = await self._kind_of(controller)
        kind.created[owner] += 1
        if call.name and self._may_look(info.group_resource, "create"):
            await self._look_for_copies(call, owner, controller)

    async def _note_namesakes(self, resource: str, namespace: str, name: str, *, is_gone: bool) -> None:
        """Note kinds that the controller reads with an object of this name beside it, or (*is_gone*) without one."""
        kind = self._seen.kind(resource)
        for other, seen in list(self._seen.kinds.items()):
            if other == resource or not seen.is_read:
                continue
            if await self._meta(other, namespace, name, counts_absence=is_gone) is not None:
                (kind.left if is_gone else kind.beside)[other] += 1

    async def _look_for_copies(self, call: Call, owner: str, controller: OwnerReference) -> None:
        child = await self._whole(call.info.group_resource, call.info.namespace, call.name)
        found = template_labels(child) if child is not None else []
        if not found:
            return
        parent = await self._whole(owner, call.info.namespace, controller.name)
        if parent is None:
            return
        kind = self._seen.kind(call.info.group_resource)
        comparable, copied = copied_labels(parent, found)
        kind.templates += comparable
        for label in copied:
            keep(kind.copied, f"{label} of {controller.kind} {controller.name}")

    async def _kind_of(self, controller: OwnerReference) -> str:
        """Its resource (`deployments.apps`); its kind and group if the server does not serve it."""
        key = (controller.api_version, controller.kind)
        if key not in self._owners:
            group, _, version = controller.api_version.rpartition("/")
            text = f"{controller.kind}.{version}.{group}" if group else controller.kind
            found = await self._attempt(f"kind {text}", self._discovery.resolve(text))
            self._owners[key] = found.group_resource if found is not None else text
        return self._owners[key]

    async def _meta(
        self, resource: str, namespace: str, name: str, *, counts_absence: bool = False
    ) -> Meta | None:
        """Metadata of the object. None if it does not exist; with *counts_absence* only if it does."""
        kind = await self._attempt(f"kind {resource}", self._discovery.resolve(resource))
        if kind is None or kind.namespaced != bool(namespace):
            return None
        try:
            async with self._slots:
                found = await self._client.get(
                    kind, name, namespace=namespace, type=HasMeta, metadata_only=True, timeout_s=_WITHIN_S
                )
        except NotFound:
            return Meta() if counts_absence else None
        except KubeError as error:
            self._seen.gaps.add(f"GET {resource}: {type(error).__name__}")
            return None
        return None if counts_absence else found.metadata

    async def _whole(self, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        kind = await self._attempt(f"kind {resource}", self._discovery.resolve(resource))
        if kind is None:
            return None
        where = namespace if kind.namespaced else ""
        asked = self._client.get(kind, name, namespace=where, type=dict[str, Any], timeout_s=_WITHIN_S)
        return await self._attempt(f"GET {resource}", asked)

    async def _attempt(self, what: str, asked: Coroutine[Any, Any, _T]) -> _T | None:
        """What was *asked*; None, and a gap, if it cannot be had."""
        try:
            async with self._slots:
                return await asked
        except NotFound:
            return None
        except KubeError as error:
            self._seen.gaps.add(f"{what}: {type(error).__name__}")
            return None
