"""Which key of the ring an object has, and which role its kind plays there: the protocol's section 3. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ring.key import object_key
from sharder.spec import GroupResource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kubeio.models import Meta, OwnerReference
    from kubeio.resource import Resource
    from sharder.spec import RingSpec


class ControllerName(NamedTuple):
    """The object that controls another one: enough to GET it, and its uid to tell it from a namesake."""

    resource: Resource
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Root:
    """An object of a kind that the ring distributes."""

    key: str


@dataclass(frozen=True, slots=True)
class Controlled:
    """An object that follows its controller: it has its controller's key."""

    key: str
    controller: ControllerName


@dataclass(frozen=True, slots=True)
class Outsider:
    """An object of a controlled kind that no object of the ring controls: not the ring's business."""


Role = Root | Controlled | Outsider


class RingKinds:
    """The kinds of one ring, resolved against what the server serves.

    *resolved* has an entry for every resource that `spec` names; whoever calls discovery makes it.
    """

    def __init__(self, spec: RingSpec, resolved: Mapping[GroupResource, Resource]) -> None:
        self._mains = {entry.main: resolved[entry.main] for entry in spec.resources}
        self._controllers: dict[GroupResource, dict[tuple[str, str], Resource]] = {}
        for entry in spec.resources:
            main = resolved[entry.main]
            for child in entry.controlled:
                self._controllers.setdefault(child, {})[main.group, main.kind] = main
        self.resources = tuple(resolved[kind] for kind in (*self._mains, *self._controllers))
        """Every resource that carries the ring's labels: mains first."""

    def is_main(self, resource: Resource) -> bool:
        """Whether the ring distributes *resource* itself."""
        return _named(resource) in self._mains

    def role(self, resource: Resource, meta: Meta) -> Role:
        """What one object is to the ring, and its key."""
        if self.is_main(resource):
            return Root(object_key(resource.group, meta.namespace, meta.name))
        controller = meta.controller
        found = controller and self._controllers.get(_named(resource), {}).get(_kind(controller))
        if not controller or not found:
            return Outsider()
        namespace = meta.namespace if found.namespaced else ""
        return Controlled(
            object_key(found.group, namespace, controller.name),
            ControllerName(found, namespace, controller.name, controller.uid),
        )


def _named(resource: Resource) -> GroupResource:
    return GroupResource(resource.group, resource.plural)


def _kind(reference: OwnerReference) -> tuple[str, str]:
    """Group and kind of an ownerReference; the version does not matter."""
    group, _, _ = reference.api_version.rpartition("/")
    return group, reference.kind
