"""What the processes of the load are given: one document, the same for every worker. Pure."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from loadtest.inputs.scenario import Schedule

_PER_USER: Final = 2.0
"""Operations per second of one user: it keeps its pace while a request takes less than half a second."""
_MOST_USERS: Final = 400
"""Each user has a connection of its own."""


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
        """Operations per second of each user."""
        return max(_PER_USER, self.schedule.peak_rate / _MOST_USERS)

    def users_at(self, t: float) -> int:
        """Users that make the rate at *t* seconds."""
        return math.ceil(self.schedule.rate_at(t) / self.per_user)


def encode(plan: LoadPlan) -> str:
    return msgspec.json.encode(plan).decode()


def decode(text: str) -> LoadPlan:
    return msgspec.json.decode(text, type=LoadPlan)
