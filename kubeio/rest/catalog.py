"""Catalog of the resources that one server serves, by the names that people use. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from kubeio.errors import InputError
from kubeio.resource import ApiResource
from kubeio.suggestions import closest, did_you_mean

_VERSION = re.compile(r"v\d+((alpha|beta)\d+)?").fullmatch


@dataclass(frozen=True, slots=True)
class Served:
    """One resource in one version, with its other names."""

    resource: ApiResource
    singular: str = ""
    short_names: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()

    def rank(self, name: str) -> int | None:
        """Rank of *name* (lower case) as a match: 0 for a full name, 1 for a short name, None for no match."""
        if name in (self.resource.plural, self.singular, self.resource.kind.lower()):
            return 0
        return 1 if name in self.short_names else None


@dataclass(frozen=True, slots=True)
class ResourceQuery:
    """A resource as a user names it: `deployments.apps/v1` and similar forms."""

    name: str
    group: str | None = None
    version: str | None = None


def readings(text: str) -> list[ResourceQuery]:
    """Every way to read *text*: NAME[.GROUP][/VERSION], or kubectl's NAME.VERSION.GROUP, which is tried first."""
    left, slash, version = text.strip().partition("/")
    name, dot, group = left.lower().partition(".")
    plain = ResourceQuery(name, group if dot else None, version.lower() if slash else None)
    head, dot, tail = group.partition(".")
    if not slash and dot and _VERSION(head):
        return [ResourceQuery(name, tail, head), plain]
    return [plain]


class Catalog:
    """Resources in the server's order of preference: groups first, then the versions of each."""

    def __init__(self, served: Iterable[Served]) -> None:
        self._served = list(served)

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served)

    def __len__(self) -> int:
        return len(self._served)

    def find(self, text: str) -> ApiResource | None:
        """The resource that kubectl would take for *text*."""
        for wanted in readings(text):
            found = self._find(wanted)
            if found:
                return found[0].resource
        return None

    def candidates(self, text: str) -> list[ApiResource]:
        """Every resource that *text* may mean, one version of each, the one that `find` gives first."""
        found: dict[str, ApiResource] = {}
        for wanted in readings(text):
            for served in self._find(wanted):
                found.setdefault(served.resource.group_resource, served.resource)
        return list(found.values())

    def unknown(self, text: str, server: str) -> InputError:
        """The error that says what was perhaps meant by *text*."""
        for wanted in readings(text):
            versions = [
                served.resource.version for served in self._find(ResourceQuery(wanted.name, wanted.group))
            ]
            if wanted.version and versions:
                return InputError(
                    "resource",
                    text,
                    f"is not served in version {wanted.version} by {server}",
                    f"served versions are {', '.join(versions)}",
                )
        return InputError("resource", text, f"is not served by {server}", self._nearest(text))

    def _find(self, wanted: ResourceQuery) -> list[Served]:
        fitting = [
            (rank, served)
            for served in self._served
            if (rank := served.rank(wanted.name)) is not None
            and (wanted.version is None or served.resource.version == wanted.version)
        ]
        if wanted.group is not None:
            exact = [pair for pair in fitting if pair[1].resource.group == wanted.group]
            fitting = exact or [pair for pair in fitting if _begins(pair[1].resource.group, wanted.group)]
        return [served for _, served in sorted(fitting, key=lambda pair: pair[0])]  # stable: keeps preference

    def _nearest(self, text: str) -> str:
        name = text.partition("/")[0].lower()
        by_name: dict[str, str] = {}
        for served in self._served:
            shown = served.resource.group_resource
            for alias in (shown, served.resource.plural, served.singular, *served.short_names):
                if alias:
                    by_name.setdefault(alias, shown)
        close = closest(name, by_name, most=6, cutoff=0.7)
        close += closest(name.partition(".")[0], by_name, most=6, cutoff=0.7)
        if hint := did_you_mean(list(dict.fromkeys(by_name[alias] for alias in close))[:3]):
            return f"{hint} If it is a custom resource, install its CRD first"
        return "install its CRD first, or list what there is with: kubectl api-resources"


def _begins(group: str, wanted: str) -> bool:
    return bool(wanted) and group.startswith(wanted)


# -- what the server sends; an empty list of Go's is null -------------------------------------------------


class _ResponseKind(msgspec.Struct, gc=False):
    kind: str = ""


class _AggregatedSubresource(msgspec.Struct, gc=False):
    subresource: str = ""


class _AggregatedResource(msgspec.Struct, gc=False, rename="camel"):
    resource: str
    response_kind: _ResponseKind | None = None
    scope: str = ""
    singular_resource: str = ""
    verbs: list[str] | None = None
    short_names: list[str] | None = None
    subresources: list[_AggregatedSubresource] | None = None


class _AggregatedVersion(msgspec.Struct, gc=False):
    version: str
    resources: list[_AggregatedResource] | None = None


class _Name(msgspec.Struct, gc=False):
    name: str = ""


class _AggregatedGroup(msgspec.Struct, gc=False):
    metadata: _Name = msgspec.field(default_factory=_Name)
    versions: list[_AggregatedVersion] | None = None


class _Discovered(msgspec.Struct, gc=False, tag_field="kind", tag="APIGroupDiscoveryList"):
    items: list[_AggregatedGroup] | None = None


_decode = msgspec.json.Decoder(_Discovered).decode


def read_discovery(body: bytes) -> Iterator[Served]:
    """The resources in aggregated discovery of /api or /apis. Raises msgspec.DecodeError."""
    for group in _decode(body).items or ():
        for version in group.versions or ():
            for one in version.resources or ():
                kind = one.response_kind.kind if one.response_kind else ""
                resource = ApiResource(
                    group.metadata.name, version.version, one.resource, kind, one.scope != "Cluster"
                )
                yield Served(
                    resource,
                    one.singular_resource.lower(),
                    tuple(one.short_names or ()),
                    tuple(one.verbs or ()),
                    tuple(each.subresource for each in one.subresources or ()),
                )
