"""A ring that stands in a file: no ControllerRing is read or written, and only the named namespaces are looked at."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import yaml
from prometheus_client import CollectorRegistry

from devcluster.faults import Fault
from kubeio.access.cluster import load_cluster
from kubeio.errors import InputError, NotFound
from kubeio.models import Lease, Meta
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import CRDS, EVENTS
from kubeio.rest.client import Client
from sharder.metrics import SharderMetrics
from sharder.rings.ring_file import FileRing, RingFile
from sharder.rings.store import RECORD, record_name
from sharder.ringspec.scope import Scope
from tests.sharder.io.environment import (
    KEYS,
    RING,
    WEBSITES,
    SharderEnvironment,
    eventually,
    running,
    sharder_context,
    wait_until,
)

SPEC = {
    "leaseNamespace": "default",
    "resources": [{"group": "example.com", "resource": "websites"}],
    "settleSeconds": 0.3,
    "maxLeaseDurationSeconds": 2,
}


def ring(name: str = RING, **spec: object) -> str:
    document = {
        "apiVersion": "ringleader.dev/v1alpha1",
        "kind": "ControllerRing",
        "metadata": {"name": name},
        "spec": {**SPEC, **spec},
    }
    return yaml.safe_dump(document)


class Place:
    """A ring file, an API server without ControllerRings, and what the sharder's metrics say."""

    def __init__(self, env: SharderEnvironment, path: Path) -> None:
        self.env = env
        self.path = path
        self.registry = CollectorRegistry()
        self.metrics = SharderMetrics(self.registry)
        path.write_text(ring())

    @asynccontextmanager
    async def sharder(
        self, *namespaces: str, identity: str = "sharder-1", leads: bool = True, release: bool = False
    ) -> AsyncIterator[FileRing]:
        """A sharder that works the ring of the file, under an account that may not touch ControllerRings."""
        user = await self.env.plane.kubeconfig_for(identity)
        await self.env.plane.faults.add(
            Fault(what="error", code=403, user=identity, resource=CONTROLLER_RINGS.group_resource)
        )
        async with Client(load_cluster(kubeconfig=str(user))) as client:
            context = sharder_context(client, identity=identity, metrics=self.metrics)
            work = FileRing(context, RingFile(self.path, scope=Scope(namespaces)), release=release)
            if leads:
                work.lead()
            async with running(work.run()):
                yield work

    async def record(self) -> Mapping[str, object]:
        """What the sharder remembers of the ring; nothing before it wrote something down."""
        try:
            lease = await self.env.leases.get(record_name(RING))
        except NotFound:
            return {}
        found = msgspec.json.decode(lease.metadata.annotations[RECORD], type=dict[str, object])
        status = found.get("status", {})
        assert isinstance(status, dict)
        return status

    async def condition(self, kind: str) -> Mapping[str, object]:
        conditions = (await self.record()).get("conditions", [])
        assert isinstance(conditions, list)
        return next((c for c in conditions if c["type"] == kind), {})

    async def owners(self) -> dict[str, str]:
        """Owner of each website, by namespace and name."""
        return {
            str(item.meta.key): item.meta.labels.get(KEYS.shard, "")
            async for page in self.env.client.pages(WEBSITES, metadata_only=True)
            for item in page.objects
        }

    def measured(self, name: str) -> float | None:
        return self.registry.get_sample_value(name, {"ring": RING})


@pytest.fixture
async def place(env: SharderEnvironment, tmp_path: Path) -> Place:
    """The environment without the ControllerRing resource; namespaces team-a and team-b."""
    await env.client.delete(CRDS, f"{CONTROLLER_RINGS.plural}.{CONTROLLER_RINGS.group}")
    for name in ("team-a", "team-b"):
        await env.namespace(name, {})
    return Place(env, tmp_path / "ring.yaml")


async def owned(place: Place, name: str, owner: str = "a-00000001") -> None:
    await eventually(place.owners, lambda owners: owners[name] == owner)


async def refused_for(place: Place, words: str) -> None:
    await eventually(
        lambda: place.condition("Ready"),
        lambda ready: ready.get("reason") == "InvalidSpec" and words in str(ready["message"]),
    )


async def asked_to_give_up(place: Place, namespace: str) -> None:
    await eventually(
        lambda: place.env.client.list_page(WEBSITES, namespace=namespace),
        lambda found: found.objects[0].meta.labels.get(KEYS.drain) == "",
    )


async def until_places(place: Place, *states: str) -> None:
    await eventually(
        place.record, lambda record: tuple(m["place"] for m in cast(Any, record.get("members", []))) == states
    )


async def test_objects_of_the_named_namespaces_are_assigned_and_no_others(place: Place) -> None:
    await place.env.shard("a")
    for namespace in ("default", "team-a", "team-b"):
        await place.env.site("one", namespace=namespace)
    async with place.sharder("team-a", "team-b"):
        await owned(place, "team-a/one")
        await owned(place, "team-b/one")
        await place.env.site("late", namespace="team-b")
        await owned(place, "team-b/late")
        await eventually(
            lambda: place.condition("Balanced"), lambda condition: condition.get("status") == "True"
        )
        assert (await place.owners())["default/one"] == ""


async def test_a_dead_shard_s_objects_move_in_every_namespace(place: Place) -> None:
    a = await place.env.shard("a")
    await place.env.shard("b")
    for number in range(6):
        for namespace in ("team-a", "team-b"):
            await place.env.site(f"site-{number}", namespace=namespace, labels={KEYS.shard: a.name})
    async with place.sharder("team-a", "team-b"):
        await a.release()
        await eventually(place.owners, lambda owners: set(owners.values()) == {"b-00000001"})


async def test_an_edit_of_the_file_is_worked_at_once(place: Place) -> None:
    await place.env.shard("a")
    await place.env.shard("b")
    async with place.sharder("team-a"):
        await place.env.site("one", namespace="team-a")
        await until_places(place, "filled", "filled")
        place.path.write_text(ring(members={"a": {"cordoned": True}}))
        await until_places(place, "none", "filled")
        assert (await place.record())["observedGeneration"] == 2


BROKEN = {
    "yaml": "spec: [",
    "name": ring(name="other"),
    "lease-namespace": ring(leaseNamespace="team-b"),
    "domain": ring(labelDomain="other.example.com"),
    "value": ring(imbalancePercent=700),
    "selector": ring(namespaceSelector={"matchLabels": {"a": "b"}}),
    "empty": "",
}


async def test_a_broken_edit_is_logged_and_the_last_good_version_goes_on(place: Place) -> None:
    await place.env.shard("a")
    async with place.sharder("team-a"):
        for number, (what, broken) in enumerate(BROKEN.items()):
            place.path.write_text(ring(settleSeconds=0.3 + number / 10))
            await wait_until(lambda: place.measured("ringleader_ring_file_refused") == 0)
            place.path.write_text(broken)
            await wait_until(lambda: place.measured("ringleader_ring_file_refused"))
            await place.env.site(what, namespace="team-a")
            await owned(place, f"team-a/{what}")


async def test_a_file_that_goes_away_changes_nothing(place: Place) -> None:
    await place.env.shard("a")
    async with place.sharder("team-a"):
        await place.env.site("one", namespace="team-a")
        await owned(place, "team-a/one")
        place.path.unlink()
        await wait_until(lambda: place.measured("ringleader_ring_file_refused"))
        await place.env.site("two", namespace="team-a")
        await owned(place, "team-a/two")


async def test_what_is_immutable_is_remembered_over_restarts(place: Place) -> None:
    await place.env.shard("a")
    async with place.sharder("team-a"):
        await place.env.site("one", namespace="team-a")
        await owned(place, "team-a/one")
    place.path.write_text(ring(labelDomain="other.example.com"))
    async with place.sharder("team-a", identity="sharder-2"):
        await refused_for(place, "spec.labelDomain")


@pytest.mark.parametrize("had_holder", [True, False], ids=["now", "record-of-an-older-version"])
async def test_a_label_that_names_the_ring_s_record_does_not_take_it(place: Place, had_holder: bool) -> None:
    await place.env.shard("a")
    name = record_name(RING)
    if not had_holder:
        record = '{"status":{"namespaces":["team-a"]}}'
        await place.env.leases.create(Lease(Meta(name=name, annotations={RECORD: record})))
    await place.env.site("one", namespace="team-a", labels={KEYS.shard: name})
    async with place.sharder("team-a"):
        await owned(place, "team-a/one")
        await until_places(place, "filled")
    lease = await place.env.leases.get(name)
    assert KEYS.ring_label not in lease.metadata.labels
    assert KEYS.contested not in lease.metadata.annotations


async def test_objects_of_a_namespace_that_is_no_longer_named_are_given_up(place: Place) -> None:
    a = await place.env.shard("a")
    for namespace in ("team-a", "team-b"):
        await place.env.site("one", namespace=namespace)
    async with place.sharder("team-a", "team-b"):
        await owned(place, "team-b/one")
    async with place.sharder("team-a", identity="sharder-2"):
        await asked_to_give_up(place, "team-b")
        gone = {"metadata": {"labels": {KEYS.shard: None, KEYS.drain: None}}}
        await place.env.patch(WEBSITES, "one", gone, namespace="team-b")
        await eventually(place.record, lambda record: record["namespaces"] == ["team-a"])
        assert await place.owners() == {"team-a/one": a.name, "team-b/one": ""}


async def test_a_standby_gives_up_what_was_named_while_it_stood_by(place: Place) -> None:
    """An upgrade that names one more namespace is rolled back: a sharder of before the upgrade leads again."""
    await place.env.shard("a")
    await place.env.site("one", namespace="team-b")
    async with place.sharder("team-a", identity="sharder-2", leads=False) as standby:
        await wait_until(standby.synced.is_set)
        async with place.sharder("team-a", "team-b"):
            await owned(place, "team-b/one")
        standby.lead()
        await asked_to_give_up(place, "team-b")
        assert (await place.record())["namespaces"] == ["team-a", "team-b"]


async def test_release_gives_every_object_up_and_ends(place: Place) -> None:
    a = await place.env.shard("a")
    await place.env.site("one", namespace="team-a")
    async with place.sharder("team-a"):
        await owned(place, "team-a/one")
    async with place.sharder("team-a", identity="sharder-2", release=True) as work:
        await asked_to_give_up(place, "team-a")
        assert not work.ended.is_set()
        await a.release()
        await wait_until(work.ended.is_set, within_s=20)
    assert (await place.owners())["team-a/one"] == ""
    leases, _ = await place.env.leases.list()
    assert record_name(RING) not in [lease.metadata.name for lease in leases]


async def test_events_are_written_where_the_ring_s_leases_are(place: Place) -> None:
    await place.env.shard("a")
    async with place.sharder("team-a"):

        async def reported() -> bool:
            found = await place.env.client.request("GET", EVENTS.path(namespace="default"))
            regarding = [item["regarding"]["name"] for item in msgspec.json.decode(found.body)["items"]]
            return record_name(RING) in regarding

        await wait_until(reported)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "does not exist"),
        ("a: [", r"is not YAML: line \d"),
        ("--- {}\n--- {}\n", "has 2 documents"),
        ("[]", "is not a mapping"),
        (ring(imbalancePercent=700), r"spec\.imbalancePercent: 700 "),
        (ring(namespaceSelector={}), "--namespaces says which belong"),
    ],
)
def test_a_file_that_cannot_be_worked_is_bad_input(tmp_path: Path, content: str | None, words: str) -> None:
    path = tmp_path / "ring.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=words):
        RingFile(path, scope=Scope(("team-a",)))


async def test_a_cluster_scoped_resource_needs_cluster_rights_and_says_so(place: Place) -> None:
    place.path.write_text(ring(resources=[{"group": "", "resource": "namespaces"}]))
    async with place.sharder("team-a"):
        await refused_for(place, "cluster-scoped")
