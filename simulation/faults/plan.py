"""Faults of a run: drawn beforehand from the seed, carried out in order, all healed at the end."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from kubeio.suggestions import nearest
from simulation.faults.strike import AT_REST, KINDS, MOMENTS, Strike

if TYPE_CHECKING:
    from simulation.fleet import Fleet
    from simulation.users import Users

_REST_S: Final = (100.0, 200.0)
"""So long after the others a fault at rest strikes."""
_DENSE_S: Final = 300.0
"""A run of so long has 3 to 32 faults, a longer one more."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of *kind* at a time, in seconds of the run."""

    at: float
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}@{self.at:.2f}#{self.seed}"

    @classmethod
    def parse(cls, text: str) -> Fault:
        """The fault that `str` wrote. Raises ValueError."""
        kind, _, rest = text.partition("@")
        at, _, seed = rest.partition("#")
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is no fault: {nearest(kind, KINDS)}")
        return cls(float(at), kind, int(seed))


def draw(rng: random.Random, *, begin: float, end: float, kinds: Sequence[str]) -> list[Fault]:
    """The faults of a run between *begin* and *end*: a random subset of *kinds*, few or many."""
    share = rng.choice((0.1, 0.3, 0.6))
    enabled = [kind for kind in kinds if rng.random() < share] or [rng.choice(list(kinds))]
    number = round(rng.choice((3, 8, 16, 32)) * max(1.0, (end - begin) / _DENSE_S))
    times = sorted(rng.uniform(begin, end) for _ in range(number))
    return [Fault(round(at, 2), rng.choice(enabled), rng.randrange(10**6)) for at in times]


def draw_moments(rng: Callable[[str], random.Random], *, begin: float, end: float) -> list[Fault]:
    """The faults at a moment of a run between *begin* and *end*: none in most. *rng*: randomness by name."""
    faults = []
    for kind, share in MOMENTS.items():
        own = rng(f"moment {kind}")
        if own.random() < share:
            begins, ends = (end + each for each in _REST_S) if kind in AT_REST else (begin, end)
            faults.append(Fault(round(own.uniform(begins, ends), 2), kind, own.randrange(10**6)))
    return faults


class Faults:
    """Carries out *faults*, and heals what is left of them with `heal`."""

    def __init__(self, fleet: Fleet, users: Users, faults: Iterable[Fault]) -> None:
        self._fleet: Final = fleet
        self._users: Final = users
        self._open: Final[dict[int, Callable[[], object]]] = {}
        for fault in faults:
            fleet.world.at(fault.at, partial(self._strike, fault))

    def heal(self) -> None:
        """Undo every fault that still lasts, and what an undoing begins."""
        while self._open:
            self._undo(next(iter(self._open)))

    def _strike(self, fault: Fault) -> None:
        rng = random.Random(fault.seed)  # noqa: S311 - drawn from the run's seed
        KINDS[fault.kind](Strike(self._fleet, self._users, rng, self._heal_in))

    def _heal_in(self, delay_s: float, undo: Callable[[], object]) -> None:
        number = len(self._open) + self._fleet.world.events
        while number in self._open:
            number += 1
        self._open[number] = undo
        self._fleet.world.after(delay_s, partial(self._undo, number))

    def _undo(self, number: int) -> None:
        undo = self._open.pop(number, None)
        if undo is not None:
            undo()
