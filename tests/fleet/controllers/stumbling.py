"""A Website controller that does what the page tells it: `block 30` blocks its event loop, `fail` raises."""

from __future__ import annotations

import asyncio
import random
import time

import msgspec

import shard_controller as sc


class Spec(msgspec.Struct):
    html: str = ""


class Website(msgspec.Struct):
    spec: Spec


WEBSITES = sc.Resource("websites.example.com/v1", Website)
CONFIGMAPS = sc.Resource("configmaps/v1", dict)

websites = sc.Controller(WEBSITES, owns=[CONFIGMAPS], workers=4, timeout_s=3)


@websites.reconcile
async def publish(ctx: sc.Context[Website]) -> sc.Result:
    word, _, argument = ctx.object.spec.html.partition(" ")
    await asyncio.sleep(random.uniform(0, 0.2))
    if word == "block":
        time.sleep(float(argument))  # noqa: ASYNC251 - the fault that is tested
    if word == "fail":
        raise RuntimeError("told to fail")
    if word == "hang":
        await asyncio.sleep(float(argument))
    await ctx.apply(CONFIGMAPS, ctx.name, {"data": {"index.html": ctx.object.spec.html}})
    ctx.status["observedGeneration"] = ctx.generation
    ctx.conditions.set("Ready", True, "Published", "")
    return sc.Done()
