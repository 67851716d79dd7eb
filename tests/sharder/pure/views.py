"""Views and objects written down by hand, for tests of the planner."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from kubeio.models import Meta, OwnerReference
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from ring.ring import HashRing
from sharder.membership.places import Place
from sharder.membership.shards import ShardState
from sharder.membership.view import AssignmentHold, ShardView, View
from sharder.planning.keys import Controlled, ControllerName, Role, Root
from sharder.planning.planner import ControllerSeen, Subject, Terms, plan

KEYS = RingKeys("r")
WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
CONFIGMAPS = ApiResource("", "v1", "configmaps", "ConfigMap")


def make_view(
    shards: Mapping[str, ShardState],
    places: Mapping[str, str | None],
    *,
    hands_over: bool = True,
    hold: AssignmentHold | None = None,
    foreign: frozenset[str] = frozenset(),
    at: float = 100.0,
) -> View:
    """Lives by name, places by member; the ring is made of the places."""
    return View(
        version=1,
        ring_version=1,
        at=at,
        shards={
            name: ShardView(name, name.split("-")[0], state, hands_over, since=0.0)
            for name, state in shards.items()
        },
        foreign=foreign,
        places={member: Place(member, 1.0, shard) for member, shard in places.items()},
        ring=HashRing(sorted(places), virtual_nodes=16) if places else None,
        hold=hold,
        settles_at=at + 1,
        problems=(),
    )


def names_for(view: View, member: str, count: int) -> list[str]:
    """The names of *count* Websites in namespace `ns` whose place is *member*'s."""
    assert view.ring is not None
    names = (f"site-{i}" for i in range(10_000))
    own = (name for name in names if view.ring.owner(f"example.com_ns_{name}") == member)
    return list(islice(own, count))


def name_for(view: View, member: str) -> str:
    """The name of one such Website."""
    return names_for(view, member, 1)[0]


def make_meta(name: str, *, shard: str | None = None, drain: str | None = None, **more: Any) -> Meta:
    labels = {KEYS.shard: shard, KEYS.drain: drain}
    return Meta(
        name=name,
        namespace="ns",
        uid=f"uid-of-{name}",
        resource_version="7",
        labels={key: value for key, value in labels.items() if value is not None},
        **more,
    )


def website(name: str, *, shard: str | None = None, drain: str | None = None, **more: Any) -> Subject:
    role: Role = Root(f"example.com_ns_{name}")
    return Subject(make_meta(name, shard=shard, drain=drain), role, **more)


def child_of(
    parent: str,
    *,
    shard: str | None = None,
    drain: str | None = None,
    controller: ControllerSeen | None = None,
    **more: Any,
) -> Subject:
    """A ConfigMap that Website *parent* controls."""
    reference = OwnerReference("example.com/v1", "Website", parent, f"uid-of-{parent}", controller=True)
    meta = make_meta(f"{parent}-html", shard=shard, drain=drain, owner_references=[reference])
    role = Controlled(f"example.com_ns_{parent}", ControllerName(WEBSITES, "ns", parent, f"uid-of-{parent}"))
    return Subject(meta, role, controller=controller, **more)


class Published:
    """A membership that shows the views that the test publishes, each under a version of its own."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._changed = asyncio.Condition()

    async def publish(self, view: View, *, same_ring: bool = False) -> None:
        """Show *view*. *same_ring*: no object's desired owner differs from that before."""
        async with self._changed:
            version = self.view.version + 1
            ring_version = self.view.ring_version if same_ring else version
            self.view = replace(view, version=version, ring_version=ring_version)
            self._changed.notify_all()

    async def wait_newer(self, version: int) -> View:
        async with self._changed:
            await self._changed.wait_for(lambda: self.view.version > version)
            return self.view


def planned(subject: Subject, view: View, **terms: bool) -> object:
    return plan(subject, view=view, terms=Terms(**terms), keys=KEYS)
