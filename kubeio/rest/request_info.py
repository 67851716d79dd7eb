"""RequestInfo: verb, resource and name of a request, from method and target alone, as kube-apiserver reads them. Pure.

Knows no registry: a resource need not be served. Authorization, faults and the selection of a proxy depend on it, so a
request must never mean one thing here and another to the server. Compared with Go's own resolver by
tests/proxy/test_request_info_against_go.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

_VERBS: Final = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_NAMESPACE_SUBRESOURCES: Final = ("status", "finalize")
_PREFIXES: Final = ("watch", "proxy")
"""Verbs that very old clients write into the path."""
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL: Final = re.compile(r"[\x00-\x20\x7f]")
_FIELD_OPERATOR: Final = re.compile(r"!=|==|=")


class BadTarget(ValueError):
    """A request target that a server answers with 400 whatever it asks for."""


class RequestInfo(msgspec.Struct, frozen=True):
    """A request for a resource, or (*resource* empty) for a path.

    *path* is decoded. *name* of a list or watch is the one that its field selector asks for; a server that refuses the
    query may read it otherwise. *is_old_watch*: the verb stands in the path (`/api/v1/watch/pods`).
    """

    verb: str
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    is_old_watch: bool = False

    @property
    def group_resource(self) -> str:
        """`websites.example.com`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


def request_info(method: str, target: str) -> RequestInfo:
    """The request *method* on *target*: path and query as they stand in the request line, UTF-8 with surrogate escapes.

    Raises: BadTarget if the path cannot be decoded.
    """
    raw_path, _, query = target.partition("?")
    if not target.startswith("/") or _CONTROL.search(target) or _BAD_ESCAPE.search(raw_path):
        raise BadTarget(f"{target!r} is no path")
    path = _decoded(raw_path)
    trimmed = path.strip("/")
    parts = trimmed.split("/") if trimmed else []
    if len(parts) > 2 and parts[0] == "api":
        group, rest = "", parts[2:]
    elif len(parts) > 3 and parts[0] == "apis":
        group, rest = parts[1], parts[3:]
    else:
        return RequestInfo(method.lower(), path)
    verb = _VERBS.get(method, "")
    is_prefixed = rest[0] in _PREFIXES
    if is_prefixed:
        verb, rest = rest[0], rest[1:]
        if not rest:
            return RequestInfo(verb, path, group)
    return _resource_request(verb, path, group, rest, query=query, is_prefixed=is_prefixed)


def _resource_request(
    verb: str, path: str, group: str, rest: list[str], *, query: str, is_prefixed: bool
) -> RequestInfo:
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            rest = rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 and verb != "proxy" else ""
    if not name and verb == "get":
        parameters = first_values(query)
        verb = "watch" if is_true(parameters.get("watch")) else "list"
        name = _selected_name(parameters.get("fieldSelector", ""))
    if not name and verb == "delete":
        verb = "deletecollection"
    is_old_watch = is_prefixed and verb == "watch"
    return RequestInfo(verb, path, group, rest[0], subresource, namespace, name, is_old_watch)


def query_pieces(query: str) -> Iterator[tuple[str, str, str]]:
    """Each parameter of *query* that a Go server reads, in order: piece as it stands, name, value.

    `;` separates nothing: a piece that holds one is ignored, and so is one that cannot be decoded.
    """
    for piece in query.split("&") if query else ():
        if not piece or ";" in piece or _BAD_ESCAPE.search(piece):
            continue
        name, _, value = piece.partition("=")
        yield piece, _decoded(name.replace("+", " ")), _decoded(value.replace("+", " "))


def first_values(query: str) -> Mapping[str, str]:
    """The parameters of *query*: of those that repeat, the first one counts."""
    values: dict[str, str] = {}
    for _, name, value in query_pieces(query):
        values.setdefault(name, value)
    return values


def is_true(value: str | None) -> bool:
    """Whether a parameter is a true flag: present, and neither `0` nor `false`. The empty value is true."""
    return value is not None and value != "0" and value.casefold() != "false"


def _decoded(text: str) -> str:
    if "%" not in text:
        return text
    return unquote_to_bytes(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def _selected_name(selector: str) -> str:
    """The name that field selector *selector* asks for; empty if it asks for none, or cannot be read."""
    terms = []
    for term in sorted(filter(None, _split_unescaped(selector))):
        found = _FIELD_OPERATOR.search(term)
        value = _unescaped(term[found.end() :]) if found else None
        if found is None or value is None:
            return ""
        terms.append((term[: found.start()], found[0], value))
    for field, operator, value in terms:
        if field == "metadata.name" and operator != "!=":
            return "" if value in (".", "..") or "/" in value or "%" in value else value
    return ""


def _split_unescaped(selector: str) -> Iterator[str]:
    start, is_escaped = 0, False
    for at, letter in enumerate(selector):
        if is_escaped:
            is_escaped = False
        elif letter == "\\":
            is_escaped = True
        elif letter == ",":
            yield selector[start:at]
            start = at + 1
    yield selector[start:]


def _unescaped(value: str) -> str | None:
    """*value* of a field selector; None if it is none."""
    if re.search(r"(?:^|[^\\])(?:\\\\)*(?:\\(?:[^\\,=]|$)|[,=])", value):
        return None
    return re.sub(r"\\([\\,=])", r"\1", value)
