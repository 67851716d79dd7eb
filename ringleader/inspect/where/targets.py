"""Files that name objects: a line for each, or manifests as kubectl takes them. No cluster is asked.

Owns the two forms. A line or document that cannot be used is told with its number and left out, the others count.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kubeio.errors import InputError

_MANIFESTS: Final = (".yaml", ".yml", ".json")
_LONGEST: Final = 80
_FORM: Final = "write KIND/NAME or KIND/NAMESPACE/NAME, as website/blog"


@dataclass(frozen=True, slots=True)
class Wanted:
    """An object that a file names; *namespace* is empty where the file does not say one."""

    source: str
    line: int
    text: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Broken:
    """What a file says at *line* and cannot be used, and why."""

    source: str
    line: int
    text: str
    problem: str

    def __str__(self) -> str:
        text = self.text if len(self.text) <= _LONGEST else self.text[:_LONGEST] + "..."
        return f"{self.source} line {self.line}: {text!r} {self.problem}"


def read_targets(source: str) -> list[Wanted | Broken]:
    """The objects in the file *source* (`-`: standard input). Raises InputError if it cannot be read at all."""
    body = _body(source)
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InputError("-f", source, f"is no text (byte {error.start})", "name a file of lines") from None
    read = _manifests if source.endswith(_MANIFESTS) else _lines
    found = list(read(source, text))
    if not found:
        raise InputError("-f", source, "names no object", _FORM)
    return found


def _body(source: str) -> bytes:
    if source == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise InputError(
            "-f", source, f"cannot be read ({error.strerror})", "name a file, or - for standard input"
        ) from None


def _lines(source: str, text: str) -> Iterator[Wanted | Broken]:
    """`KIND/NAME` or `KIND/NAMESPACE/NAME` in each line; empty lines and what follows a # do not count."""
    for number, line in enumerate(text.splitlines(), start=1):
        said = line.partition("#")[0].strip()
        if not said:
            continue
        parts = said.split("/")
        if len(parts) not in (2, 3) or not all(parts) or len(said.split()) > 1:
            yield Broken(source, number, said, f"does not name one object; {_FORM}")
        else:
            yield Wanted(source, number, said, parts[0], parts[1] if len(parts) == 3 else "", parts[-1])


def _manifests(source: str, text: str) -> Iterator[Wanted | Broken]:
    """Each document of a YAML or JSON file; items of a List count."""
    import yaml

    for begin, document in _documents(text):
        try:
            found = yaml.safe_load(document)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            at = begin + (mark.line if mark else 0)
            yield Broken(source, at, _nth(text, at), f"is no YAML ({getattr(error, 'problem', error)})")
            continue
        if found is None:
            continue
        items = found.get("items") if isinstance(found, dict) else None
        for item in items if isinstance(items, list) else [found]:
            yield _manifest(source, begin, item)


def _documents(text: str) -> Iterator[tuple[int, str]]:
    """Each document and the number of its first line: one that is broken must not spoil the others."""
    begin = 1
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.rstrip() == "---":
            yield begin, "\n".join(lines)
            begin, lines = number + 1, []
        else:
            lines.append(line)
    yield begin, "\n".join(lines)


def _manifest(source: str, line: int, found: Any) -> Wanted | Broken:
    meta = found.get("metadata") if isinstance(found, dict) else None
    kind, name = (found.get("kind"), meta.get("name")) if isinstance(meta, dict) else (None, None)
    if not (isinstance(kind, str) and kind and isinstance(name, str) and name):
        return Broken(
            source, line, _short(found), "is no object; it wants apiVersion, kind and metadata.name"
        )
    group, slash, version = str(found.get("apiVersion", "")).rpartition("/")
    full = f"{kind}.{group}/{version}" if slash else kind
    namespace = meta.get("namespace") if isinstance(meta, dict) else ""
    return Wanted(source, line, f"{kind}/{name}", full, str(namespace or ""), name)


def _short(found: Any) -> str:
    return " ".join(str(found).split())[:_LONGEST]


def _nth(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""
