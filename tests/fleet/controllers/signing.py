"""A Website controller that signs its statuses: `status.worker` is the name of the shard that wrote it.

Every second change is published; of the others the status is the only write, so that it may be the one that comes late.
The author check of `tests/fleet/chaos` compares it with the label of the same version of the object.
"""

from __future__ import annotations

import asyncio
import os
import random

import msgspec

import shard_controller as sc


class Spec(msgspec.Struct):
    html: str = ""


class Website(msgspec.Struct):
    spec: Spec


WEBSITES = sc.Resource("websites.example.com/v1", Website)
CONFIGMAPS = sc.Resource("configmaps/v1", dict)
LONGEST_MS = float(os.environ.get("WEBSITE_WAIT_MS", "0-200").rpartition("-")[2])

websites = sc.Controller(WEBSITES, owns=[CONFIGMAPS], workers=4, timeout_s=30)


@websites.reconcile
async def publish(ctx: sc.Context[Website]) -> sc.Result:
    if ctx.is_deleting:
        return sc.Done()
    await asyncio.sleep(random.uniform(0, LONGEST_MS) / 1000)
    if ctx.generation % 2 or ctx.get(CONFIGMAPS, ctx.name) is None:
        await ctx.apply(CONFIGMAPS, ctx.name, {"data": {"index.html": ctx.object.spec.html}})
    ctx.status["worker"] = ctx.shard
    ctx.status["observedGeneration"] = ctx.generation
    return sc.Done()
