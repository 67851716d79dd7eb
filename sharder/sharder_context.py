"""Context of one sharder process: values and components that all its rings share. Made once, in `sharder.app`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from kubeio.clock import Clock
    from kubeio.rest.client import Client
    from kubeio.rest.discovery import Discovery
    from sharder.admission.webhook import Webhook
    from sharder.live.state import LiveState
    from sharder.metrics import SharderMetrics
    from sharder.writing.limiter import WriteLimiter


@dataclass(frozen=True, slots=True, kw_only=True)
class SharderContext:
    """Process-wide values and components of one sharder."""

    identity: str
    client: Client
    """For everything but Leases."""
    lease_client: Client
    """Has connections of its own, so that reads, takes and evidence never queue behind label patches."""
    discovery: Discovery
    limiter: WriteLimiter
    """One for all rings: one API server carries all label patches."""
    metrics: SharderMetrics
    clock: Clock
    rng: random.Random
    webhook: Webhook | None
    """None if this sharder serves no webhook."""
    live: LiveState
    """State of the rings as `/debug/rings` publishes it."""
