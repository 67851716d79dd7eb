"""What a controller did before the run, as managedFields show it, what its objects name, and who holds its locks.

Reads one page of each kind that the controller lists. Never writes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import msgspec

from kubeio.errors import KubeError
from kubeio.models import Lease, Meta
from kubeio.resource import LEASES
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from proxy.learn.references import named_kinds
from proxy.learn.seen import KindSeen, Seen
from proxy.learn.trees import find_trees

_LIMIT: Final = 500
_WHOLE: Final = 50
"""Whole objects of a kind."""
_WITHIN_S: Final = 20.0
T = TypeVar("T")


class _Fields(msgspec.Struct, rename="camel"):
    manager: str = ""
    subresource: str = ""
    fields_v1: msgspec.Raw = msgspec.field(name="fieldsV1", default=msgspec.Raw(b"{}"))

    def has(self, field: str) -> bool:
        return f'"f:{field}"'.encode() in bytes(self.fields_v1)


class _WrittenMeta(Meta, rename="camel"):
    managed_fields: list[_Fields] = msgspec.field(default_factory=list)


class _HasWrittenMeta(msgspec.Struct):
    metadata: _WrittenMeta


class _Page(msgspec.Struct, Generic[T]):
    items: list[T] | None = None


async def survey(seen: Seen, client: Client, *, since: datetime) -> None:
    """Fill what *seen* says of earlier writes, of objects made before *since*, and of holders of locks."""
    discovery = Discovery(client)
    managers, kinds = seen.agents | seen.managers, {}
    for name in [name for name, kind in seen.kinds.items() if kind.is_read]:
        try:
            resource = await discovery.resolve(name)
            kinds[f"{resource.kind}.{resource.group}".rstrip(".")] = name
        except KubeError as error:
            seen.gaps.add(f"kind {name}: {type(error).__name__}")
    for name in kinds.values():
        for each in await _read(
            seen, client, discovery, name, page=_Page[_HasWrittenMeta], limit=_LIMIT, metadata_only=True
        ):
            if _is_older(each.metadata, since):
                _note(seen.kind(name), each.metadata, managers=managers, kinds=kinds)
    await _note_names(seen, client, discovery, kinds)
    await _note_holders(seen, client)


async def _read(
    seen: Seen,
    client: Client,
    discovery: Discovery,
    name: str,
    *,
    page: type[_Page[T]],
    limit: int,
    metadata_only: bool = False,
) -> list[T]:
    """*limit* objects of the kind *name* in each namespace where it is read; what fails is a gap."""
    found: list[T] = []
    for where in sorted(seen.kind(name).namespaces):
        try:
            answer = await client.list_as(
                await discovery.resolve(name),
                type=page,
                namespace=where,
                limit=limit,
                metadata_only=metadata_only,
                timeout_s=_WITHIN_S,
            )
        except KubeError as error:
            seen.gaps.add(f"LIST {name}: {type(error).__name__}")
            continue
        found += answer.items or ()
    return found


def _is_older(meta: Meta, since: datetime) -> bool:
    try:
        return datetime.fromisoformat(meta.creation_timestamp or "") < since
    except (ValueError, TypeError):
        return False


def _note(kind: KindSeen, meta: _WrittenMeta, *, managers: set[str], kinds: dict[str, str]) -> None:
    """Note what *managers* wrote of the object; *kinds*: resources by `Kind.group`."""
    for entry in meta.managed_fields:
        if entry.manager not in managers:
            continue
        if entry.subresource == "status":
            kind.earlier_writes["status"] += 1
        if entry.has("finalizers"):
            kind.earlier_writes["finalizers"] += 1
        if entry.has("ownerReferences") and (owner := meta.controller) is not None:
            group, kind_name = owner.group_kind
            if (name := kinds.get(f"{kind_name}.{group}".rstrip("."))) is not None:
                kind.earlier_owners[name] += 1


async def _note_names(seen: Seen, client: Client, discovery: Discovery, kinds: dict[str, str]) -> None:
    """Note which kinds of roots objects of the trees name; *kinds*: resources by `Kind.group`."""
    trees = find_trees(seen)
    wanted = {kind.partition(".")[0]: name for kind, name in kinds.items() if name in trees.roots}
    for name in trees.roots:
        for each in await _read(seen, client, discovery, name, page=_Page[dict[str, Any]], limit=_WHOLE):
            for other, example in named_kinds(each, wanted, own=name).items():
                seen.kind(name).named.setdefault(other, example)


async def _note_holders(seen: Seen, client: Client) -> None:
    for lock in seen.awaited_locks():
        try:
            lease = await client.get(LEASES, lock.name, namespace=lock.namespace, type=Lease)
        except KubeError:
            continue
        seen.holders[lock] = lease.spec.holder_identity or ""
