"""A document that a person wrote into a file: read and checked for its shape, never written.

Owns what can be wrong with the file itself; what its fields mean is the reader's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kubeio.errors import InputError

MAX_BYTES = 1_000_000
"""Limit of a file's size: no object of an API server is larger."""
_Base: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc] # which of the two is known at run time only
    """YAML as Kubernetes reads it: an instant is a string."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as in the base class
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in _Base.yaml_implicit_resolvers.items()
    }


def read_document(field: str, path: Path) -> dict[str, object]:
    """The one YAML (or JSON) mapping in the file at *path*, which *field* names. Raises InputError."""
    return parse_document(field, path, read_file(field, path))


def read_file(field: str, path: Path) -> bytes:
    """Content of the file at *path*. Raises InputError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        problem = (
            "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        )
        raise InputError(field, str(path), problem, "name a readable file") from None
    if len(content) > MAX_BYTES:
        raise InputError(field, str(path), f"has more than {MAX_BYTES:,} bytes", "name a file with one ring")
    return content


def parse_document(field: str, path: Path, content: bytes) -> dict[str, object]:
    """The one mapping that *content* of the file at *path* is. Raises InputError."""
    try:
        documents = [doc for doc in yaml.load_all(content, Loader=_Loader) if doc is not None]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(
            field, str(path), f"is not YAML{_place(error)}", "write it as for kubectl apply -f"
        ) from None
    if len(documents) != 1:
        found = f"has {len(documents)} documents" if documents else "is empty"
        raise InputError(field, str(path), found, "write one document into it, as for kubectl apply -f")
    if not isinstance(documents[0], dict):
        raise InputError(field, str(path), "is not a mapping", "write it as for kubectl apply -f")
    return documents[0]


def _place(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f": line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
