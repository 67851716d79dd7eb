"""Runs of a controller on a control plane in memory: what arrives and what is asked for, between two of them."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import secrets
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from devcluster.embedded import EmbeddedPlane, Fault
from kubeio.access.cluster import load_cluster
from kubeio.clock import SystemClock
from kubeio.leases.lease import Leases
from kubeio.leases.shared_reads import SharedLeaseReads
from kubeio.models import HasMeta, Lease, LeaseSpec, Meta, OwnerReference
from kubeio.patch import MergePatch
from kubeio.protocol import RingKeys
from kubeio.resource import LEASES, NAMESPACES, ApiResource
from kubeio.rest.client import Client
from kubeio.shard.lease_validity import LeaseValidity
from proxy.existence import Existence
from proxy.gate import Gate
from proxy.informers import TreeInformers
from proxy.kinds import TreeKind
from proxy.object_writer import ObjectWriter
from proxy.restart import Cause, Pace
from proxy.runs import Runs
from proxy.trees import Trees, TreeState

KEYS = RingKeys("pairs")
SHARD, BEFORE, OTHER = "web-0-00000001", "web-0-00000000", "web-1-00000001"
ROOTS = ApiResource("", "v1", "configmaps", "ConfigMap")
CHILDREN = ApiResource("", "v1", "secrets", "Secret")
BELOW_ROOTS = frozenset({(ROOTS.group, ROOTS.kind)})
KINDS = (TreeKind(ROOTS, is_main=True), TreeKind(CHILDREN, above=BELOW_ROOTS))
LONG_AGO, IN_FUTURE = "2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z"


class Child:
    """A controller that does nothing: when it ran, and what was visible when it started."""

    def __init__(self, visible: Callable[[], Any]) -> None:
        self.starts: list[dict[str, set[str]]] = []
        self.stops = 0
        self._visible = visible
        self._exit_code: asyncio.Future[int] | None = None

    async def start(self) -> None:
        self.starts.append(await self._visible())
        self._exit_code = asyncio.get_running_loop().create_future()

    async def stop(self) -> None:
        self.stops += 1

    async def wait(self) -> int:
        assert self._exit_code is not None
        return await asyncio.shield(self._exit_code)

    def crash(self, code: int) -> None:
        assert self._exit_code is not None
        self._exit_code.set_result(code)


class Stage:
    """One shard's runs, and the administrator who plays sharder and controllers."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.child = Child(self.visible)
        self.stopping, self.over = asyncio.Event(), asyncio.Event()
        self.restarts: list[Cause] = []
        self.made: list[weakref.ref[Trees]] = []
        """The trees of each run."""
        clock, rng = SystemClock(), random.Random(1)
        existence = Existence(client, [kind.resource for kind in KINDS])
        self.gate = Gate(LeaseValidity(duration_s=600, sent_at=clock.now()), existence, clock=clock)
        reads = SharedLeaseReads(Leases(client, namespace))
        writer = ObjectWriter(
            client, reads, keys=KEYS, shard=SHARD, resources={kind.name: kind.resource for kind in KINDS}
        )
        self.since = LONG_AGO
        self.kinds = KINDS

        def follow(trees: Trees, changed: Callable[[], None]) -> TreeInformers:
            return TreeInformers(
                client, self.kinds, trees, keys=KEYS, shard=SHARD, changed=changed, clock=clock, rng=rng
            )

        def runs(pace: Pace) -> Runs:
            return Runs(
                self.child,
                self.gate,
                writer,
                new_trees=self.new_trees,
                follow=follow,
                pace=pace,
                clock=clock,
                rng=rng,
            )

        self.new_runs = runs

    async def put(
        self, resource: ApiResource, name: str, *, shard: str = SHARD, of: str = "", **labels: str
    ) -> None:
        """An object with ring labels: `visible` and `drain`; *of*: the root that controls it."""
        meta: dict[str, Any] = {
            "name": name,
            "labels": {KEYS.shard: shard} | {getattr(KEYS, key): value for key, value in labels.items()},
        }
        if of:
            root = await self.meta(ROOTS, of)
            owner = OwnerReference("v1", "ConfigMap", of, root.uid, controller=True)
            meta["ownerReferences"] = [msgspec.to_builtins(owner)]
        await self.client.create(resource, {"metadata": meta}, namespace=self.namespace, type=bytes)

    async def label(self, resource: ApiResource, name: str, **labels: str | None) -> None:
        change = {"metadata": {"labels": {getattr(KEYS, key): value for key, value in labels.items()}}}
        await self.client.patch(resource, name, MergePatch(change), namespace=self.namespace, type=bytes)

    async def meta(self, resource: ApiResource, name: str) -> Meta:
        return (await self.client.get(resource, name, namespace=self.namespace, type=HasMeta)).metadata

    async def labels(self, resource: ApiResource, name: str) -> dict[str, str]:
        return dict((await self.meta(resource, name)).labels)

    async def new_trees(self) -> Trees:
        trees = Trees(SHARD, since=self.since)
        self.made.append(weakref.ref(trees))
        return trees

    async def visible(self) -> dict[str, set[str]]:
        """What the controller's selector shows."""
        selector = f"{KEYS.shard}={SHARD},{KEYS.visible}={SHARD}"
        found = {}
        for resource in (ROOTS, CHILDREN):
            page = await self.client.list_page(
                resource, namespace=self.namespace, label_selector=selector, limit=0
            )
            found[resource.plural] = {found_object.meta.name for found_object in page.objects}
        return found

    async def lease(self, name: str) -> None:
        meta = Meta(name=name, namespace=self.namespace, labels={KEYS.ring_label: KEYS.ring})
        await self.client.create(
            LEASES, Lease(meta, LeaseSpec(name, 15)), namespace=self.namespace, type=bytes
        )

    async def wait_for(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(15):
            while not holds():  # noqa: ASYNC110 - it happens on a server
                await asyncio.sleep(0.02)

    async def wait_visible(self, root: str) -> None:
        async with asyncio.timeout(15):
            while root not in (await self.visible())["configmaps"]:  # noqa: ASYNC110 - it happens on a server
                await asyncio.sleep(0.02)

    @asynccontextmanager
    async def running(self, *, calm_s: float = 0.05) -> AsyncIterator[None]:
        self.runs = self.new_runs(Pace(settle_s=0.2, longest_s=1.0, calm_s=calm_s, longest_calm_s=5.0))
        running = self.runs.run(
            self.stopping, over=self.over, on_restart=lambda cause, _: self.restarts.append(cause)
        )
        task = asyncio.create_task(running)
        await self.wait_for(lambda: task.done() or len(self.child.starts) > 0)
        yield
        self.stopping.set()
        self.over.set()
        async with asyncio.timeout(15):
            await task


@pytest.fixture
async def stage(new_plane: EmbeddedPlane) -> AsyncIterator[Stage]:
    async with Client(load_cluster(kubeconfig=str(new_plane.kubeconfig))) as client:
        namespace = f"pairs-{secrets.token_hex(4)}"
        await client.create(NAMESPACES, {"metadata": {"name": namespace}}, type=bytes)
        yield Stage(client, namespace)


async def test_a_tree_is_visible_when_the_controller_starts(stage: Stage) -> None:
    await stage.put(ROOTS, "blog", visible=BEFORE)
    await stage.put(CHILDREN, "page", of="blog", visible=BEFORE)
    async with stage.running():
        assert stage.child.starts == [{"configmaps": {"blog"}, "secrets": {"page"}}]


async def test_a_start_waits_for_what_arrives_and_not_for_what_changes(stage: Stage) -> None:
    await stage.put(ROOTS, "blog", visible=BEFORE)

    async def change() -> None:
        for number in itertools.count():
            patch = MergePatch({"data": {"number": str(number)}})
            await stage.client.patch(ROOTS, "blog", patch, namespace=stage.namespace, type=bytes)

    changing = asyncio.create_task(change())
    began_at = asyncio.get_running_loop().time()
    async with stage.running():
        took_s = asyncio.get_running_loop().time() - began_at
        changing.cancel()
    assert took_s < 4  # of 5, at which a start waits for nothing any more


async def test_a_new_root_becomes_visible_at_once_and_restarts_nothing(stage: Stage) -> None:
    async with stage.running():
        await stage.put(ROOTS, "blog")
        await stage.wait_visible("blog")
        await asyncio.sleep(1.5)
        assert len(stage.child.starts) == 1


@pytest.mark.parametrize("visible", [BEFORE, ""])
async def test_what_arrives_with_a_history_becomes_visible_between_two_runs(
    stage: Stage, visible: str
) -> None:
    async with stage.running():
        await stage.put(ROOTS, "blog", visible=visible)
        await stage.put(CHILDREN, "page", of="blog", visible=visible)
        await stage.wait_for(lambda: len(stage.child.starts) == 2)
        assert stage.child.stops == 1
        assert stage.child.starts == [
            {"configmaps": set(), "secrets": set()},
            {"configmaps": {"blog"}, "secrets": {"page"}},
        ]


@pytest.mark.parametrize("near", [20, 0], ids=["one-namespace", "all-namespaces"])
@pytest.mark.parametrize("shard", [OTHER, None])
async def test_a_tree_that_has_not_arrived_whole_is_hidden_until_it_has(
    stage: Stage, shard: str | None, near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.informers._NEAR", near)
    await stage.put(ROOTS, "blog", visible=BEFORE)
    await stage.put(CHILDREN, "here", of="blog", visible=BEFORE)
    await stage.put(CHILDREN, "elsewhere", of="blog", visible=BEFORE)
    await stage.label(CHILDREN, "elsewhere", shard=shard)
    await stage.put(ROOTS, "whole", visible=BEFORE)
    async with stage.running():
        assert stage.child.starts == [{"configmaps": {"whole"}, "secrets": set()}]
        await stage.label(CHILDREN, "elsewhere", shard=SHARD)
        await stage.wait_for(lambda: len(stage.child.starts) == 2)
        assert stage.child.starts[1] == {"configmaps": {"blog", "whole"}, "secrets": {"here", "elsewhere"}}


async def test_a_tree_whose_leaf_comes_late_becomes_visible_with_it(stage: Stage) -> None:
    stage.kinds = (TreeKind(ROOTS, is_main=True), TreeKind(CHILDREN, is_leaf=True, above=BELOW_ROOTS))
    await stage.put(ROOTS, "blog", visible=BEFORE)
    await stage.put(CHILDREN, "page", of="blog", shard=OTHER)
    async with stage.running():
        assert stage.child.starts[0]["configmaps"] == set()
        await stage.label(CHILDREN, "page", shard=SHARD)
        await stage.wait_for(lambda: len(stage.child.starts) == 2)
        assert stage.child.starts[1]["configmaps"] == {"blog"}


async def test_what_was_there_before_the_ring_has_a_history(stage: Stage) -> None:
    stage.since = IN_FUTURE
    async with stage.running():
        await stage.put(ROOTS, "blog")
        await stage.wait_for(lambda: len(stage.child.starts) == 2)
        assert stage.child.starts[1]["configmaps"] == {"blog"}


async def test_a_tree_that_is_asked_for_is_given_up_between_two_runs(stage: Stage) -> None:
    await stage.lease(OTHER)
    await stage.put(ROOTS, "blog", visible=SHARD)
    await stage.put(CHILDREN, "page", of="blog", visible=SHARD)
    async with stage.running():
        await stage.label(ROOTS, "blog", drain=OTHER)
        await stage.wait_for(lambda: len(stage.child.starts) == 2)
        for resource, name in ((ROOTS, "blog"), (CHILDREN, "page")):
            assert await stage.labels(resource, name) == {KEYS.shard: OTHER, KEYS.visible: ""}


async def test_no_write_passes_to_a_tree_that_was_given_up_in_part(
    stage: Stage, new_plane: EmbeddedPlane
) -> None:
    await stage.lease(OTHER)
    for root in ("torn", "kept"):
        await stage.put(ROOTS, root, visible=SHARD, drain=OTHER)
        await stage.put(CHILDREN, f"{root}-child", of=root, visible=SHARD)
    uids = {root: (await stage.meta(ROOTS, root)).uid for root in ("torn", "kept")}
    for resource, name in (("configmaps", "torn"), ("secrets", "kept-child")):
        await new_plane.faults.add(Fault(what="error", verb="patch", resource=resource, name=name, code=500))
    async with stage.running():
        assert (await stage.labels(CHILDREN, "torn-child"))[KEYS.shard] == OTHER
        assert stage.child.starts[0]["configmaps"] == {"torn", "kept"}
        assert stage.gate.trees is not None
        states = {root: stage.gate.trees.state(uid) for root, uid in uids.items()}
        assert states == {"torn": TreeState.HIDDEN, "kept": TreeState.VISIBLE}


async def test_a_part_of_a_tree_waits_until_its_root_is_asked_for_as_well(stage: Stage) -> None:
    await stage.lease(OTHER)
    await stage.put(ROOTS, "blog", visible=SHARD)
    await stage.put(CHILDREN, "page", of="blog", visible=SHARD)
    async with stage.running():
        await stage.label(CHILDREN, "page", drain=OTHER)
        await asyncio.sleep(2)
        assert len(stage.child.starts) == 1
        await stage.label(ROOTS, "blog", drain=OTHER)
        await stage.wait_for(lambda: len(stage.child.starts) == 2)
        for resource, name in ((ROOTS, "blog"), (CHILDREN, "page")):
            assert (await stage.labels(resource, name))[KEYS.shard] == OTHER


async def test_without_evidence_of_the_next_owner_a_tree_is_given_up_to_nobody(stage: Stage) -> None:
    await stage.put(ROOTS, "blog", visible=SHARD)
    async with stage.running():
        await stage.label(ROOTS, "blog", drain=OTHER)
        await stage.wait_for(lambda: len(stage.child.starts) == 2)
        assert await stage.labels(ROOTS, "blog") == {KEYS.visible: ""}


async def test_what_may_stay_after_all_stays_visible(stage: Stage) -> None:
    await stage.put(ROOTS, "blog", visible=SHARD)
    async with stage.running():
        await stage.label(ROOTS, "blog", drain=SHARD)
        await stage.wait_for(lambda: len(stage.child.starts) == 2)
        assert await stage.labels(ROOTS, "blog") == {KEYS.shard: SHARD, KEYS.visible: SHARD}


async def test_many_changes_take_one_restart(stage: Stage) -> None:
    await stage.lease(OTHER)
    for number in range(20):
        await stage.put(ROOTS, f"blog-{number}", visible=SHARD)
    async with stage.running():
        for number in range(20):
            await stage.label(ROOTS, f"blog-{number}", drain=OTHER)
        await stage.wait_for(lambda: len(stage.child.starts) == 2)
        await asyncio.sleep(1)
        assert len(stage.child.starts) == 2
        assert stage.child.starts[1]["configmaps"] == set()


async def test_a_run_is_no_longer_for_the_calm_before_it(stage: Stage) -> None:
    async with stage.running(calm_s=2.0):
        began = asyncio.get_running_loop().time()
        await stage.put(ROOTS, "blog", visible=BEFORE)
        await stage.wait_for(lambda: len(stage.child.starts) == 2)
        assert asyncio.get_running_loop().time() - began < 10  # and not 10 times the calm


async def test_a_controller_that_ends_by_itself_is_started_again(stage: Stage) -> None:
    async with stage.running():
        assert stage.runs.why_down is None
        stage.child.crash(3)
        await stage.wait_for(lambda: stage.runs.why_down == "it ended by itself with 3")
        await stage.wait_for(lambda: len(stage.child.starts) == 2)
        assert stage.restarts == [Cause.EXIT]
        await stage.lease(OTHER)
        await stage.put(ROOTS, "blog", visible=SHARD, drain=OTHER)
        await stage.wait_for(lambda: len(stage.child.starts) == 3)
        assert stage.restarts == [Cause.EXIT, Cause.HANDOFF]


async def test_a_run_leaves_no_trees_behind(stage: Stage) -> None:
    """They hang in cycles, and a proxy makes too little garbage for a full collection: 20 MB per restart stayed."""
    async with stage.running():
        gc.disable()
        try:
            for number in range(2, 5):
                stage.child.crash(3)
                await stage.wait_for(lambda: len(stage.child.starts) == number)  # noqa: B023 - awaited here
            assert [each() is not None for each in stage.made] == [False, False, False, True]
        finally:
            gc.enable()


async def test_a_shard_that_leaves_gives_up_what_it_is_asked_for_without_its_controller(stage: Stage) -> None:
    await stage.lease(OTHER)
    for name in ("first", "second"):
        await stage.put(ROOTS, name, visible=SHARD)
        await stage.put(CHILDREN, name, of=name, visible=SHARD)
    async with stage.running():
        stage.stopping.set()
        await stage.wait_for(lambda: stage.child.stops == 1)
        for name in ("first", "second"):  # one after the other: none waits for a restart that will not come
            await stage.label(ROOTS, name, drain=OTHER)
            async with asyncio.timeout(5):
                while (await stage.labels(CHILDREN, name))[KEYS.shard] == SHARD:  # noqa: ASYNC110 - it happens on a server
                    await asyncio.sleep(0.02)
        assert len(stage.child.starts) == 1
    assert await stage.labels(ROOTS, "second") == {KEYS.shard: OTHER, KEYS.visible: ""}


async def test_writes_under_way_are_waited_for_before_anything_is_given_up(stage: Stage) -> None:
    await stage.lease(OTHER)
    await stage.put(ROOTS, "blog", visible=SHARD)
    async with stage.running():
        stage.gate.begin("a write")
        await stage.label(ROOTS, "blog", drain=OTHER)
        await stage.wait_for(lambda: stage.child.stops == 1)
        await asyncio.sleep(0.5)
        assert (await stage.labels(ROOTS, "blog"))[KEYS.shard] == SHARD
        stage.gate.end("a write", is_answered=True)
        await stage.wait_for(lambda: len(stage.child.starts) == 2)
        assert (await stage.labels(ROOTS, "blog"))[KEYS.shard] == OTHER


async def test_what_a_policy_keeps_hidden_does_not_restart_the_controller_again_and_again(
    stage: Stage, new_plane: EmbeddedPlane
) -> None:
    await stage.put(ROOTS, "blog", visible=BEFORE)
    await new_plane.faults.add(Fault(what="error", verb="patch", resource="configmaps", code=422))
    async with stage.running():
        await asyncio.sleep(4)
        assert stage.child.starts == [{"configmaps": set(), "secrets": set()}]
