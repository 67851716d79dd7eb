"""The keys of the ring protocol, built once from a label domain and a ring's name (docs/protocol.md, section 2)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from kubeio.errors import InputError

DEFAULT_DOMAIN: Final = "ringleader.dev"
PROTOCOL_VERSION: Final = "v1"
MAX_NAME: Final = 63
"""Label values, and the part of a key after its slash."""
FIRST_TURN: Final = "0"
"""The turn of an object that is created with its owner's name: no version came before."""

_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"\A[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?\Z")
_DNS_NAME = re.compile(r"\A[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z")


def is_label_value(value: str) -> bool:
    """Whether the API accepts *value* as a non-empty label value."""
    return len(value) <= MAX_NAME and _LABEL_VALUE.match(value) is not None


def is_shard_name(value: str) -> bool:
    """Whether *value* can be the name of a Lease and a label value at once."""
    return len(value) <= MAX_NAME and _DNS_NAME.match(value) is not None


def check_namespace(field: str, name: str) -> str:
    """*name*, if a namespace can be called so. Raises: InputError naming *field*."""
    if _NAMESPACE.fullmatch(name) is None:
        remedy = (
            "use at most 63 lower-case letters, digits and '-', beginning and ending with a letter or digit"
        )
        raise InputError(field, name, "cannot be a namespace", remedy)
    return name


def split_namespaces(text: str, *, field: str = "--namespaces") -> tuple[str, ...]:
    """The namespaces in `a,b,c`, each once; none for an empty text. Raises: InputError naming *field*."""
    names = [name.strip() for name in text.split(",")] if text else []
    return tuple(dict.fromkeys(check_namespace(field, name) for name in names))


def json_pointer(*path: str) -> str:
    """RFC 6901 pointer to *path*: `json_pointer("metadata", "labels", "a/b")` is `/metadata/labels/a~1b`."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


class RingKeys:
    """Every label and annotation key of one ring in one label domain."""

    __slots__ = (
        "contested",
        "domain",
        "drain",
        "duration",
        "field_manager",
        "hold",
        "member",
        "member_hash",
        "objects",
        "pod",
        "pod_uid",
        "process",
        "protocol",
        "released_by",
        "resources",
        "ring",
        "ring_label",
        "shard",
        "state",
        "synced",
        "turn",
    )

    def __init__(self, ring: str, domain: str = DEFAULT_DOMAIN) -> None:
        self.ring = ring
        self.domain = domain
        # on objects
        self.shard = f"shard.{domain}/{ring}"
        self.drain = f"drain.{domain}/{ring}"
        self.turn = f"turn.{domain}/{ring}"  # an annotation
        # labels of a Lease
        self.ring_label = f"{domain}/controllerring"
        self.state = f"{domain}/state"
        self.member_hash = f"{domain}/member-hash"
        # annotations of a Lease
        self.member = f"{domain}/member"
        self.protocol = f"{domain}/protocol"
        self.hold = f"{domain}/hold"
        self.pod = f"{domain}/pod"
        self.pod_uid = f"{domain}/pod-uid"
        self.process = f"{domain}/process"
        self.contested = f"{domain}/contested"
        self.released_by = f"{domain}/released-by"
        self.field_manager = f"{domain}/field-manager"
        self.duration = f"{domain}/duration-seconds"
        self.synced = f"{domain}/synced"
        self.resources = f"{domain}/resources"
        self.objects = f"{domain}/objects"


@lru_cache(maxsize=64)
def ring_keys(ring: str, domain: str) -> RingKeys:
    """`RingKeys`, built once: they are asked for with every decision."""
    return RingKeys(ring, domain)
