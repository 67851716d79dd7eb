"""One object: its cause, and everything that led to it. Reads only; what may not be read is a gap, not an error."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kubeio.errors import InputError, KubeError, NotFound
from kubeio.models import ObjectKey
from kubeio.observed import observed
from kubeio.program.failures import failure
from ringleader.cluster.causes import Cause
from ringleader.cluster.debug_endpoint import DebugAnswer, at_url, in_pod
from ringleader.cluster.events import ClusterEvent, read_events
from ringleader.cluster.object_causes import cause_of, two_owners
from ringleader.cluster.object_reader import read_state
from ringleader.cluster.object_state import ObjectState
from ringleader.cluster.objects import read_object, resolve_kind, ring_kinds
from ringleader.cluster.placement import Placer
from ringleader.cluster.reader import ClusterReader
from ringleader.cluster.ring import choose_ring
from ringleader.describe.work import cause_at_work, well

if TYPE_CHECKING:
    from kubeio.models import Meta
    from kubeio.resource import ApiResource
    from kubeio.rest.discovery import Discovery
    from ringleader.cluster.debug_endpoint import DebugEndpoint

EVENTS: Final = 5
_ENDPOINT_S: Final = 10.0


class EndpointOptions(NamedTuple):
    """Way to the owner's debug page: by *url*, or to its pod through the API server."""

    url: str | None = None
    pod_port: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """An object with all that was read for it."""

    resource: ApiResource
    state: ObjectState
    observed: int | None = None
    """The generation that its status says is observed; None if it does not say."""
    asked: DebugAnswer | None = None
    """The answer of its owner; None: there is no live owner, or no way to it."""
    events: list[ClusterEvent] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.resource.group_resource}/{self.state.meta.key}"

    @property
    def cause(self) -> Cause:
        """The one cause that explains the object; that all is well, if nothing is off."""
        found = cause_of(self.state)
        if found is not None:
            return found
        at_work = cause_at_work(self.state, self.asked, self.observed)
        if at_work is not None and at_work.is_wrong:
            return at_work
        return two_owners(self.state) or at_work or well(self.state)


# ---- reading --------------------------------------------------------------------------------------------------


async def read_placed(
    reader: ClusterReader, discovery: Discovery, kind: str, key: ObjectKey, *, ring_name: str | None
) -> Found:
    """The object *key* of *kind*, where it is and belongs. Raises: InputError, KubeError."""
    snapshot = (await reader.snapshot()).require("rings")
    rings = [each.ring for each in snapshot.rings]
    resource = await resolve_kind(discovery, rings, kind)
    ring = choose_ring(rings, resource, ring_name)
    snapshot.require(f"leases:{ring.name}")
    meta = await read_object(reader.client, resource, key, timeout_s=reader.timeout_s)
    placer = Placer(reader.client, snapshot.of(ring.name), await ring_kinds(discovery, ring))
    state = await read_state(reader, snapshot, placer, resource, meta)
    if state is None:
        raise InputError(
            "KIND/NAME",
            f"{resource.group_resource}/{meta.key}",
            f"has no controller, so ring {ring.name} does not distribute it",
            f"ask for an object that a {(ring.mains or ['main resource'])[0]} controls",
        )
    return Found(resource, state)


async def read_found(
    reader: ClusterReader, kind: str, key: ObjectKey, *, ring_name: str | None, endpoint: EndpointOptions
) -> Found:
    """All that is known of the object *key* of *kind*. Raises: InputError, KubeError."""
    from kubeio.rest.discovery import Discovery

    placed = await read_placed(reader, Discovery(reader.client), kind, key, ring_name=ring_name)
    unread = [gap.summary for part, gap in placed.state.snapshot.gaps.items() if part == "namespaces"]
    asked = await _ask(reader, placed, endpoint)
    seen = await _observed(reader, placed)
    events: list[ClusterEvent] = []
    try:
        events = await _events(reader, placed.state.meta)
    except KubeError as error:
        unread.append(f"events: {failure(error).message}")
    return Found(placed.resource, placed.state, seen, asked, events, unread)


async def _observed(reader: ClusterReader, found: Found) -> int | None:
    """The generation in the object's status, for which it is read whole."""
    meta = found.state.meta
    try:
        raw = await reader.client.get(
            found.resource, meta.name, namespace=meta.namespace, type=bytes, timeout_s=reader.timeout_s
        )
    except NotFound:
        return None
    whole = observed(raw)
    return whole.generation if whole is not None else None


async def _ask(reader: ClusterReader, found: Found, options: EndpointOptions) -> DebugAnswer | None:
    """The owner's own answer about the object, if it lives and there is a way to it."""
    owner, above = found.state.owner, found.state.controller
    if owner is None or not owner.is_live:
        return None
    async with AsyncExitStack() as stack:
        if options.url is not None:
            at = at_url(options.url, timeout_s=min(reader.timeout_s, _ENDPOINT_S))
            endpoint: DebugEndpoint = await stack.enter_async_context(at)
        elif options.pod_port is not None:
            endpoint = in_pod(reader.client, owner.pod, port=options.pod_port, timeout_s=reader.timeout_s)
        else:
            return None
        return await endpoint.object_page(above.key if above is not None else found.state.meta.key)


async def _events(reader: ClusterReader, meta: Meta) -> list[ClusterEvent]:
    """The last Events about the object; of its namesakes that are gone none."""

    def is_wanted(event: ClusterEvent) -> bool:
        return event.name == meta.name and event.uid in ("", meta.uid)

    return await read_events(
        reader.client,
        is_wanted,
        namespace=meta.namespace,
        about=meta.name,
        limit=EVENTS,
        timeout_s=reader.timeout_s,
    )
