"""When the API server is told to ask, and when to stop; and what is looked for once more after a change.

On virtual time, with a small API server that knows configurations only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec
import pytest

from kubeio.clock import ManualClock
from kubeio.errors import Forbidden, KubeError, NotFound, ServerFailure
from kubeio.patch import ApplyPatch, MergePatch
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from sharder.admission.certificate_manager import WebhookTrust
from sharder.admission.settings import ServiceTarget
from sharder.admission.webhook import Webhook
from sharder.admission.webhook_configuration import REPEAT_S, RETRY_S, configuration_name
from sharder.admission.webhook_controller import LANDING_S, WebhookController
from sharder.membership.shards import ShardState
from sharder.membership.view import View
from sharder.moving.scan import Scan
from sharder.planning.planner import Terms
from sharder.planning.state import RingStates
from tests.sharder.pure.lease_simulation import make_spec
from tests.sharder.pure.views import WEBSITES, make_view

pytestmark = pytest.mark.looptime
NAME = configuration_name("r")


@dataclass
class Server:
    """Configurations by name; *fails* is raised by every request for one of *verbs*."""

    found: dict[str, Any] = field(default_factory=dict)
    fails: KubeError | None = None
    verbs: tuple[str, ...] = ("get", "patch", "delete")
    asked: int = 0

    async def get(self, resource: ApiResource, name: str, **options: Any) -> Any:
        self._ask("get", resource, name)
        found = {"metadata": {"name": name, "uid": "uid-of-it"}, **self.found[name]}
        return msgspec.convert(found, options["type"])

    async def delete(self, resource: ApiResource, name: str, *, uid: str) -> None:
        self._ask("delete", resource, name)
        assert uid == "uid-of-it"
        del self.found[name]

    async def patch(
        self, resource: ApiResource, name: str, patch: ApplyPatch | MergePatch, **options: Any
    ) -> bytes:
        self._ask("patch", resource, name if isinstance(patch, MergePatch) else "")
        if isinstance(patch, ApplyPatch):
            assert patch.force
            self.found[name] = patch.doc
        else:
            assert patch.doc == {"metadata": {"uid": "uid-of-it"}, "webhooks": []}
            self.found[name] = {**self.found[name], "webhooks": []}
        return b""

    def bundle(self) -> object:
        return self.found[NAME]["webhooks"][0]["clientConfig"]["caBundle"]

    def _ask(self, verb: str, resource: ApiResource, name: str) -> None:
        self.asked += 1
        assert resource.plural == "mutatingwebhookconfigurations"
        if self.fails is not None and verb in self.verbs:
            raise self.fails
        if name and name not in self.found:
            raise NotFound(f"{verb} {name}", status=404)


class Ring:
    """Membership, scan and certificates as a webhook controller needs them."""

    def __init__(self) -> None:
        self.view: View = make_view({"a-1": ShardState.READY}, {"a": "a-1"})
        self.trust = WebhookTrust(spread_s=0)
        self.target = ServiceTarget("system", "hook")
        self.bundle = b""
        self.circles: list[tuple[str, float]] = []
        self.landed = asyncio.Event()
        self._changed = asyncio.Condition()

    @property
    def certificates(self) -> Ring:
        return self

    def request_pass(self, *, stays_converged: bool = False) -> None:
        kind = "again" if stays_converged else "in doubt"
        self.circles.append((kind, asyncio.get_running_loop().time()))

    async def wait_newer(self, version: int) -> View:
        async with self._changed:
            await self._changed.wait_for(lambda: self.view.version > version)
            return self.view

    async def wait_bundle(self, other_than: bytes) -> bytes:
        async with self._changed:
            await self._changed.wait_for(lambda: self.bundle not in (b"", other_than))
            return self.bundle

    async def change(self, *, bundle: bytes | None = None, ring: int = 0) -> None:
        async with self._changed:
            self.bundle = self.bundle if bundle is None else bundle
            version = self.view.version + 1
            self.view = replace(self.view, version=version, ring_version=self.view.ring_version + ring)
            self._changed.notify_all()


@dataclass
class World:
    server: Server = field(default_factory=Server)
    ring: Ring = field(default_factory=Ring)
    states: RingStates = field(init=False)

    @asynccontextmanager
    async def published(
        self, *, serves: bool = True, wanted: bool = True, releasing: bool = False, uid: str = "uid-7"
    ) -> AsyncIterator[None]:
        self.states = RingStates(self.ring, Terms(releasing=releasing))
        webhook_controller = WebhookController(
            cast(Client, self.server),
            cast(Webhook, self.ring) if serves else None,
            make_spec(assign_at_admission=wanted),
            (WEBSITES,),
            states=self.states,
            scan=cast(Scan, self.ring),
            ring_uid=uid,
            clock=ManualClock(),
        )
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(webhook_controller.run()), tasks.create_task(self.states.run())]
            yield
            for task in running:
                task.cancel()


async def settle() -> None:
    await asyncio.sleep(0.5)


async def test_the_api_server_asks_as_soon_as_there_is_a_certificate_and_gets_every_bundle() -> None:
    world = World()
    async with world.published():
        await settle()
        assert world.server.asked == 0, "nothing to answer with yet"
        for bundle, reported in ((b"one", "b25l"), (b"two", "dHdv")):
            await world.ring.change(bundle=bundle)
            await settle()
            assert world.server.bundle() == reported
            assert world.ring.trust.has("r", bundle)


async def test_what_was_edited_or_deleted_by_hand_is_written_again() -> None:
    world = World()
    world.ring.bundle = b"one"
    async with world.published():
        await settle()
        world.server.found.clear()
        await asyncio.sleep(REPEAT_S)
        assert world.server.bundle() == "b25l"


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("PATCH", status=403, message="cannot patch"),
        NotFound("PATCH", status=404, message="not served"),
        ServerFailure("PATCH", status=500),
    ],
)
async def test_a_configuration_that_cannot_be_written_is_tried_again_and_stops_nothing(
    error: KubeError,
) -> None:
    world = World()
    world.ring.bundle = b"one"
    world.server.fails = error
    async with world.published():
        await settle()
        assert not world.ring.trust.is_everywhere(b"one", at=1e9), "so the old authority is not dropped"
        world.server.fails = None
        await asyncio.sleep(RETRY_S)
        assert world.server.bundle() == "b25l"


# -- what lands late


async def test_a_pass_is_made_when_all_that_was_answered_under_the_former_ring_has_landed() -> None:
    world = World()
    async with world.published():
        await asyncio.sleep(100)
        assert world.ring.circles == [("again", LANDING_S)], "what the sharder before us had answered"
        assert world.ring.landed.is_set()
        await world.ring.change(ring=1)
        await asyncio.sleep(LANDING_S - 2)
        assert len(world.ring.circles) == 1
        await asyncio.sleep(4)
        assert len(world.ring.circles) == 2
        await asyncio.sleep(1000)
        assert len(world.ring.circles) == 2, "at rest there is nothing to look for"


async def test_a_change_while_it_waits_starts_the_wait_anew() -> None:
    world = World()
    async with world.published():
        for _ in range(5):
            await asyncio.sleep(LANDING_S / 2)
            await world.ring.change(ring=1)
        assert world.ring.landed.is_set(), "what was answered before this run has landed"
        changed_at = asyncio.get_running_loop().time()
        await asyncio.sleep(2.5 * LANDING_S)
        ((_, at),) = world.ring.circles
        assert at >= changed_at + LANDING_S


async def test_a_change_of_namespaces_counts_as_one_of_the_ring() -> None:
    world = World()
    async with world.published():
        await asyncio.sleep(100)
        world.states.set_selected({"blue"})
        await asyncio.sleep(LANDING_S + 2)
        assert len(world.ring.circles) == 2


async def test_another_view_of_the_same_ring_is_no_change() -> None:
    world = World()
    async with world.published():
        await asyncio.sleep(100)
        await world.ring.change()
        await asyncio.sleep(100)
        assert len(world.ring.circles) == 1


# -- when it is not wanted any more


async def test_a_ring_that_never_asked_for_it_waits_for_nothing() -> None:
    world = World()
    async with world.published(wanted=False, releasing=True):
        await settle()
        assert world.ring.landed.is_set()
        assert world.ring.circles == []


def asked() -> Server:
    """A server that asks about the ring's objects."""
    return Server(found={NAME: {"webhooks": [{"name": "r"}]}})


@pytest.mark.parametrize("serves", [True, False])
async def test_the_configuration_is_emptied_and_goes_when_the_ring_no_longer_asks_for_it(
    serves: bool,
) -> None:
    world = World(server=asked())
    async with world.published(serves=serves, wanted=False):
        await settle()
        assert world.server.found == {NAME: {"webhooks": []}}
        await asyncio.sleep(LANDING_S + 1)
        assert world.server.found == {}
        assert [kind for kind, _ in world.ring.circles] == ["again"], (
            "what was labelled last may be misplaced"
        )


@pytest.mark.parametrize("serves", [True, False])
async def test_a_ring_that_is_deleted_goes_only_when_nothing_can_be_labelled_any_more(serves: bool) -> None:
    world = World(server=asked())
    async with world.published(serves=serves, releasing=True):
        await settle()
        assert world.server.found == {NAME: {"webhooks": []}}
        await asyncio.sleep(LANDING_S - 2)
        assert not world.ring.landed.is_set()
        await asyncio.sleep(2)
        assert world.ring.landed.is_set()
        assert [kind for kind, _ in world.ring.circles] == ["in doubt"], "what landed has to be given up"


async def test_the_next_leader_waits_as_long_although_the_configuration_is_gone() -> None:
    world = World()
    async with world.published(releasing=True):
        await asyncio.sleep(LANDING_S - 1)
        assert not world.ring.landed.is_set()


async def test_who_finds_the_configuration_emptied_waits_as_long_whatever_the_ring_says_now() -> None:
    world = World(server=asked())
    async with world.published(releasing=True):
        await asyncio.sleep(LANDING_S / 2)
    async with world.published(releasing=True, wanted=False):
        await asyncio.sleep(LANDING_S - 1)
        assert not world.ring.landed.is_set()
        await asyncio.sleep(2)
        assert world.ring.landed.is_set()
        assert world.server.found == {}


async def test_a_configuration_that_cannot_be_removed_yet_is_tried_again() -> None:
    world = World(server=asked())
    world.server.fails = ServerFailure("DELETE", status=500)
    async with world.published(wanted=False):
        await settle()
        world.server.fails = None
        await asyncio.sleep(RETRY_S)
        assert world.server.found == {NAME: {"webhooks": []}}
        world.server.fails = ServerFailure("DELETE", status=500)
        await asyncio.sleep(LANDING_S)
        world.server.fails = None
        await asyncio.sleep(RETRY_S)
        assert world.server.found == {}


async def test_without_the_right_to_patch_the_configuration_goes_at_once() -> None:
    world = World(server=asked())
    world.server.fails, world.server.verbs = Forbidden("PATCH", status=403), ("patch",)
    async with world.published(serves=False, releasing=True):
        await settle()
        assert world.server.found == {}
        await asyncio.sleep(LANDING_S - 2)
        assert not world.ring.landed.is_set()
        await asyncio.sleep(2)
        assert world.ring.landed.is_set()


@pytest.mark.parametrize("verbs", [("delete",), ("patch", "delete")])
async def test_a_ring_that_is_deleted_does_not_wait_for_a_right_to_remove_its_configuration(
    verbs: tuple[str, ...],
) -> None:
    refused = asked()
    refused.fails, refused.verbs = Forbidden("DELETE", status=403), verbs
    world = World(server=refused)
    async with world.published(releasing=True):
        await asyncio.sleep(LANDING_S + 1)
        assert world.ring.landed.is_set(), "it belongs to the ring, and goes with it"


async def test_without_the_right_to_read_there_is_nothing_to_remove() -> None:
    world = World(server=Server(fails=Forbidden("GET", status=403)))
    async with world.published(wanted=False, serves=False):
        await settle()
        assert world.ring.landed.is_set()


async def test_of_a_ring_in_a_file_nothing_is_asked() -> None:
    world = World()
    async with world.published(serves=False, uid=""):
        await settle()
        assert world.ring.landed.is_set()
        assert world.server.asked == 0
