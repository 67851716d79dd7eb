"""Kubeconfig files as people have them: read, checked, merged. They are never written.

Owns where each entry came from, so that relative paths and error messages refer to its own file. Decides
nothing about connections: `kubeio.access.cluster` does.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kubeio.errors import InputError

_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One cluster, user or context: its fields, and where they stand."""

    fields: Mapping[str, object]
    where: str
    file: Path

    def text(self, name: str) -> str:
        """The string at *name*; empty if absent."""
        value = self.fields.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(name, _shape(value), "is not a string", "put it in quotes")
        return value

    def flag(self, name: str) -> bool:
        """The boolean at *name*; false if absent."""
        value = self.fields.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.error(name, value, "is neither true nor false", "write true or false, without quotes")
        return value

    def texts(self, name: str) -> list[str]:
        """The list of strings at *name*; empty if absent."""
        value = self.fields.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(name, _shape(value), "is not a list of strings", "write a YAML list of strings")
        return value

    def entry(self, name: str) -> ConfigEntry | None:
        """The mapping at *name*, if any."""
        value = self.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(name, _shape(value), "is not a mapping", "indent its fields below it")
        return ConfigEntry(value, f"{self.where}.{name}", self.file)

    def path(self, name: str) -> Path | None:
        """The file named at *name*; relative to the kubeconfig it stands in."""
        text = self.text(name)
        return self.file.parent / text if text else None

    def file_bytes(self, name: str) -> bytes | None:
        """Content of the file named at *name*; None if absent. Raises InputError if the file cannot be read."""
        path = self.path(name)
        if path is None:
            return None
        try:
            return path.read_bytes()
        except OSError as error:
            raise self.error(
                name, str(path), f"cannot be read ({error.strerror})", "name a readable file"
            ) from None

    def data(self, name: str) -> bytes | None:
        """The base64 text at *name*, decoded."""
        text = self.text(name)
        if not text:
            return None
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise self.error(
                name, abbreviated(text), f"is not base64 ({error})", "encode the whole file: base64 -w0 FILE"
            ) from None

    def error(self, name: str, value: object, problem: str, remedy: str) -> InputError:
        """An InputError about the field *name*."""
        return InputError(f"{self.where}.{name} in {self.file}", value, problem, remedy)


@dataclass(slots=True)
class Kubeconfig:
    """Several files as one: for each name the first file that has it counts, as in kubectl."""

    files: list[Path] = field(default_factory=list)
    clusters: dict[str, ConfigEntry] = field(default_factory=dict)
    users: dict[str, ConfigEntry] = field(default_factory=dict)
    contexts: dict[str, ConfigEntry] = field(default_factory=dict)
    current_context: str = ""

    @property
    def shown_files(self) -> str:
        return ", ".join(map(str, self.files))


def read_kubeconfig(paths: Sequence[Path], *, source: str, skip_missing: bool = False) -> Kubeconfig:
    """The files at *paths* merged. *source* names the flag or variable they come from. Raises InputError."""
    merged = Kubeconfig()
    for path in paths:
        if skip_missing and not path.exists():
            continue
        _merge(merged, path, _read(path, source=source))
        merged.files.append(path)
    if not merged.files:
        raise InputError(
            source, ", ".join(map(str, paths)), "names no file that exists", "name a kubeconfig file"
        )
    return merged


def abbreviated(text: str) -> str:
    """The beginning of a long or secret value: enough to recognise, too little to use."""
    return text if len(text) <= 12 else f"{text[:8]}... ({len(text)} characters)"


def _read(path: Path, *, source: str) -> Mapping[str, object]:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise InputError(source, str(path), "does not exist", "name an existing kubeconfig file") from None
    except IsADirectoryError:
        raise InputError(source, str(path), "is a directory", "name the kubeconfig file in it") from None
    except OSError as error:
        raise InputError(
            source, str(path), f"cannot be read ({error.strerror})", "make it readable for this user"
        ) from None
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader, the C one where it is built
    except yaml.YAMLError as error:
        raise InputError(source, str(path), f"is not YAML: {_where(error)}", "correct that line") from None
    if document is None:
        raise InputError(source, str(path), "is empty", "name a kubeconfig with clusters, users and contexts")
    if not isinstance(document, dict):
        raise InputError(source, str(path), "is not a kubeconfig", "name a kubeconfig file")
    kind = document.get("kind", "Config")
    if kind != "Config":
        raise InputError(source, str(path), f"is a {kind}, not a kubeconfig", "name a file of kind Config")
    return document


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


def _merge(merged: Kubeconfig, path: Path, document: Mapping[str, object]) -> None:
    for section, inner, target in (
        ("clusters", "cluster", merged.clusters),
        ("users", "user", merged.users),
        ("contexts", "context", merged.contexts),
    ):
        for name, entry in _entries(document, section, inner, path):
            target.setdefault(name, entry)
    current = document.get("current-context") or ""
    if not isinstance(current, str):
        raise InputError(
            f"current-context in {path}", current, "is not a string", "name a context, in quotes"
        )
    merged.current_context = merged.current_context or current


def _entries(
    document: Mapping[str, object], section: str, inner: str, path: Path
) -> Iterable[tuple[str, ConfigEntry]]:
    listed = document.get(section) or []
    if not isinstance(listed, list):
        raise InputError(
            f"{section} in {path}", _shape(listed), "is not a list", f"write '- name: ...' below {section}"
        )
    for index, item in enumerate(listed):
        where = f"{section}[{index}]"
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise InputError(f"{where} in {path}", _shape(item), "has no name", f"write name: and {inner}:")
        fields = item.get(inner) or {}
        if not isinstance(fields, dict):
            raise InputError(
                f"{section}[{item['name']}].{inner} in {path}",
                _shape(fields),
                "is not a mapping",
                "indent its fields below it",
            )
        yield item["name"], ConfigEntry(fields, f"{section}[{item['name']}].{inner}", path)


def _shape(value: object) -> str:
    """The type of *value*, for messages: the value itself may be a secret."""
    return f"<{type(value).__name__}>"
