"""A controller that does nothing: its replicas cost the protocol and nothing else.

Started as `python -m shard_controller run benchmarks/measuring/noop.py:websites`.
"""

from __future__ import annotations

import msgspec

import shard_controller as sc


class Website(msgspec.Struct):
    """Nothing of it is read."""


websites = sc.Controller(sc.Resource("websites.example.com/v1", Website), workers=8, timeout_s=30)


@websites.reconcile
async def reconcile(ctx: sc.Context[Website]) -> sc.Result:
    """Do nothing."""
    return sc.Done()
