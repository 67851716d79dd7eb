"""The part of a ControllerRing that a shard reads: where its Leases are, and what it distributes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kubeio.errors import InputError, KubeError, NotFound
from kubeio.models import GroupResource, HasMeta, Meta
from kubeio.program.failures import names_an_object
from kubeio.program.yaml_file import read_document
from kubeio.protocol import CONTROLLER_RINGS, DEFAULT_DOMAIN, RingEntry, RingKeys
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from kubeio.suggestions import nearest

log = structlog.get_logger("kubeio")

_RING_POLL_S: Final = 10.0


class FormerLease(msgspec.Struct, frozen=True):
    """The former controller's leader-election Lease."""

    namespace: str
    name: str


class ActivationView(msgspec.Struct, frozen=True):
    """How the ring takes over from a controller that had one leader."""

    lease: FormerLease


class RingViewSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of a ring's spec that a replica reads."""

    lease_namespace: str
    resources: list[RingEntry] = []
    label_domain: str = DEFAULT_DOMAIN
    key: str = "Object"
    max_lease_duration_seconds: int = 60
    activation: ActivationView | None = None


class RingView(msgspec.Struct, frozen=True):
    """The part of a ring that a replica reads."""

    metadata: Meta
    spec: RingViewSpec

    @property
    def keys(self) -> RingKeys:
        """Every label and annotation of the ring."""
        return RingKeys(self.metadata.name, self.spec.label_domain)

    def entry(self, resource: ApiResource) -> RingEntry:
        """The ring's entry for *resource*. Raises: InputError."""
        for entry in self.spec.resources:
            if str(entry.main) == resource.group_resource:
                return msgspec.structs.replace(entry, controlled_resources=self.below(entry))
        listed = ", ".join(str(entry.main) for entry in self.spec.resources) or "nothing"
        raise InputError(
            "--ring",
            self.metadata.name,
            f"does not distribute {resource.group_resource} (only {listed})",
            f"add {{group: {resource.group!r}, resource: {resource.plural}}} to its spec.resources",
        )

    def below(self, entry: RingEntry) -> list[GroupResource]:
        """Resources that follow objects of *entry*, at any depth: a tree moves as a whole (key Owner)."""
        below = list(entry.controlled_resources)
        for kind in below:  # grows meanwhile
            deeper = (each.controlled_resources for each in self.spec.resources if each.main == kind)
            below += [found for kinds in deeper for found in kinds if found not in below]
        return [kind for kind in below if kind != entry.main]


def ring_from_file(path: Path, name: str = "") -> RingView:
    """The ring in the file at *path*; *name*: what it must be called. Raises: InputError."""
    try:
        view = msgspec.convert(read_document("--ring-file", path), RingView)
    except msgspec.ValidationError as error:
        raise InputError("--ring-file", str(path), f"cannot be read ({error})", "correct the ring") from None
    if name not in ("", view.metadata.name):
        raise InputError("--ring", name, f"is not the ring in {path}", f"leave it out: {view.metadata.name}")
    return view


async def read_ring(client: Client, name: str) -> RingView:
    """The ring *name*. Raises: InputError if it is missing or unreadable."""
    try:
        return await client.get(CONTROLLER_RINGS, name, type=RingView)
    except NotFound as error:
        if not names_an_object(error):
            raise  # the resource itself is not installed
        problem = f"does not exist on {client.cluster.server}"
        raise InputError("--ring", name, problem, await _other_ring(client, name)) from None
    except msgspec.ValidationError as error:
        raise InputError("--ring", name, f"cannot be read ({error})", "correct the ring's spec") from error


async def _other_ring(client: Client, name: str) -> str:
    """Text for a remedy: the ring that was perhaps meant by *name*."""
    try:
        page = await client.list_page(CONTROLLER_RINGS, metadata_only=True, limit=100)
    except KubeError:  # a replica needs no right to list rings
        return "create it (kubectl apply -f ring.yaml) or name another"
    known = nearest(name, [ring.meta.name for ring in page.objects])
    return f"create it (kubectl apply -f ring.yaml) or name another: {known}"


async def controlled_resources(
    discovery: Discovery, entry: RingEntry, owned: dict[str, ApiResource]
) -> list[ApiResource]:
    """Every resource that the ring says is controlled by *entry*, in the version that *owned* declares.

    Raises: InputError if something owned is not controlled: it would not move with its parent.
    """
    by_name = {resource.group_resource: resource for resource in owned.values()}
    listed = {str(controlled) for controlled in entry.controlled_resources}
    for text, resource in owned.items():
        if resource.group_resource not in listed:
            raise InputError(
                "owns",
                text,
                f"is not among the ring's controlledResources of {entry.main}",
                f"add {{group: {resource.group!r}, resource: {resource.plural}}} there",
            )
    return [by_name.get(name) or await discovery.resolve(name) for name in sorted(listed)]


def check_lasts(view: RingView) -> None:
    """See that the ring of *view* is to stay. Raises: InputError.

    A held Lease keeps the ring: replicas that are restarted for ever would never let it go.
    """
    if view.metadata.deletion_timestamp is not None:
        raise InputError(
            "--ring", view.metadata.name, "is being deleted", "wait until it is gone, then create it anew"
        )


async def wait_ring_over(
    client: Client, ring: str, *, is_empty: Callable[[], bool], rng: random.Random
) -> None:
    """Return once *ring* is being deleted, or gone, and the shard *is_empty*."""
    while True:
        await asyncio.sleep(_RING_POLL_S * rng.uniform(0.8, 1.2))
        try:
            is_ending = await is_ring_ending(client, ring)
        except KubeError as error:
            log.debug("ring not read", error=str(error))
            continue
        if is_ending and is_empty():
            log.info("ring is going away", ring=ring)
            return


async def is_ring_ending(client: Client, name: str) -> bool:
    """Whether the ring *name* is being deleted, or gone. Reads its metadata, as the server's cache has it.

    A thousand replicas ask all day: the whole ring has a row for each of them in its status. Raises KubeError.
    """
    try:
        ring = await client.get(CONTROLLER_RINGS, name, type=HasMeta, metadata_only=True, any_version=True)
    except NotFound:
        return True
    return ring.metadata.deletion_timestamp is not None
