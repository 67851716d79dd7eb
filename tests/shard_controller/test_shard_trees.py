"""A replica sees whole trees: also what the ring lists below a kind that is distributed and controlled at once."""

from __future__ import annotations

from kubeio.models import GroupResource, Meta
from kubeio.protocol import RingEntry
from kubeio.resource import ApiResource
from kubeio.shard.ring import RingView, RingViewSpec

SITES = ApiResource("example.com", "v1", "websites", "Website")
PAGES = GroupResource("example.com", "pages")
SECRETS = GroupResource("", "secrets")


def view(*resources: RingEntry) -> RingView:
    return RingView(Meta(name="r"), RingViewSpec("default", list(resources)))


def test_what_stands_below_a_controlled_kind_is_seen_too() -> None:
    ring = view(RingEntry("websites", "example.com", [PAGES]), RingEntry("pages", "example.com", [SECRETS]))
    assert ring.entry(SITES).controlled_resources == [PAGES, SECRETS]


def test_kinds_that_control_each_other_are_seen_once() -> None:
    ring = view(
        RingEntry("websites", "example.com", [PAGES, SECRETS]),
        RingEntry("pages", "example.com", [SECRETS, GroupResource("example.com", "websites")]),
    )
    assert ring.entry(SITES).controlled_resources == [PAGES, SECRETS]
