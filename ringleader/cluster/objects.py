"""Objects of rings: one stream of pages of metadata for all commands, and how kinds and objects are named."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from kubeio.errors import Expired, InputError
from kubeio.models import GroupResource
from kubeio.suggestions import nearest
from ringleader.cluster.managed_fields import DatedMeta, HasDatedMeta
from ringleader.progress import Advance
from sharder.planning.keys import RingKinds

if TYPE_CHECKING:
    from kubeio.models import Meta, Object, ObjectKey
    from kubeio.resource import ApiResource
    from kubeio.rest.client import Client, Page
    from kubeio.rest.discovery import Discovery
    from ringleader.cluster.ring import Ring

PAGE: Final = 1000
"""Objects of one page: a request of this size takes an API server some 20 ms."""

# ---- kinds and names ------------------------------------------------------------------------------------------


async def ring_kinds(discovery: Discovery, ring: Ring) -> RingKinds:
    """The kinds of *ring* that the server serves, as the sharder resolves them. Raises KubeError."""
    served = {}
    for kind in ring.kinds:
        with suppress(InputError):
            served[kind] = await discovery.resolve(str(kind))
    return RingKinds(ring.spec, served)


def note_unserved(ring: Ring, kinds: RingKinds) -> None:
    """Name on stderr what *ring* distributes and the server does not serve: an answer is without it."""
    if kinds.unserved:
        names = ", ".join(map(str, kinds.unserved))
        remedy = "install its CRD, or take it out of spec.resources"
        sys.stderr.write(f"note: ring {ring.name}: {names} is not served and left out; {remedy}\n")


def parse_target(text: str) -> tuple[str, str]:
    """Kind and name of `website/blog`. Raises: InputError."""
    kind, slash, name = text.partition("/")
    namespace, second, rest = name.partition("/")
    if kind and namespace and second and rest and "/" not in rest:
        remedy = f"write it as {kind}/{rest} -n {namespace}"
        raise InputError("KIND/NAME", text, "has a namespace in it", remedy)
    if not (kind and slash and name) or "/" in name:
        raise InputError("KIND/NAME", text, "does not name one object", "write it as website/blog")
    return kind, name


async def resolve_kind(discovery: Discovery, rings: Sequence[Ring], text: str) -> ApiResource:
    """The resource that *text* names as kubectl would: of several, the one that a ring distributes.

    Raises: InputError, KubeError.
    """
    candidates = await discovery.candidates(text)
    distributed = {kind for ring in rings for kind in ring.kinds}
    fitting = [each for each in candidates if GroupResource(each.group, each.plural) in distributed]
    if len(fitting) > 1:
        names = ", ".join(each.group_resource for each in fitting)
        raise InputError("KIND", text, f"is ambiguous: rings distribute {names}", "write one of them out")
    return (fitting or candidates)[0]


async def read_object(
    client: Client, resource: ApiResource, key: ObjectKey, *, timeout_s: float
) -> DatedMeta:
    """Metadata of the object *key*. Raises: InputError naming the nearest ones if it does not exist, KubeError."""
    from kubeio.errors import Forbidden, NotFound

    namespace = key.namespace if resource.namespaced else ""
    try:
        found = await client.get(
            resource,
            key.name,
            namespace=namespace,
            type=HasDatedMeta,
            metadata_only=True,
            timeout_s=timeout_s,
        )
    except NotFound:
        remedy = "name another"
        with suppress(Forbidden):  # the right to get objects is enough to learn that this one does not exist
            page = await client.list_page(
                resource, namespace=namespace, metadata_only=True, timeout_s=timeout_s
            )
            remedy += f": {nearest(key.name, [each.meta.name for each in page.objects])}"
        place = f"namespace {namespace}" if namespace else "the cluster"
        if namespace:
            remedy += " (-n NAME looks in another namespace)"
        shown = f"{resource.group_resource}/{key.name}"
        raise InputError("KIND/NAME", shown, f"does not exist in {place}", remedy) from None
    return found.metadata


def named(resource: ApiResource, meta: Meta) -> str:
    """An object in the words that `ringleader describe` takes: `website/blog -n sites`."""
    tail = f" -n {meta.namespace}" if meta.namespace else ""
    return f"{resource.kind.lower()}/{meta.name}{tail}"


# ---- pages ----------------------------------------------------------------------------------------------------


class ObjectPage(NamedTuple):
    """Some objects of *resource*, of one version."""

    resource: ApiResource
    objects: Sequence[Object]


async def object_pages(
    client: Client,
    resources: Sequence[ApiResource],
    *,
    namespace: str = "",
    label_selector: str = "",
    advance: Advance = lambda done, left=None: None,
    timeout_s: float,
) -> AsyncIterator[ObjectPage]:
    """Pages of metadata of *resources*, one after the other; the next page is read while the present one is in use.

    A list that outlives the server's history (410) goes on with the newer version that the server offers. Memory: two
    pages. *timeout_s* is for each page. Raises KubeError.
    """
    pages = _pages(client, resources, namespace, label_selector, timeout_s)

    async def next_page() -> tuple[ApiResource, Page] | None:
        return await anext(pages, None)

    asked = asyncio.create_task(next_page(), name="next page")
    try:
        while (found := await asked) is not None:
            asked = asyncio.create_task(next_page(), name="next page")
            await asyncio.sleep(0)  # the request goes out before the page is used
            resource, page = found
            advance(len(page.objects), page.remaining or 0)
            yield ObjectPage(resource, page.objects)
    finally:
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await pages.aclose()


async def _pages(
    client: Client, resources: Sequence[ApiResource], namespace: str, label_selector: str, timeout_s: float
) -> AsyncGenerator[tuple[ApiResource, Page], None]:
    for resource in resources:
        is_last, continue_ = False, ""
        while not is_last:
            try:
                page = await client.list_page(
                    resource,
                    namespace=namespace if resource.namespaced else "",
                    label_selector=label_selector,
                    limit=PAGE,
                    continue_=continue_,
                    metadata_only=True,
                    timeout_s=timeout_s,
                )
            except Expired as expired:
                if not expired.continue_:
                    raise
                continue_ = expired.continue_
                continue
            yield resource, page
            continue_ = page.continue_
            is_last = not continue_
