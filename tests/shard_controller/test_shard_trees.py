"""A replica sees whole trees: also what the ring lists below a kind that is distributed and controlled at once."""

from __future__ import annotations

from kubeio.models import Meta
from kubeio.resource import ApiResource
from shard_controller.process.settings import GroupResource, RingResource, RingSpec, RingView

SITES = ApiResource("example.com", "v1", "websites", "Website")
PAGES = GroupResource("pages", "example.com")
SECRETS = GroupResource("secrets")


def view(*resources: RingResource) -> RingView:
    return RingView(Meta(name="r"), RingSpec("default", list(resources)))


def test_what_stands_below_a_controlled_kind_is_seen_too() -> None:
    ring = view(
        RingResource("websites", "example.com", [PAGES]), RingResource("pages", "example.com", [SECRETS])
    )
    assert ring.entry(SITES).controlled_resources == [PAGES, SECRETS]


def test_kinds_that_control_each_other_are_seen_once() -> None:
    ring = view(
        RingResource("websites", "example.com", [PAGES, SECRETS]),
        RingResource("pages", "example.com", [SECRETS, GroupResource("websites", "example.com")]),
    )
    assert ring.entry(SITES).controlled_resources == [PAGES, SECRETS]
