"""The template of the load's objects: one manifest, from which every object is made. Pure.

`${name}` and `${version}` in its strings are filled in, `${filling}` by some hundred bytes. Names are made of the
template's name, the run and a number that no other worker uses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kubeio.errors import InputError
from kubeio.program.yaml_file import read_document
from kubeio.resource import ApiResource

DEFAULT: Final = Path(__file__).with_name("website.yaml")
RUN_LABEL: Final = "loadtest.ringleader.dev/run"
VERSION_ANNOTATION: Final = "loadtest.ringleader.dev/version"
_NAME: Final = re.compile(r"\A[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")
_LONGEST_PREFIX: Final = 24
_FILLING: Final = "x" * 512
_PLACES: Final = re.compile(r"\$\{(name|version|filling)\}")


class Template:
    """A checked manifest. Documents made from it share nothing with it."""

    def __init__(self, document: Mapping[str, Any], *, where: str) -> None:
        self.api_version = _text(document, "apiVersion", where)
        self.kind = _text(document, "kind", where)
        self._document = document
        metadata = document.get("metadata")
        self._metadata = metadata if isinstance(metadata, dict) else {}
        self.prefix = _prefix(self._metadata, where)
        spec = document.get("spec")
        self._spec = spec if isinstance(spec, dict) else None
        self.changes_spec = self._spec is not None and "${version}" in str(self._spec)
        """Whether an update changes the spec, and with it metadata.generation."""

    @property
    def resource_name(self) -> str:
        """What discovery resolves: `website.v1.example.com`; `configmap/v1` in the core group."""
        group, slash, version = self.api_version.rpartition("/")
        return f"{self.kind.lower()}.{version}.{group}" if slash else f"{self.kind.lower()}/{version}"

    @property
    def group(self) -> str:
        """API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def fits(self, resource: ApiResource) -> bool:
        return (resource.api_version, resource.kind) == (self.api_version, self.kind)

    def document(self) -> dict[str, Any]:
        """The manifest as it was written: for the processes that make the load."""
        return dict(self._document)

    def object(self, name: str, *, run: str) -> dict[str, Any]:
        """A new object *name* of the run *run*."""
        filled: dict[str, Any] = _filled(dict(self._document), name, 0)
        metadata = filled.get("metadata") or {}
        kept = {key: metadata[key] for key in ("annotations", "finalizers") if key in metadata}
        labels = {**(metadata.get("labels") or {}), RUN_LABEL: run}
        filled["metadata"] = {**kept, "labels": labels, "name": name}
        filled.pop("status", None)
        return filled

    def change(self, name: str, version: int) -> dict[str, Any]:
        """A merge patch that makes *version* of the object *name*."""
        if self.changes_spec:
            return {"spec": _filled(self._spec, name, version)}
        return {"metadata": {"annotations": {VERSION_ANNOTATION: str(version)}}}


def read_template(path: Path | None) -> Template:
    """The template in the file at *path*, the example's without. Raises InputError."""
    return Template(read_document("--template", path or DEFAULT), where=str(path or DEFAULT))


def prefilled_name(prefix: str, run: str, index: int) -> str:
    """Name of the object number *index* of those that exist before the load begins."""
    return f"{prefix}-{run}-{index:07d}"


def created_name(prefix: str, run: str, worker: str, number: int) -> str:
    """Name of an object that *worker* creates during the load; *worker* is unique among processes and machines."""
    return f"{prefix}-{run}-{worker}-{number}"


def _prefix(metadata: Mapping[str, Any], where: str) -> str:
    text = metadata.get("name") or metadata.get("generateName")
    if not isinstance(text, str) or not text:
        raise InputError(
            f"{where}: metadata.name", "", "is missing", "write one: the objects are called NAME-RUN-NUMBER"
        )
    prefix = text.rstrip("-")
    if len(prefix) > _LONGEST_PREFIX or _NAME.match(prefix) is None:
        raise InputError(
            f"{where}: metadata.name",
            text,
            "cannot begin the names of the load's objects",
            f"write at most {_LONGEST_PREFIX} lower-case letters, digits and '-'",
        )
    return prefix


def _text(document: Mapping[str, Any], name: str, where: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not value:
        raise InputError(f"{where}: {name}", value or "", "is missing", "write it as for kubectl apply -f")
    return value


def _filled(value: Any, name: str, version: int) -> Any:
    """*value* with every place filled in, strings inside lists and mappings too."""
    if isinstance(value, str):
        words = {"name": name, "version": str(version), "filling": _FILLING}
        return _PLACES.sub(lambda found: words[found[1]], value)
    if isinstance(value, dict):
        return {key: _filled(inner, name, version) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, name, version) for inner in value]
    return value
