"""The dashboard over a sharder whose rings are scenes: real sockets, stream and page; only the cluster is not there."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from kubeio.clock import Clock, SystemClock
from kubeio.errors import InputError
from kubeio.models import ObjectKey
from kubeio.program.http_server import HttpServer
from ring.hashing import HASH_SPACE
from ring.ring import HashRing
from ringleader.dashboard.connection import LeaderConnection
from ringleader.dashboard.endpoint import SharderEndpoint
from ringleader.dashboard.find import FoundObject
from ringleader.dashboard.leader import NoLeader, Way, at_url
from ringleader.dashboard.questions import Questions
from ringleader.dashboard.relay import Relay
from ringleader.dashboard.service import RIGHT, Dashboard
from sharder.live.state import LiveState
from tests.sharder.io.environment import running
from tests.sharder.live.scenes import Scene, state_of
from tests.sharder.live.served import OneToken, published


class Shown(NamedTuple):
    """A dashboard, and the sharder that it shows."""

    dashboard: Dashboard
    state: LiveState
    sharder: HttpServer

    @property
    def port(self) -> int:
        return self.dashboard.port

    @property
    def url(self) -> str:
        return self.dashboard.url


class SceneQuestions:
    """Answers of a cluster whose rings are *scenes*; the object `nothing` does not exist."""

    def __init__(self, scenes: Mapping[str, Scene]) -> None:
        self._scenes = scenes

    async def find(self, ring: str, resource: str, key: ObjectKey) -> FoundObject:
        if ring not in self._scenes or key.name == "nothing":
            raise InputError("KIND/NAME", f"{resource}/{key.name}", "does not exist", "name another")
        found = self._scenes[ring].ring.explain(f"example.com_{key.namespace}_{key.name}")
        return FoundObject(
            object=f"{resource} {key}",
            owner=f"{found.owner}-8f03c2aa",
            owner_member=found.owner,
            owner_state="ready",
            desired_member=found.owner,
            desired_shard=f"{found.owner}-8f03c2aa",
            drain_to=None,
            key=found.key,
            hash=f"{found.hash:016x}",
            position=found.hash / HASH_SPACE,
            is_placed=True,
            why=["is where it belongs"],
        )

    async def rings(self, name: str) -> Callable[[], Mapping[str, HashRing]]:
        if name not in self._scenes:
            raise InputError("RING", name, "does not exist", "name another")
        return self._scenes[name].by_main


NO_QUESTIONS = Questions(SceneQuestions({}).find, SceneQuestions({}).rings)


class Leaders:
    """The sharder that leads, as a test says: its port, or none."""

    def __init__(self, port: int = 0) -> None:
        self.port = port

    @asynccontextmanager
    async def way(self) -> AsyncIterator[SharderEndpoint]:
        if not self.port:
            raise NoLeader("no sharder leads")
        async with at_url(f"http://127.0.0.1:{self.port}") as endpoint:
            yield endpoint


@asynccontextmanager
async def dashboard_over(
    way: Way, questions: Questions, *, clock: Clock | None = None
) -> AsyncIterator[Dashboard]:
    """The dashboard of the sharder to which *way* leads."""
    leader = LeaderConnection(way, clock=clock or SystemClock(), rng=random.Random(1))
    pages = {"/events": Relay(leader).open, **questions.pages()}
    served = Dashboard(pages, OneToken(RIGHT), bind="127.0.0.1", port=0, clock=SystemClock())
    async with served as dashboard, running(leader.run()):
        await leader.tried.wait()
        yield dashboard


@asynccontextmanager
async def shown(**scenes: Scene) -> AsyncIterator[Shown]:
    """The dashboard of *scenes*, served until the block ends."""
    state, answers = state_of(**scenes), SceneQuestions(scenes)
    async with published(state) as sharder:
        way = at_url_of(sharder)
        async with dashboard_over(way, Questions(answers.find, answers.rings)) as dashboard:
            yield Shown(dashboard, state, sharder)


def at_url_of(server: HttpServer) -> Way:
    return lambda: at_url(f"http://127.0.0.1:{server.port}")
