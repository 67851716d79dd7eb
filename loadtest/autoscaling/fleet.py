"""A fleet in simulated time: members on the real ring, keys handed over one after another, queues as fluids.

Owns placement, handovers and work. Knows nothing of metrics or autoscaling. A key of the sample stands for many
objects.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from ring import HashRing, Transition, object_key

SAMPLE: Final = 2_000
KEYS: Final = tuple(object_key("example.com", "load", f"site-{number}") for number in range(SAMPLE))
VIRTUAL_NODES: Final = 1000
START_S: Final = 30.0
"""From the pod's creation to its place on the ring: image, caches, settling."""
GRACE_S: Final = 285.0
"""A leaving pod that still owns something after this gives it up: terminationGracePeriodSeconds - 15."""
HANDOVERS_PER_S: Final = 100.0
WORKERS: Final = 16
RECONCILE_S: Final = 0.16
CAPACITY_PER_S: Final = WORKERS / RECONCILE_S


def member_name(ordinal: int) -> str:
    return f"websites-{ordinal}"


@cache
def _ring(ordinals: frozenset[int]) -> HashRing:
    return HashRing(map(member_name, ordinals), virtual_nodes=VIRTUAL_NODES)


@cache
def _transition(old: frozenset[int], new: frozenset[int]) -> tuple[tuple[int, int], ...]:
    """(key, owner after) of each key of the sample that *new* takes from its owner on *old*."""
    pairs = Transition(_ring(old), _ring(new)).owners(KEYS)
    numbers = {member_name(ordinal): ordinal for ordinal in new}
    return tuple((key, numbers[after]) for key, (before, after) in enumerate(pairs) if before != after)


@dataclass(slots=True)
class Pod:
    ready_at_s: float
    leaving_at_s: float | None = None
    backlog: float = 0.0
    keys: int = 0
    busy: float = 0.0
    """Workers that were busy in the last step."""
    wait_s: float = 0.0


@dataclass(slots=True)
class Fleet:
    """Pods of one StatefulSet. `step` lets time pass."""

    pods: dict[int, Pod]
    placed: frozenset[int]
    owners: list[int]
    wanted: list[int]
    misplaced: deque[int] = field(default_factory=deque)
    moved: float = 0.0
    """Objects that have changed their owner."""
    handed_over: float = 0.0
    """Part of a key that is handed over already."""

    @property
    def is_converged(self) -> bool:
        return not self.misplaced

    @property
    def ready(self) -> int:
        """Members that work, those that leave included."""
        return sum(bool(pod.keys) or number in self.placed for number, pod in self.pods.items())

    def scale(self, now_s: float, replicas: int) -> None:
        """`spec.replicas` is *replicas*: the highest ordinals leave, the lowest free ones come."""
        for ordinal, pod in self.pods.items():
            if ordinal >= replicas and pod.leaving_at_s is None:
                pod.leaving_at_s = now_s
        for ordinal in range(replicas):
            if ordinal not in self.pods:
                self.pods[ordinal] = Pod(now_s + START_S)

    def step(self, now_s: float, length_s: float, *, objects: float, per_s: float) -> None:
        """*length_s* pass in which *objects* exist and ask for *per_s* reconciles."""
        self._place(now_s)
        arrivals = self._hand_over(length_s, objects / SAMPLE)
        self._end_leavers(now_s, objects / SAMPLE)
        for ordinal, pod in self.pods.items():
            pod.backlog += per_s * length_s * pod.keys / SAMPLE + arrivals.get(ordinal, 0.0)
            done = min(pod.backlog, CAPACITY_PER_S * length_s)
            pod.backlog -= done
            pod.busy = done * RECONCILE_S / length_s
            pod.wait_s = pod.backlog / CAPACITY_PER_S

    def _place(self, now_s: float) -> None:
        here = frozenset(
            ordinal
            for ordinal, pod in self.pods.items()
            if pod.leaving_at_s is None and pod.ready_at_s <= now_s
        )
        if here == self.placed:
            return
        for key, owner in _transition(self.placed, here):
            self.wanted[key] = owner
        self.placed = here
        self.misplaced = deque(key for key in range(SAMPLE) if self.owners[key] != self.wanted[key])

    def _hand_over(self, length_s: float, weight: float) -> dict[int, float]:
        """Objects that each member got."""
        got: dict[int, float] = {}
        self.handed_over += HANDOVERS_PER_S * length_s / weight
        while self.misplaced and self.handed_over >= 1:
            self.handed_over -= 1
            self._move(self.misplaced.popleft(), weight, got)
        if not self.misplaced:
            self.handed_over = 0.0
        return got

    def _move(self, key: int, weight: float, got: dict[int, float]) -> None:
        before, after = self.owners[key], self.wanted[key]
        self.owners[key] = after
        self.pods[before].keys -= 1
        self.pods[after].keys += 1
        self.moved += weight
        got[after] = got.get(after, 0.0) + weight

    def _end_leavers(self, now_s: float, weight: float) -> None:
        for ordinal, pod in list(self.pods.items()):
            if pod.leaving_at_s is None:
                continue
            if pod.keys and now_s - pod.leaving_at_s < GRACE_S:
                continue
            rest = [key for key in self.misplaced if self.owners[key] == ordinal]
            for key in rest:
                self._move(key, weight, {})
                self.misplaced.remove(key)
            del self.pods[ordinal]


def new_fleet(replicas: int) -> Fleet:
    """A converged fleet."""
    placed = frozenset(range(replicas))
    numbers = {member_name(ordinal): ordinal for ordinal in placed}
    owners = [numbers[name] for name in _ring(placed).owners(KEYS)]
    pods = {ordinal: Pod(0.0, keys=owners.count(ordinal)) for ordinal in placed}
    return Fleet(pods, placed, owners, list(owners))
