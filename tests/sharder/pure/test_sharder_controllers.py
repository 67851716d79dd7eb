"""Upwards from a controlled object: the nearest owner, the root's key, and what a pass remembers of it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kubeio.errors import KubeError, NotFound, ServerFailure
from kubeio.models import GroupResource, HasMeta, Meta, OwnerReference
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from sharder.planning import controllers
from sharder.planning.controllers import ControllerKeys, read_controller
from sharder.planning.keys import Controlled, ControllerName, RingKinds, Role, Root
from sharder.planning.planner import ControllerSeen
from sharder.ringspec.spec import KeyKind, RingResource
from tests.sharder.pure.lease_simulation import make_spec

KEYS = RingKeys("r")
SITES = ApiResource("example.com", "v1", "websites", "Website")
CONFIGMAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
SECRETS = ApiResource("", "v1", "secrets", "Secret")


def named(resource: ApiResource) -> GroupResource:
    return GroupResource(resource.group, resource.plural)


def kinds(key: KeyKind, label: str = "") -> RingKinds:
    tree = RingResource(named(SITES), (named(CONFIGMAPS), named(SECRETS)))
    spec = make_spec(resources=(tree,), key=key, key_label=label)
    return RingKinds(spec, {named(kind): kind for kind in (SITES, CONFIGMAPS, SECRETS)})


def made(kind: ApiResource, name: str, *, shard: str = "", below: Meta | None = None, **labels: str) -> Meta:
    owner = {"Website": "example.com/v1"}
    above = "Website" if kind is CONFIGMAPS else "ConfigMap"
    references = (
        [OwnerReference(owner.get(above, "v1"), above, below.name, below.uid, controller=True)]
        if below
        else []
    )
    given = {**labels, **({KEYS.shard: shard} if shard else {})}
    return Meta(name=name, namespace="ns", uid=f"u-{name}", labels=given, owner_references=references)


class Server:
    """Answers GETs of metadata."""

    def __init__(self, *metas: Meta) -> None:
        self.metas = {meta.name: meta for meta in metas}
        self.reads: list[str] = []

    async def get(self, resource: ApiResource, name: str, **_: Any) -> HasMeta:
        self.reads.append(name)
        if name not in self.metas:
            raise NotFound(f"GET {name}", status=404, reason="NotFound", message="not found")
        return HasMeta(self.metas[name])

    async def seen(self, ring: RingKinds, meta: Meta, resource: ApiResource = SECRETS) -> ControllerSeen:
        role = ring.role(resource, meta)
        assert isinstance(role, Controlled)
        return await read_controller(cast(Client, self), role.controller, kinds=ring, keys=KEYS)


async def test_a_grandchild_has_its_direct_controllers_owner_and_its_roots_key() -> None:
    site = made(SITES, "shop", shard="a-1")
    page = made(CONFIGMAPS, "page", shard="b-1", below=site)
    server = Server(site, page)
    seen = await server.seen(kinds(KeyKind.OWNER), made(SECRETS, "s", below=page))
    assert seen == ControllerSeen("b-1", key="example.com_ns_shop", main="websites.example.com")
    assert server.reads == ["page"], "the page's reference tells the key already"


async def test_a_grandchild_whose_controller_has_no_owner_goes_by_the_next_above() -> None:
    site = made(SITES, "shop", shard="a-1")
    page = made(CONFIGMAPS, "page", below=site)
    seen = await Server(site, page).seen(kinds(KeyKind.OWNER), made(SECRETS, "s", below=page))
    assert seen == ControllerSeen("a-1", key="example.com_ns_shop", main="websites.example.com")


async def test_what_follows_an_object_that_no_object_of_the_ring_controls_is_none_of_its_business() -> None:
    page = made(CONFIGMAPS, "page")
    seen = await Server(page).seen(kinds(KeyKind.OWNER), made(SECRETS, "s", below=page))
    assert seen.is_outsider


async def test_what_stands_below_a_kind_that_is_not_served_is_not_judged_at_any_depth() -> None:
    children = (named(CONFIGMAPS), named(SECRETS))
    jobs = ApiResource("batch", "v1", "jobs", "Job")
    spec = make_spec(
        resources=(RingResource(named(SITES), children), RingResource(named(jobs), children)),
        key=KeyKind.OWNER,
    )
    ring = RingKinds(spec, {named(kind): kind for kind in (jobs, CONFIGMAPS, SECRETS)})
    page = made(CONFIGMAPS, "page", below=made(SITES, "shop"), shard="a-1")
    with pytest.raises(ServerFailure, match="not served"):
        await Server(page).seen(ring, made(SECRETS, "s", below=page))


async def test_a_controller_that_is_gone_or_a_namesake_does_not_exist() -> None:
    site = made(SITES, "shop")
    page = made(CONFIGMAPS, "page", below=site)
    assert await Server().seen(kinds(KeyKind.OWNER), page, CONFIGMAPS) == ControllerSeen(
        exists=False, key="example.com_ns_shop"
    )
    site.uid = "another"
    assert not (await Server(site).seen(kinds(KeyKind.OWNER), page, CONFIGMAPS)).exists


async def test_under_label_the_controllers_value_is_the_key() -> None:
    site = made(SITES, "shop", shard="a-1", tenant="acme")
    page = made(CONFIGMAPS, "page", below=site, tenant="other")
    seen = await Server(site).seen(kinds(KeyKind.LABEL, "tenant"), page, CONFIGMAPS)
    assert seen == ControllerSeen("a-1", key="=acme", main="websites.example.com")


async def test_a_cycle_of_owner_references_ends() -> None:
    ring = RingKinds(
        make_spec(resources=(RingResource(named(CONFIGMAPS), (named(CONFIGMAPS),)),), key=KeyKind.OWNER),
        {named(CONFIGMAPS): CONFIGMAPS},
    )
    page = made(CONFIGMAPS, "page")
    page.owner_references = [OwnerReference("v1", "ConfigMap", "page", "u-page", controller=True)]
    server = Server(page)
    assert (await server.seen(ring, page, CONFIGMAPS)).key == "_ns_page"
    assert len(server.reads) == controllers.MAX_DEPTH


# ---- what a pass remembers --------------------------------------------------------------------------------------


class Reads:
    def __init__(self) -> None:
        self.names: list[str] = []

    async def __call__(self, controller: ControllerName) -> ControllerSeen:
        self.names.append(controller.name)
        if controller.name == "broken":
            raise ServerFailure("GET broken", status=500)
        return ControllerSeen(None, key=f"={controller.name}", is_outsider=controller.name == "strange")


def controlled(by: str) -> Role:
    return Controlled(None, ControllerName(SITES, "ns", by, f"u-{by}"))


def keys_of(roles: list[Role | KubeError]) -> list[str | None]:
    return [role.key if isinstance(role, Root | Controlled) else None for role in roles]


async def test_a_controller_is_read_once_in_a_pass_and_not_at_all_if_the_pass_met_it() -> None:
    reads = Reads()
    ancestry = ControllerKeys(kinds(KeyKind.LABEL, "tenant"), reads)
    ancestry.remember(SITES, made(SITES, "met"), Root("=acme"))
    found = await ancestry.resolved([controlled("met"), controlled("x"), controlled("x"), Root("r")])
    assert keys_of(found) == ["=acme", "=x", "=x", "r"]
    assert keys_of(await ancestry.resolved([controlled("x"), controlled("strange")])) == ["=x", None]
    assert reads.names == ["x", "strange"]
    ancestry.forget()
    await ancestry.resolved([controlled("met")])
    assert reads.names == ["x", "strange", "met"]


async def test_what_is_remembered_is_bounded_and_the_rest_is_read_each_time() -> None:
    reads = Reads()
    ancestry = ControllerKeys(kinds(KeyKind.LABEL, "tenant"), reads, most=1)
    for _ in range(2):
        assert keys_of(await ancestry.resolved([controlled("x"), controlled("y")])) == ["=x", "=y"]
    assert reads.names == ["x", "y", "y"]


async def test_a_controller_that_cannot_be_read_costs_its_own_objects_and_is_read_again() -> None:
    reads = Reads()
    ancestry = ControllerKeys(kinds(KeyKind.LABEL, "tenant"), reads)
    for _ in range(2):
        found = await ancestry.resolved([controlled("x"), controlled("broken"), Root("r")])
        assert keys_of(found) == ["=x", None, "r"]
        assert isinstance(found[1], ServerFailure)
    assert reads.names == ["x", "broken", "broken"]
