"""Which resources are served, in which groups and versions, and how each behaves. Pure.

Owns the table of kinds; `builtin` fills it at start, `definitions` when a CustomResourceDefinition is stored.
The objects are in each kind's `Collection`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from devcluster.embedded.schema import Schema
from devcluster.embedded.status import Cause, StatusSubject
from devcluster.embedded.store import Collection

Convert = Callable[[dict[str, Any]], dict[str, Any]]
Check = Callable[[str, dict[str, Any]], list[Cause]]
"""A rule of a built-in resource: everything wrong with the object of that name."""

CheckUpdate = Callable[[dict[str, Any], dict[str, Any]], list[Cause]]
"""What of the old object the new one may not change."""


class Column(msgspec.Struct, frozen=True):
    """One column of `kubectl get`: *path* is a JSONPath, or a name that `table` knows for built-in kinds."""

    name: str
    type: str
    path: str
    priority: int = 0
    format: str = ""
    description: str = ""


class Version(msgspec.Struct, frozen=True):
    """One served version of a kind."""

    name: str
    schema: Schema | None = None
    columns: tuple[Column, ...] = ()
    status: bool = False
    """Whether the status subresource is on."""
    deprecated: bool = False


class Kind:
    """One resource: its names, its rules, its objects."""

    def __init__(
        self,
        *,
        group: str,
        plural: str,
        kind: str,
        versions: Iterable[Version],
        storage_version: str,
        collection: Collection,
        namespaced: bool = True,
        singular: str = "",
        list_kind: str = "",
        short_names: tuple[str, ...] = (),
        categories: tuple[str, ...] = (),
        builtin: bool = False,
        generation: bool = True,
        unconditional_update: bool = False,
        create_on_update: bool = False,
        fields: frozenset[str] = frozenset(),
        from_stored: Convert | None = None,
        to_stored: Convert | None = None,
        complete: Convert | None = None,
        check: Check | None = None,
        check_update: CheckUpdate | None = None,
        stored_group: str | None = None,
    ) -> None:
        self.group: Final = group
        self.plural: Final = plural
        self.kind: Final = kind
        self.singular: Final = singular or kind.lower()
        self.list_kind: Final = list_kind or f"{kind}List"
        self.short_names: Final = short_names
        self.categories: Final = categories
        self.namespaced: Final = namespaced
        self.versions: Final = {version.name: version for version in sorted(versions, key=_priority)}
        self.storage_version: Final = storage_version
        self.collection: Final = collection
        self.builtin: Final = builtin
        self.generation: Final = generation
        self.unconditional_update: Final = unconditional_update
        self.create_on_update: Final = create_on_update
        self.fields: Final = frozenset({"metadata.name", "metadata.namespace"}) | fields
        self.from_stored: Final = from_stored
        self.to_stored: Final = to_stored
        self.complete: Final = complete
        self.check: Final = check
        self.check_update: Final = check_update
        owner = group if stored_group is None else stored_group
        self.stored_api_version: Final = f"{owner}/{storage_version}" if owner else storage_version
        self.stored_prefix: Final = b'{"apiVersion":"%s",' % self.stored_api_version.encode()
        """How the bytes of an object begin that needs no conversion to be served as the storage version."""

    @property
    def resource(self) -> str:
        """`websites.example.com`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def api_version(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version

    def subject(self, name: str) -> StatusSubject:
        return StatusSubject(self.group, self.plural, self.kind, name)


class Registry:
    """All kinds, by group and plural."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], Kind] = {}
        self.generation = 0
        """Changes whenever a kind comes, changes or goes: what is derived from the table is then stale."""

    def add(self, kind: Kind) -> None:
        """Add *kind* or put it in the place of an older one of its name."""
        self._kinds[kind.group, kind.plural] = kind
        self.generation += 1

    def remove(self, group: str, plural: str) -> None:
        self._kinds.pop((group, plural), None)
        self.generation += 1

    def get(self, group: str, plural: str) -> Kind | None:
        return self._kinds.get((group, plural))

    def __iter__(self) -> Iterator[Kind]:
        return iter(tuple(self._kinds.values()))

    def of_kind(self, api_version: str, kind: str) -> Kind | None:
        """The kind that an ownerReference or an involvedObject names."""
        group, _, version = api_version.rpartition("/")
        for candidate in self._kinds.values():
            if candidate.kind == kind and candidate.group == group and version in candidate.versions:
                return candidate
        return None

    def groups(self) -> dict[str, list[str]]:
        """Versions of each group, preferred first; the core group is ""."""
        groups: dict[str, dict[str, Version]] = {}
        for kind in self._kinds.values():
            groups.setdefault(kind.group, {}).update(kind.versions)
        return {
            group: [version.name for version in sorted(versions.values(), key=_priority)]
            for group, versions in sorted(groups.items())
        }

    def served(self, group: str, version: str) -> list[Kind]:
        """Kinds of one group and version, sorted by plural."""
        kinds = [kind for kind in self._kinds.values() if kind.group == group and version in kind.versions]
        return sorted(kinds, key=lambda kind: kind.plural)


_VERSION = re.compile(r"\Av([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?\Z")


def _priority(version: Version) -> tuple[int, int, int, str]:
    """Kubernetes' order: stable before beta before alpha, newer before older, others last by name."""
    found = _VERSION.match(version.name)
    if found is None:
        return (3, 0, 0, version.name)
    level = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return (level, -int(found[1]), -int(found[3] or 0), version.name)
