"""A Website controller that does what the page says: raise, hang, block its event loop, answer with nothing.

A page `misfit` is one that the definition lets in and the model does not.
"""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

import msgspec

import shard_controller as sc


class Spec(msgspec.Struct):
    html: Annotated[str, msgspec.Meta(pattern="^(?!misfit)")]


class Website(msgspec.Struct):
    spec: Spec


WEBSITES = sc.Resource("websites.example.com/v1", Website)
CONFIGMAPS = sc.Resource("configmaps/v1", dict)

websites = sc.Controller(WEBSITES, owns=[CONFIGMAPS], workers=2, timeout_s=1)


@websites.reconcile
async def publish(ctx: sc.Context[Website]) -> sc.Result:
    match ctx.object.spec.html:
        case "raise":
            raise ValueError("as the page says")
        case "hang":
            await asyncio.Event().wait()
        case "block":
            time.sleep(60)  # noqa: ASYNC251 - the fault that is tested
        case "recurse":
            await publish(ctx)
        case "nothing":
            return None  # type: ignore[return-value] # what a forgetful reconciler does
    await ctx.apply(CONFIGMAPS, ctx.name, {"data": {"index.html": ctx.object.spec.html}})
    ctx.status["observedGeneration"] = ctx.generation
    ctx.conditions.set("Ready", True, "Published", "")
    return sc.Done()
