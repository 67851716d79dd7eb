"""A Website controller that hangs where a file says so: once as a coroutine, once as a function in a thread.

HANG_FILE holds a JSON document: `shard`, the life whose reconciles do not end while the file stands as it is, and
`names`, the objects that this befalls (none given: all). Its time limit is far away: nothing but the hang itself is
wrong, and the heartbeat has no reason to give up.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from pathlib import Path

import msgspec

import shard_controller as sc

HANG_FILE = Path(os.environ["HANG_FILE"])


class Spec(msgspec.Struct):
    html: str = ""


class Website(msgspec.Struct):
    spec: Spec


WEBSITES = sc.Resource("websites.example.com/v1", Website)
CONFIGMAPS = sc.Resource("configmaps/v1", dict)

websites = sc.Controller(WEBSITES, owns=[CONFIGMAPS], workers=4, timeout_s=600)
threaded = sc.Controller(WEBSITES, owns=[CONFIGMAPS], workers=4, timeout_s=600, name="threaded")


@websites.reconcile
async def publish(ctx: sc.Context[Website]) -> sc.Result:
    await asyncio.sleep(random.uniform(0, 0.2))
    while hangs(ctx.shard, ctx.name):  # noqa: ASYNC110 - the fault that is tested; a file has no event
        await asyncio.sleep(0.05)
    await ctx.apply(CONFIGMAPS, ctx.name, {"data": {"index.html": ctx.object.spec.html}})
    ctx.status["observedGeneration"] = ctx.generation
    return sc.Done()


@threaded.reconcile
def publish_in_a_thread(ctx: sc.SyncContext[Website]) -> sc.Result:
    time.sleep(random.uniform(0, 0.2))
    while hangs(ctx.shard, ctx.name):
        time.sleep(0.05)
    ctx.apply(CONFIGMAPS, ctx.name, {"data": {"index.html": ctx.object.spec.html}})
    ctx.status["observedGeneration"] = ctx.generation
    return sc.Done()


def hangs(shard: str, name: str) -> bool:
    """Whether the life *shard* has been told to hang at the object *name*."""
    try:
        told = json.loads(HANG_FILE.read_text())
    except FileNotFoundError:
        return False
    return bool(told["shard"] == shard and (not told["names"] or name in told["names"]))
