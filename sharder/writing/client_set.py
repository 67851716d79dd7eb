"""Clients of one sharder process for the API server, shared by all its rings.

Leases have connections of their own, so that reading, taking and evidence never queue behind label patches. Patches
share one `WriteLimiter`, because it is one server that has to carry them.
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
class ClientSet:
    """*client* for objects and everything else, *leases* for the rings' Leases."""

    client: Client
    leases: Client
    limiter: WriteLimiter

    @classmethod
    def of(
        cls, client: Client, *, clock: Clock, rng: random.Random, leases: Client | None = None
    ) -> ClientSet:
        """Outlets over *client*, which serves for Leases too if there is none for them."""
        return cls(client, leases or client, WriteLimiter(clock=clock, rng=rng))
