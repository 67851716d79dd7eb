"""What the processes of the load are given: one document, the same for every worker. Pure."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from loadtest.inputs.scenario import Schedule

_PER_USER: Final = 2.0
"""Operations per second of one user at most: it keeps its pace while a request takes less than half a second."""
_MOST_USERS: Final = 400
"""Each user has a connection of its own; of higher rates each makes more than the above."""


class LoadPlan(msgspec.Struct, frozen=True):
    """The load of one run."""

    run: str
    collection: str
    """Path of the objects on the API server."""
    template: dict[str, Any]
    prefilled: int
    """Objects that exist before; updates go to these and to the worker's own, deletes to its own only."""
    schedule: Schedule

    @property
    def per_user(self) -> float:
        """Operations per second of each user: a whole number of users makes the highest rate."""
        peak = self.schedule.peak_rate
        return peak / min(_MOST_USERS, math.ceil(peak / _PER_USER)) if peak else _PER_USER

    def users_at(self, t: float) -> int:
        """Users that make the rate at *t* seconds."""
        return math.ceil(round(self.schedule.rate_at(t) / self.per_user, 6))


def encode(plan: LoadPlan) -> str:
    return msgspec.json.encode(plan).decode()


def decode(text: str) -> LoadPlan:
    return msgspec.json.decode(text, type=LoadPlan)
