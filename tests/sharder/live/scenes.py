"""Rings in memory, for tests of what is published: no sharder has to work them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from kubeio.clock import SystemClock
from ring.ring import HashRing
from sharder.live.facts import ROWS, HandoffFacts, MemberFacts, RingCircles, RingFacts
from sharder.live.history import Move, RingHistory
from sharder.live.state import LiveState


class Scene:
    """A ring whose members a test names and changes."""

    def __init__(
        self, members: Sequence[str], *, objects: int = 20_000, resource: str = "websites.example.com"
    ):
        self.objects = objects
        self.resource = resource
        self.states: dict[str, str] = {}
        self.flights: dict[str, HandoffFacts] = {}
        self.note = ""
        self.version = 0
        self._circles = RingCircles()
        self.others: dict[str, HashRing] = {}
        """Rings of further main resources."""
        self.members = list(members)
        self.change(members)

    def change(self, members: Sequence[str]) -> None:
        """These are the members from now on."""
        self.members = list(members)
        self.ring = HashRing(self.members)
        self.version += 1

    def by_main(self) -> dict[str, HashRing]:
        return {self.resource: self.ring, **self.others}

    def facts(self) -> RingFacts:
        circles = self._circles.of(self.by_main())
        order = circles[0].order
        shares = self.ring.shares()
        leaving: dict[str, int] = {}
        for flight in self.flights.values():
            leaving[flight.source] = leaving.get(flight.source, 0) + 1
        return RingFacts(
            version=self.version,
            converged=not self.flights,
            note=self.note,
            objects=self.objects,
            unowned=0,
            in_flight=len(self.flights),
            members={
                name: MemberFacts(
                    place="filled",
                    shard=f"{name}-8f03c2aa",
                    state=self.states.get(name, "ready"),
                    share=float(shares[name]),
                    ideal=1 / len(order),
                    in_flight=leaving.get(name, 0),
                )
                for name in order
            }
            | {
                name: MemberFacts(place="filled", shard=f"{name}-8f03c2aa", state="ready")
                for ring in self.others.values()
                for name in ring.members
                if name not in order
            },
            handovers=list(self.flights.values())[:ROWS],
            order=order,
            sectors=circles[0].sectors,
            circles=circles if len(circles) > 1 else [],
            resources=[self.resource, *self.others],
        )

    def hand_over(self, history: RingHistory, rng: random.Random, *, at: float) -> None:
        """One event: an object is asked for, or one that was asked for arrives."""
        if len(self.flights) < 20 or rng.random() < 0.5:
            source, target = rng.sample(self.members, 2)
            name = f"{self.resource} default/site-{rng.randrange(self.objects)}"
            self.flights[name] = HandoffFacts(name, source, target, at)
            history.moved(Move("asked", name, source, target), at=at)
        else:
            name = next(iter(self.flights))
            flight = self.flights.pop(name)
            history.moved(Move("handedOver", name, flight.source, flight.target), at=at)


def state_of(**scenes: Scene) -> LiveState:
    """State of a sharder whose rings are *scenes*."""
    state = LiveState(identity="sharder-1", clock=SystemClock())
    for name, scene in scenes.items():
        state.history(name).saw(scene.facts().members, at=state.at())
        state.publish(name, scene)
    return state


async def play(state: LiveState, name: str, scene: Scene, *, per_s: float) -> None:
    """Events at a steady rate, until cancelled."""
    rng = random.Random(1)
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        due += 1 / per_s
        await asyncio.sleep(max(0.0, due - loop.time()))
        scene.hand_over(state.history(name), rng, at=state.at())
