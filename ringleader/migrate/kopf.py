"""`ringleader migrate kopf`: takes kopf's finalizer and annotations off existing objects, with ours in their place.

Owns which objects are changed and how often that is tried; what kopf's marks are is in `kopf_marks`. Every write tests
the version that was read: what somebody else changes meanwhile is read again. Nothing is changed before all is listed
and, without `--yes`, confirmed.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import typer

from kubeio.errors import Conflict, InputError, Invalid, KubeError, NotFound, first_error
from kubeio.models import HasMeta, Meta
from kubeio.program.failures import FAILED
from kubeio.resource import ApiResource
from ringleader.migrate.kopf_marks import FINALIZERS, Marks, marks_of, patch_of
from ringleader.options import ConnectionOptions, connected
from ringleader.output import print_line

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client

_AT_ONCE = 16
_ATTEMPTS = 5
_TOLD_EVERY = 500
_FINALIZER = re.compile(r"\A[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to migrate. *ours*: finalizers in the place of kopf's; the other two: what kopf's settings say."""

    kind: str
    namespace: str = ""
    ours: tuple[str, ...] = ()
    kopf_finalizers: tuple[str, ...] = ()
    kopf_prefixes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.ours:
            if _FINALIZER.match(name) is None:
                raise InputError(
                    "--finalizer", name, "cannot be a finalizer", "write DOMAIN/NAME, such as example.com/cdn"
                )

    def marks(self, meta: Meta) -> Marks:
        return marks_of(meta, finalizers=(*FINALIZERS, *self.kopf_finalizers), prefixes=self.kopf_prefixes)


class Ending(Enum):
    """What became of one object."""

    CHANGED = "changed"
    CLEAN = "clean"
    GONE = "gone"
    DELETING = "being deleted"
    BUSY = "changed by others again and again"


@dataclass(slots=True)
class Found:
    """The objects with kopf's marks, as they were listed."""

    resource: ApiResource
    total: int = 0
    marked: list[Meta] = field(default_factory=list)
    deleting: list[Meta] = field(default_factory=list)


def run_kopf(where: ConnectionOptions, order: Order, *, is_dry: bool, is_sure: bool) -> int:
    """The command. Exit code 1: some objects still carry kopf's marks. Raises: InputError, FailedAt."""

    async def work(client: Client, cluster: Cluster) -> int:
        found = await find(client, order, timeout_s=where.timeout_s)
        if is_dry:
            for line in told(found, order):
                print_line(line)
        if is_dry or not found.marked:
            print_line(_summary(found, is_dry=is_dry))
            return FAILED if found.deleting and not is_dry else 0
        if not is_sure and not _is_confirmed(found, cluster.server):
            print_line("nothing was changed")
            return FAILED
        return await _migrate(client, order, found, timeout_s=where.timeout_s)

    return connected(where, work)


async def find(client: Client, order: Order, *, timeout_s: float) -> Found:
    """Every object of the kind that carries kopf's marks. Only what is to be changed is kept in memory."""
    from kubeio.rest.discovery import Discovery

    resource = await Discovery(client).resolve(order.kind)
    if order.namespace and not resource.namespaced:
        remedy = "leave it out: objects of this kind have no namespace"
        raise InputError("--namespace", order.namespace, f"does not hold {resource.group_resource}", remedy)
    found = Found(resource)
    async for meta in _metas(client, resource, order.namespace, timeout_s=timeout_s):
        found.total += 1
        if marks := order.marks(meta):
            # a finalizer cannot be added any more; to take kopf's off would skip its clean-up
            is_left = meta.deletion_timestamp is not None and bool(marks.finalizers)
            (found.deleting if is_left else found.marked).append(meta)
    return found


async def _metas(
    client: Client, resource: ApiResource, namespace: str, *, timeout_s: float
) -> AsyncIterator[Meta]:
    async for page in client.pages(resource, namespace=namespace, metadata_only=True, timeout_s=timeout_s):
        for one in page.objects:
            yield one.meta


def told(found: Found, order: Order) -> Iterable[str]:
    """A line for each object that would be changed."""
    for meta in found.marked:
        marks = order.marks(meta)
        parts = []
        if marks.finalizers:
            ours = ", ".join(order.ours) or "nothing"
            parts.append(f"finalizer {', '.join(marks.finalizers)} -> {ours}")
        if marks.annotations:
            parts.append(f"without {', '.join(marks.annotations)}")
        yield f"{meta.key}: {'; '.join(parts)}"
    for meta in found.deleting:
        yield f"{meta.key}: is being deleted: left to kopf, whose delete handlers have not ended"


def _summary(found: Found, *, is_dry: bool) -> str:
    left = f", {len(found.deleting)} being deleted are left to kopf" if found.deleting else ""
    would = "would be changed (dry run: nothing was)" if is_dry else "to be changed"
    return f"{len(found.marked)} of {found.total} {found.resource.group_resource} {would}{left}"


def _is_confirmed(found: Found, server: str) -> bool:
    """Ask the person at the terminal. Raises: InputError if there is none."""
    if not sys.stdin.isatty():
        remedy = "give --yes to change them, or --dry-run to see what would be changed"
        raise InputError("--yes", False, "is needed: there is no terminal to ask on", remedy)
    question = f"{_summary(found, is_dry=False)} on {server}. Has the kopf operator been stopped? Go on?"
    return typer.confirm(question, err=True)


async def _migrate(client: Client, order: Order, found: Found, *, timeout_s: float) -> int:
    endings = await change_all(client, order, found, timeout_s=timeout_s)
    again = await find(client, order, timeout_s=timeout_s)
    counts = ", ".join(f"{endings.count(ending)} {ending.value}" for ending in Ending if ending in endings)
    print_line(f"{found.resource.group_resource}: {counts}")
    back = [meta for meta in again.marked if meta.uid in {listed.uid for listed in found.marked}]
    if back and Ending.BUSY not in endings:
        print_line(f"{len(back)} carry kopf's marks again, such as {back[0].key}: its operator still runs")
    return FAILED if again.marked or again.deleting else 0


async def change_all(client: Client, order: Order, found: Found, *, timeout_s: float) -> list[Ending]:
    """Change the marked objects, some at a time; how each ended. The first failure ends it."""
    waiting = iter(list(found.marked))
    endings: list[Ending] = []

    async def worker() -> None:
        for meta in waiting:
            endings.append(await change(client, order, found.resource, meta, timeout_s=timeout_s))
            _tell_progress(len(endings), len(found.marked))

    try:
        async with asyncio.TaskGroup() as tasks:
            for number in range(min(_AT_ONCE, len(found.marked))):
                tasks.create_task(worker(), name=f"migrate {number}")
    except* KubeError as failures:
        raise first_error(
            failures
        ) from None  # what fails for one, such as a right that is missing, fails for all
    return endings


async def change(
    client: Client, order: Order, resource: ApiResource, meta: Meta, *, timeout_s: float
) -> Ending:
    """Take kopf's marks off one object, in the version that *meta* shows or a newer one. Raises: KubeError."""
    for _ in range(_ATTEMPTS):
        marks = order.marks(meta)
        if not marks:
            return Ending.CLEAN
        if marks.finalizers and meta.deletion_timestamp is not None:
            return Ending.DELETING
        try:
            await client.patch(
                resource,
                meta.name,
                patch_of(meta, marks, ours=order.ours),
                namespace=meta.namespace,
                type=HasMeta,
                metadata_only=True,
                field_manager="ringleader-migrate",
                timeout_s=timeout_s,
            )
        except NotFound:
            return Ending.GONE
        except (Conflict, Invalid):
            newer = await _read(client, resource, meta, timeout_s=timeout_s)
            if newer is None:
                return Ending.GONE
            if newer.resource_version == meta.resource_version:
                raise  # not the version, but the content was refused
            meta = newer
        else:
            return Ending.CHANGED
    return Ending.BUSY


async def _read(client: Client, resource: ApiResource, meta: Meta, *, timeout_s: float) -> Meta | None:
    try:
        found = await client.get(
            resource,
            meta.name,
            namespace=meta.namespace,
            type=HasMeta,
            metadata_only=True,
            timeout_s=timeout_s,
        )
    except NotFound:
        return None
    return found.metadata


def _tell_progress(done: int, total: int) -> None:
    """On a terminal a line that counts, elsewhere a line now and then; always on stderr."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{done}/{total}" + ("\n" if done == total else ""))
        sys.stderr.flush()
    elif done % _TOLD_EVERY == 0 and done < total:
        sys.stderr.write(f"{done}/{total}\n")
