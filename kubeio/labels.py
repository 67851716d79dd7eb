"""Names that the API accepts: labels, DNS names, namespaces, JSON pointers. Pure."""

from __future__ import annotations

import re
from typing import Final

from kubeio.errors import InputError

MAX_NAME: Final = 63
"""Label values, and the part of a key after its slash."""

_PART = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_LABEL_VALUE = re.compile(r"\A[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?\Z")
_DNS_LABEL = re.compile(rf"\A{_PART}\Z")
_DNS_NAME = re.compile(rf"\A{_PART}(\.{_PART})*\Z")


def is_label_value(value: str) -> bool:
    """Whether the API accepts *value* as a non-empty label value."""
    return len(value) <= MAX_NAME and _LABEL_VALUE.match(value) is not None


def is_dns_label(text: str) -> bool:
    """Whether *text* is a DNS label in lower case: the name of a namespace or a resource."""
    return _DNS_LABEL.match(text) is not None


def is_dns_subdomain(text: str, *, longest: int = 253) -> bool:
    """Whether *text* is a DNS name in lower case: the name of most objects, or an API group."""
    return len(text) <= longest and _DNS_NAME.match(text) is not None


def is_label_key(text: str) -> bool:
    """Whether *text* can be a label's key: a name, with a DNS name and `/` before it or not."""
    prefix, slash, name = text.rpartition("/")
    return is_label_value(name) and (is_dns_subdomain(prefix) if slash else True)


def check_namespace(field: str, name: str) -> str:
    """*name*, if a namespace can be called so. Raises: InputError naming *field*."""
    if not is_dns_label(name):
        remedy = (
            "use at most 63 lower-case letters, digits and '-', beginning and ending with a letter or digit"
        )
        raise InputError(field, name, "cannot be a namespace", remedy)
    return name


def split_namespaces(text: str) -> tuple[str, ...]:
    """The namespaces in `a,b,c`, each once; none for an empty text. Raises: InputError naming `--namespaces`."""
    names = [name.strip() for name in text.split(",")] if text else []
    return tuple(dict.fromkeys(check_namespace("--namespaces", name) for name in names))


def json_pointer(*path: str) -> str:
    """RFC 6901 pointer to *path*: `json_pointer("metadata", "labels", "a/b")` is `/metadata/labels/a~1b`."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)
