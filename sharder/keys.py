"""Which key of the ring an object has, and which role its kind plays there: the protocol's section 3. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ring.key import object_key
from sharder.spec import GroupResource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kubeio.models import Meta, OwnerReference
    from kubeio.resource import Resource
    from sharder.spec import RingResource, RingSpec


class ControllerName(NamedTuple):
    """The object that controls another one: enough to GET it, and its uid to tell it from a namesake."""

    resource: Resource
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Root:
    """An object of a kind that the ring distributes; *given_up*: distributed once, and now to be released."""

    key: str
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class Controlled:
    """An object that follows its controller: it has its controller's key, and is *given_up* with it."""

    key: str
    controller: ControllerName
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class Outsider:
    """An object of a controlled kind that no object of the ring controls: not the ring's business."""


Role = Root | Controlled | Outsider


class _Link(NamedTuple):
    """The kind that controls another one of the ring; *given_up* if the ring no longer distributes it."""

    resource: Resource
    given_up: bool


class RingKinds:
    """The kinds of one ring, resolved against what the server serves.

    *resolved* is what the server serves; whoever calls discovery makes it. *worked* is what the ring distributed so
    far (`sharder.worked`). A kind that is not served has no objects, and is nothing here.
    """

    def __init__(
        self,
        spec: RingSpec,
        resolved: Mapping[GroupResource, Resource],
        *,
        worked: Sequence[RingResource] = (),
    ) -> None:
        served = [entry for entry in spec.resources if entry.main in resolved]
        self._mains = {entry.main: resolved[entry.main] for entry in served}
        self._links: dict[GroupResource, dict[tuple[str, str], _Link]] = {}
        for entry in served:
            self._link(entry, resolved, given_up=False)
        self._former_mains: set[GroupResource] = set()
        self.resources = tuple(resolved[kind] for kind in dict.fromkeys((*self._mains, *self._links)))
        """What the ring distributes: mains first."""
        for entry in worked:
            if entry.main in resolved and entry.main not in self._mains:
                self._former_mains.add(entry.main)
                self._link(entry, resolved, given_up=True)
        current = set(self.resources)
        once = [kind for entry in worked for kind in (entry.main, *entry.controlled) if kind in resolved]
        ordered = sorted(dict.fromkeys(once), key=lambda kind: kind not in self._former_mains)
        self.former = tuple(resolved[kind] for kind in ordered if resolved[kind] not in current)
        """What it distributed once: its objects are released. Mains first."""

    def _link(
        self, entry: RingResource, resolved: Mapping[GroupResource, Resource], *, given_up: bool
    ) -> None:
        main = resolved[entry.main]
        for child in entry.controlled:
            if child in resolved:
                links = self._links.setdefault(child, {})
                links.setdefault((main.group, main.kind), _Link(main, given_up))

    @property
    def labelled(self) -> tuple[Resource, ...]:
        """Every resource whose objects may carry the ring's labels: mains before what they control."""
        return tuple(sorted((*self.resources, *self.former), key=lambda kind: _named(kind) in self._links))

    def is_main(self, resource: Resource) -> bool:
        """Whether the ring distributes *resource* itself."""
        return _named(resource) in self._mains

    def role(self, resource: Resource, meta: Meta) -> Role:
        """What one object is to the ring, and its key."""
        if self.is_main(resource):
            return Root(object_key(resource.group, meta.namespace, meta.name))
        controller = meta.controller
        link = controller and self._links.get(_named(resource), {}).get(_kind(controller))
        if not controller or not link:
            return self._without_controller(resource, meta)
        found, given_up = link
        namespace = meta.namespace if found.namespaced else ""
        return Controlled(
            object_key(found.group, namespace, controller.name),
            ControllerName(found, namespace, controller.name, controller.uid),
            given_up,
        )

    def _without_controller(self, resource: Resource, meta: Meta) -> Role:
        if _named(resource) in self._former_mains:
            return Root(object_key(resource.group, meta.namespace, meta.name), given_up=True)
        return Outsider()


def _named(resource: Resource) -> GroupResource:
    return GroupResource(resource.group, resource.plural)


def _kind(reference: OwnerReference) -> tuple[str, str]:
    """Group and kind of an ownerReference; the version does not matter."""
    group, _, _ = reference.api_version.rpartition("/")
    return group, reference.kind
