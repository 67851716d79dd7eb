"""How many requests a user sends to an embedded control plane: nothing may loop without a pause."""

from __future__ import annotations

import asyncio

from devcluster.faults import Fault
from devcluster.plane import ControlPlane

SETTLE_S = 4.0
"""Whatever fails is tried several times at first; pauses have grown by then."""
WINDOW_S = 4.0


async def requests_per_minute(plane: ControlPlane, user: str, *, settle_s: float = SETTLE_S) -> float:
    """Of *user*, whatever the answers are, in a window that begins after *settle_s*."""
    await asyncio.sleep(settle_s)
    counted = await plane.faults.add(Fault(what="latency", user=user))
    before = await _hits(plane, counted)
    await asyncio.sleep(WINDOW_S)
    after = await _hits(plane, counted)
    await plane.faults.clear(counted)
    return (after - before) * 60 / WINDOW_S


async def _hits(plane: ControlPlane, fault_id: str) -> int:
    return next(fault.hits for fault in await plane.faults.active() if fault.id == fault_id)
