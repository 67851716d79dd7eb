"""A controller whose objects say what the reconciler does: `spec.html` is a list of instructions, one per line."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import msgspec

import shard_controller as sc
from shard_controller.shard import writer


class Spec(msgspec.Struct):
    html: str


class Website(msgspec.Struct):
    spec: Spec


writer.ANSWER_WITHIN_S = float(os.environ.get("ANSWER_WITHIN_S", writer.ANSWER_WITHIN_S))

WEBSITES = sc.Resource("websites.example.com/v1", Website)
CONFIGMAPS = sc.Resource("configmaps/v1", dict)
sites = sc.Controller(WEBSITES, owns=[CONFIGMAPS], workers=4, timeout_s=4, name="sites")
finalized = sc.Controller(WEBSITES, owns=[CONFIGMAPS], workers=4, timeout_s=4, name="finalized")
blocking = sc.Controller(WEBSITES, owns=[CONFIGMAPS], workers=4, timeout_s=4, name="blocking")


@sites.reconcile
async def act(ctx: sc.Context[Website]) -> sc.Result:
    """Follow the instructions in order."""
    result: sc.Result = sc.Done()
    for line in ctx.object.spec.html.splitlines():
        match line.split():
            case ["publish", text]:
                await ctx.apply(
                    CONFIGMAPS, ctx.name, {"data": {"page": text, "token": str(ctx.fencing_token)}}
                )
            case ["sleep", seconds]:
                await asyncio.sleep(float(seconds))
            case ["await" | "cancelled" as how, path]:
                await GATES[how](Path(path))
            case ["block", seconds]:
                time.sleep(float(seconds))  # noqa: ASYNC251 - what a bad reconciler does
            case ["ready"]:
                ctx.status["observedGeneration"] = ctx.generation
                ctx.conditions.set("Ready", True, "Acted")
            case ["raise"]:
                raise RuntimeError("as asked")
            case ["permanent"]:
                ctx.conditions.set("Ready", False, "Hopeless", "as asked")
                raise sc.PermanentError("as asked")
            case ["requeue", seconds]:
                result = sc.RequeueAfter(seconds=float(seconds))
            case ["delete"]:
                await ctx.delete(CONFIGMAPS, ctx.name)
            case ["note", path]:
                with Path(path).open("a") as notes:  # noqa: ASYNC230 - one short line
                    notes.write(f"{ctx.name}\n")
            case other:
                raise ValueError(f"unknown instruction {other}")
    return result


async def opened(gate: Path) -> None:
    """Return when the test has made the file *gate*."""
    while not gate.exists():  # noqa: ASYNC110, ASYNC240 - files tell nobody
        await asyncio.sleep(0.02)


async def cancelled(gate: Path) -> None:
    """Until there is *gate*, wait for a task that another one cancels, such as a read that reconciles share."""
    if not gate.exists():  # noqa: ASYNC240 - one look
        shared = asyncio.ensure_future(asyncio.sleep(60))
        shared.cancel()
        await shared


GATES = {"await": opened, "cancelled": cancelled}


@finalized.reconcile
async def act_with_finalizer(ctx: sc.Context[Website]) -> sc.Result:
    """The same, for objects that need cleaning up."""
    return await act(ctx)


@finalized.finalizer("example.com/page")
async def forget(ctx: sc.Context[Website]) -> None:
    """Leave a trace."""
    await ctx.apply(CONFIGMAPS, f"{ctx.name}-gone", {"data": {"page": "finalized"}})


@blocking.reconcile
def act_in_thread(ctx: sc.SyncContext[Website]) -> sc.Result:
    """The same in a thread, reduced to what the tests need."""
    for line in ctx.object.spec.html.splitlines():
        match line.split():
            case ["sleep", seconds]:
                time.sleep(float(seconds))
            case ["publish", text]:
                ctx.apply(CONFIGMAPS, ctx.name, {"data": {"page": text}})
    ctx.conditions.set("Ready", True, "Acted")
    return sc.Done()
