"""Keys and values of the ring protocol, and the resource that describes rings (docs/protocol.md, section 2). Pure.

Of kubeio's other modules `kubeio.shard` alone knows rings.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from kubeio.labels import MAX_NAME, is_dns_subdomain
from kubeio.models import GroupResource
from kubeio.resource import ApiResource

DEFAULT_DOMAIN: Final = "ringleader.dev"
PROTOCOL_VERSION: Final = "v1"
SHARDER_HOLDER: Final = "sharder:"
"""Holder of a taken Lease: this, and the sharder's identity. The colon keeps it apart from every shard's name."""
PROXY_MANAGER: Final = "ringleader-proxy"
"""Field manager of a proxy of an unmodified controller: a Lease that names it is such a proxy's."""
FIRST_TURN: Final = "0"
"""Turn of an object that is created with its owner's name: no version came before."""
CONTROLLER_RINGS: Final = ApiResource(
    "ringleader.dev", "v1alpha1", "controllerrings", "ControllerRing", namespaced=False
)


class RingEntry(msgspec.Struct, frozen=True, rename="camel"):
    """Entry of a ring's `spec.resources`, as the API writes it."""

    resource: str
    group: str = ""
    controlled_resources: list[GroupResource] = []

    @property
    def main(self) -> GroupResource:
        return GroupResource(self.group, self.resource)


def is_shard_name(value: str) -> bool:
    """Whether *value* can be the name of a Lease and a label value at once."""
    return len(value) <= MAX_NAME and is_dns_subdomain(value)


class RingKeys:
    """Every label and annotation key of one ring in one label domain."""

    def __init__(self, ring: str, domain: str = DEFAULT_DOMAIN) -> None:
        self.ring = ring
        self.domain = domain
        # on objects
        self.shard = f"shard.{domain}/{ring}"
        self.drain = f"drain.{domain}/{ring}"
        self.turn = f"turn.{domain}/{ring}"  # an annotation
        self.visible = f"visible.{domain}/{ring}"  # the shard whose unmodified controller may see the object
        # extras of the user that a request acts as (docs/adr/0051)
        self.life_extra = f"life.{domain}/{ring}"
        self.shard_extra = f"shard.{domain}/{ring}"
        # labels of a Lease
        self.ring_label = f"{domain}/controllerring"
        self.state = f"{domain}/state"
        self.member_hash = f"{domain}/member-hash"
        # annotations of a Lease
        self.member = f"{domain}/member"
        self.protocol = f"{domain}/protocol"
        self.hold = f"{domain}/hold"
        self.leaving = f"{domain}/leaving"
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


def write_counts(counts: Mapping[str, int]) -> str:
    """Counts of a shard's objects as its Lease has them: `configmaps=2,websites.example.com=2`, sorted.

    For people: no decision reads them.
    """
    return ",".join(f"{name}={number}" for name, number in sorted(counts.items()))


def read_counts(text: str) -> dict[str, int] | None:
    """Counts by `plural.group`; None unless *text* consists of them: anybody may write a Lease."""
    found = {}
    for each in text.split(","):
        name, _, number = each.partition("=")
        if not (name and number.isascii() and number.isdigit() and len(number) <= 12):
            return None
        found[name] = int(number)
    return found


def activated_holder(ring: str) -> str:
    """Holder of the former controller's Lease once *ring* is activated, whichever sharder acts."""
    return f"ringleader:{ring}"
