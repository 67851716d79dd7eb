"""Key of an object on the ring, and the role that its kind plays there: the protocol's section 3. Pure.

A key that the object's own metadata does not determine (a controlled object's under `Label`, and below the first level
under `Owner`) is None here; `sharder.planning.controllers` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kubeio.models import GroupResource, Meta
from ring.key import object_key
from sharder.ringspec.spec import KeyKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kubeio.resource import ApiResource
    from sharder.ringspec.spec import RingResource, RingSpec


class ControllerName(NamedTuple):
    """The object that controls another one: enough to GET it, and its uid to distinguish it from a namesake."""

    resource: ApiResource
    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        """The key of this object if it follows no controller."""
        return object_key(self.resource.group, self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Root:
    """An object of a kind that the ring distributes; *given_up*: distributed once, and now to be released.

    *main*: the kind, as `resource.group`; empty if the ring does not distribute it any more.
    """

    key: str
    given_up: bool = False
    main: str = ""

    @property
    def kind(self) -> str:
        return self.main


@dataclass(frozen=True, slots=True)
class Controlled:
    """An object that follows its controller: it has its controller's key, and is *given_up* with it.

    *key* is None if only the controller shows it. *kind*: its own. *main*: the kind at the root of its tree; empty
    if only the controller shows it.
    """

    key: str | None
    controller: ControllerName
    given_up: bool = False
    kind: str = ""
    main: str = ""


@dataclass(frozen=True, slots=True)
class Outsider:
    """An object of a controlled kind that no object of the ring controls: not the ring's business.

    *unserved*: its controller may be of a kind of the ring that the server does not serve now; it is left as it is.
    """

    unserved: bool = False


Role = Root | Controlled | Outsider


class _Link(NamedTuple):
    """The kind that controls another one of the ring; *given_up* if the ring no longer distributes it."""

    resource: ApiResource
    given_up: bool


class RingKinds:
    """The kinds of one ring, resolved against what the server serves.

    *resolved*: the kinds that the server serves, from discovery. *worked* is what the ring distributed so
    far (`sharder.ringspec.worked`). A kind that is not served has no objects, and is nothing here; what it may control
    is given up only if the whole ring is, *releasing*: its definition may come back.
    """

    def __init__(
        self,
        spec: RingSpec,
        resolved: Mapping[GroupResource, ApiResource],
        *,
        worked: Sequence[RingResource] = (),
        releasing: bool = False,
    ) -> None:
        self._key = spec.key
        self._key_label = spec.key_label
        named = dict.fromkeys(kind for entry in spec.resources for kind in (entry.main, *entry.controlled))
        self.unserved = tuple(kind for kind in named if kind not in resolved)
        """Resources of the ring that the server does not serve: reported; the others go on."""
        is_watched = bool(self.unserved) and not releasing
        self._unserved_above = self._groups_above(spec, resolved) if is_watched else {}
        served = [entry for entry in spec.resources if entry.main in resolved]
        self._mains = {entry.main: resolved[entry.main] for entry in served}
        self._texts = {kind: str(kind) for entry in served for kind in (entry.main, *entry.controlled)}
        self._links: dict[GroupResource, dict[tuple[str, str], _Link]] = {}
        for entry in served:
            self._link(entry, resolved, given_up=False)
        self._former_mains: set[GroupResource] = set()
        self.resources = tuple(resolved[kind] for kind in dict.fromkeys((*self._mains, *self._links)))
        """Distributed resources, mains first."""
        for entry in worked:
            if entry.main in resolved and entry.main not in self._mains:
                self._former_mains.add(entry.main)
                self._link(entry, resolved, given_up=True)
        current = set(self.resources) if releasing else {*self.resources, *_resolved(named, resolved)}
        once = [kind for entry in worked for kind in (entry.main, *entry.controlled) if kind in resolved]
        ordered = sorted(dict.fromkeys(once), key=lambda kind: kind not in self._former_mains)
        self.former = tuple(resolved[kind] for kind in ordered if resolved[kind] not in current)
        """Formerly distributed resources, whose objects are released. Mains first."""
        levels = self._levels()
        self.labelled = tuple(
            sorted((*self.resources, *self.former), key=lambda kind: levels.get(_named(kind), 0))
        )
        """Every resource whose objects may carry the ring's labels: what controls before what is controlled."""
        self.by_name: Mapping[str, ApiResource] = {kind.group_resource: kind for kind in self.labelled}

    def _link(
        self, entry: RingResource, resolved: Mapping[GroupResource, ApiResource], *, given_up: bool
    ) -> None:
        """Note who may control what: the main, and under `Owner` every kind that follows it."""
        served = [kind for kind in entry.controlled if kind in resolved]
        above = [entry.main, *served] if self._key is KeyKind.OWNER else [entry.main]
        for child in served:
            links = self._links.setdefault(child, {})
            for parent in above:
                found = resolved[parent]
                links.setdefault((found.group, found.kind), _Link(found, given_up))

    def _groups_above(
        self, spec: RingSpec, resolved: Mapping[GroupResource, ApiResource]
    ) -> dict[GroupResource, set[str]]:
        """The groups of kinds that may control each kind, and about which nothing is known now."""
        groups: dict[GroupResource, set[str]] = {}
        for entry in spec.resources:
            above = [entry.main, *entry.controlled] if self._key is KeyKind.OWNER else [entry.main]
            unknown = {kind.group for kind in above if entry.main not in resolved or kind not in resolved}
            for child in entry.controlled:
                groups.setdefault(child, set()).update(unknown)
        return groups

    def _levels(self) -> Mapping[GroupResource, int]:
        """Greatest depth of each controlled kind below a root; kinds that control each other count once."""
        levels = dict.fromkeys(self._links, 1)
        for _ in levels:
            for child, links in self._links.items():
                above = (_named(link.resource) for link in links.values())
                deepest = max((levels.get(parent, 0) for parent in above if parent != child), default=0)
                levels[child] = min(deepest + 1, len(levels))
        return levels

    def is_main(self, resource: ApiResource) -> bool:
        """Whether the ring distributes *resource* itself."""
        return _named(resource) in self._mains

    def may_control(self, resource: ApiResource) -> bool:
        """Whether objects of *resource* may control others of the ring."""
        kind = resource.group, resource.kind
        return any(kind in links for links in self._links.values())

    def may_be_controlled(self, resource: ApiResource) -> bool:
        """Whether objects of *resource* may follow others of the ring."""
        return _named(resource) in self._links

    def role(self, resource: ApiResource, meta: Meta) -> Role:
        """Role of one object on the ring, with its key."""
        controller = meta.controller
        link = controller and self._links.get(_named(resource), {}).get(controller.group_kind)
        if not controller or not link:
            if controller and controller.group_kind[0] in self._unserved_above.get(_named(resource), ()):
                return Outsider(unserved=True)
            return self._without_controller(resource, meta)
        found, given_up = link
        if found.namespaced and not meta.namespace:
            return self._without_controller(resource, meta)  # no object controls what is above its namespace
        namespace = meta.namespace if found.namespaced else ""
        name = ControllerName(found, namespace, controller.name, controller.uid)
        key = self._followed_key(name)
        kind = self._texts.get(_named(resource), "")
        return Controlled(key, name, given_up, kind, self._main_above(found))

    def _without_controller(self, resource: ApiResource, meta: Meta) -> Role:
        if not self.is_main(resource) and _named(resource) not in self._former_mains:
            return Outsider()
        given_up = not self.is_main(resource)
        main = "" if given_up else self._texts[_named(resource)]
        return Root(self._root_key(resource, meta), given_up=given_up, main=main)

    def _main_above(self, controller: ApiResource) -> str:
        """The kind at the root of what a *controller* of this kind controls, if that kind shows it."""
        named = _named(controller)
        is_root = named in self._mains and named not in self._links
        return self._texts[named] if is_root else ""

    def _root_key(self, resource: ApiResource, meta: Meta) -> str:
        value = meta.labels.get(self._key_label) if self._key is KeyKind.LABEL else None
        if value:
            return label_key(value)
        if self._key is KeyKind.NAMESPACE and meta.namespace:
            return namespace_key(meta.namespace)
        return object_key(resource.group, meta.namespace, meta.name)

    def _followed_key(self, controller: ControllerName) -> str | None:
        """The key of what *controller* controls, if its name shows it."""
        match self._key:
            case KeyKind.NAMESPACE if controller.namespace:
                return namespace_key(controller.namespace)
            case KeyKind.LABEL:
                return None
            case KeyKind.OWNER if self.may_be_controlled(controller.resource):
                return None
            case _:
                return controller.key


def essential(meta: Meta, labels: Collection[str]) -> Meta:
    """Part of *meta* that decisions read: a few hundred bytes, whatever annotations and labels the object has."""
    controller = meta.controller
    return Meta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        deletion_timestamp=meta.deletion_timestamp,
        labels={key: meta.labels[key] for key in labels if key in meta.labels},
        owner_references=[controller] if controller is not None else [],
    )


def namespace_key(namespace: str) -> str:
    """The key of everything in *namespace*: one that no object has, since names are not empty."""
    return object_key("", namespace, "")


def label_key(value: str) -> str:
    """The key of everything whose label has *value*: one that no object has, since no name contains '='."""
    return f"={value}"


def _named(resource: ApiResource) -> GroupResource:
    return GroupResource(resource.group, resource.plural)


def _resolved(
    kinds: Iterable[GroupResource], resolved: Mapping[GroupResource, ApiResource]
) -> Iterable[ApiResource]:
    return (resolved[kind] for kind in kinds if kind in resolved)
