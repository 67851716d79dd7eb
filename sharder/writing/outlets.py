"""The ways out of one sharder process: what all its rings share towards the API server.

Leases have connections of their own, so that reading, taking and evidence never queue behind label patches; patches
share one `WriteLimiter`, because it is one server that has to carry them. Made by `app`, used by `ringwork`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sharder.writing.limiter import WriteLimiter

if TYPE_CHECKING:
    from kubeio.clock import Clock
    from kubeio.rest.client import Client


@dataclass(frozen=True, slots=True)
class Outlets:
    """*client* for objects and everything else, *leases* for the rings' Leases."""

    client: Client
    leases: Client
    limiter: WriteLimiter

    @classmethod
    def of(cls, client: Client, *, clock: Clock, rng: random.Random, leases: Client | None = None) -> Outlets:
        """Outlets over *client*, which serves for Leases too if there is none for them."""
        return cls(client, leases or client, WriteLimiter(clock=clock, rng=rng))
