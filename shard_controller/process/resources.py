"""Caches of one process, still empty: the declared resources of a controller, as the server serves them.

Owns the look-up of names and its errors. Built once per process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import structlog

from kubeio.errors import InputError
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from kubeio.shard.ring import RingView, controlled_resources
from shard_controller.api.controller import Controller
from shard_controller.declare.errors import STATUS_REMEDY
from shard_controller.objects.caches import Caches, ReadOnlyCache, ResourceCache
from shard_controller.process.settings import Settings

log = structlog.get_logger("shard_controller")


async def find_resources(
    client: Client, controller: Controller[Any], settings: Settings, view: RingView | None
) -> Caches:
    """Caches for all that *controller* declares and, with a ring, all that its *view* says is controlled.

    Raises: InputError, KubeError.
    """
    discovery = Discovery(client)
    primary = await discovery.resolve(controller.resource.text)
    owned = {wanted.text: await discovery.resolve(wanted.text) for wanted in controller.owns}
    declared = {owned[resource.text]: resource for resource in controller.owns}
    declared[primary] = controller.resource
    if lacks_status(primary, await discovery.subresources(primary)):
        log.warning("no status subresource", resource=primary.group_resource, remedy=STATUS_REMEDY)
    watched = [
        ReadOnlyCache(watch, await discovery.resolve(watch.resource.text)) for watch in controller.watches
    ]
    controlled = list(dict.fromkeys(owned.values()))
    if view is not None:
        controlled = await controlled_resources(discovery, view.entry(primary), owned)
    _check_namespaces(settings, (primary, *controlled))
    remembered = {owned[each.resource.text] for each in controller.owned if each.when is not None}
    if controller.when is not None:
        remembered.add(primary)
    kinds = [
        ResourceCache(
            resource,
            declared=declared.get(resource),
            remembers=resource in remembered,
            keeps=frozenset({view.keys.turn}) if view is not None else frozenset(),
        )
        for resource in (primary, *controlled)
    ]
    by_resource = {kind.resource: kind for kind in kinds}
    by_text = {text: by_resource[resource] for text, resource in owned.items()}
    return Caches(kinds[0], kinds[1:], watched, by_text)


def _check_namespaces(settings: Settings, resources: Iterable[ApiResource]) -> None:
    """Without a ring file a cluster-scoped resource is watched all the same: the ring gives it out everywhere."""
    for resource in resources:
        if settings.ring_file and settings.namespaces and not resource.namespaced:
            raise InputError(
                "--namespaces",
                settings.namespace,
                f"does not hold {resource.group_resource}: it is cluster-scoped",
                "leave it out; that takes the rights of a ClusterRole",
            )


def lacks_status(resource: ApiResource, subresources: Iterable[str]) -> bool:
    """Whether *resource* is a custom one without a writable status. Pure. Kubernetes' own are as they are."""
    is_custom = "." in resource.group and not resource.group.endswith(".k8s.io")
    return is_custom and "status" not in subresources
