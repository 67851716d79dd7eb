"""Controllers that use what `acting.py` does not: watches, predicates, events, processes, threads that do not end."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import msgspec

import shard_controller as sc
from kubeio.patch import MergePatch
from kubeio.resource import ApiResource


class Spec(msgspec.Struct):
    html: str


class Website(msgspec.Struct):
    metadata: sc.Meta
    spec: Spec


WEBSITES = sc.Resource("websites.example.com/v1", Website)
CONFIGMAPS = sc.Resource("configmaps/v1", dict)
SECRETS = sc.Resource("secrets/v1", dict)
PLAIN_CONFIGMAPS = ApiResource("", "v1", "configmaps", "ConfigMap")


def sites_of(secret: sc.Snapshot[dict[str, Any]]) -> list[str]:
    """Sites that the Secret names; one called `bad` cannot be read."""
    if secret.name == "bad":
        raise ValueError("as its name says")
    return secret.meta.annotations.get("sites", "").split()


watching = sc.Controller(
    WEBSITES, owns=[CONFIGMAPS], watches=[sc.Watch(SECRETS, map=sites_of)], timeout_s=4, name="watching"
)
choosy = sc.Controller(
    WEBSITES,
    owns=[CONFIGMAPS],
    watches=[sc.Watch(SECRETS, map=sites_of, label_selector="kind=page", namespaces=["default"])],
    timeout_s=4,
    name="choosy",
)
picky = sc.Controller(WEBSITES, when=sc.generation_changed, timeout_s=4, name="picky")
telling = sc.Controller(WEBSITES, timeout_s=4, name="telling")
computing = sc.Controller(WEBSITES, timeout_s=10, name="computing")
POOL = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
endless = sc.Controller(WEBSITES, timeout_s=1, name="endless")
stubborn = sc.Controller(WEBSITES, timeout_s=1, name="stubborn")
tidy = sc.Controller(WEBSITES, owns=[CONFIGMAPS], timeout_s=4, name="tidy")
often = sc.Controller(WEBSITES, resync_s=0.5, timeout_s=4, name="often")
patient = sc.Controller(WEBSITES, backoff=sc.Backoff(base_s=0.5, max_s=0.5), timeout_s=4, name="patient")
own = sc.Controller(WEBSITES, timeout_s=4, name="own")
outside = sc.Controller(WEBSITES, timeout_s=4, name="outside")


@watching.reconcile
async def show(ctx: sc.Context[Website]) -> sc.Result:
    """The page shows the Secret that the site names, and how many there are."""
    secret = ctx.get(SECRETS, ctx.object.spec.html)
    shown = secret["data"]["page"] if secret else "none"
    await ctx.apply(CONFIGMAPS, ctx.name, {"data": {"page": f"{shown} of {len(ctx.list(SECRETS))}"}})
    return sc.Done()


choosy.reconcile(show)


@picky.reconcile
async def accept(ctx: sc.Context[Website]) -> sc.Result:
    if ctx.object.spec.html == "slowly":
        await asyncio.sleep(0.6)
    ctx.status["observedGeneration"] = ctx.generation
    return sc.Done()


@telling.reconcile
async def tell(ctx: sc.Context[Website]) -> sc.Result:
    ctx.event("Looked", f"at {ctx.object.spec.html}")
    if ctx.object.spec.html == "hopeless":
        raise sc.PermanentError("there is no hope", reason="Hopeless")
    ctx.conditions.set("Ready", True, "Looked")
    return sc.Done()


@computing.reconcile
async def compute(ctx: sc.Context[Website]) -> sc.Result:
    """Powers, computed in a pool of the program's own."""
    base, exponent = map(int, ctx.object.spec.html.split())
    result = await asyncio.get_running_loop().run_in_executor(POOL, pow, base, exponent)
    ctx.status["configMap"] = str(result)
    return sc.Done()


@endless.reconcile
def never_return(ctx: sc.SyncContext[Website]) -> sc.Result:
    while ctx.object.spec.html == "endless":
        time.sleep(0.05)
    if ctx.object.spec.html == "polite":
        while not ctx.is_over:
            time.sleep(0.05)
        ctx.patch({"metadata": {"annotations": {"written": "late"}}})
    return sc.Done()


@stubborn.reconcile
async def never_give_way(ctx: sc.Context[Website]) -> sc.Result:
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            continue


@tidy.reconcile
def keep(ctx: sc.SyncContext[Website]) -> sc.Result:
    ctx.event("Kept", "as it was")
    return sc.Done()


@tidy.finalizer("example.com/page")
def sweep(ctx: sc.SyncContext[Website]) -> None:
    """Leave a trace, through the plain client."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{ctx.name}-gone", "namespace": ctx.namespace},
        "data": {"total": str(sum([1, 2, 3]))},
    }
    ctx.unfenced.create(PLAIN_CONFIGMAPS, body, namespace=ctx.namespace, type=dict)


@often.reconcile
async def look(ctx: sc.Context[Website]) -> sc.Result:
    if ctx.object.spec.html == "hopeless":
        raise sc.PermanentError("there is no hope")
    return sc.Done()


@patient.reconcile
async def fail(ctx: sc.Context[Website]) -> sc.Result:
    raise RuntimeError("as asked")


@outside.reconcile
async def meddle(ctx: sc.Context[Website]) -> sc.Result:
    """`conflict` with, or ask for, a `missing` object outside the ring."""
    if ctx.object.spec.html == "missing":
        await ctx.unfenced.get(PLAIN_CONFIGMAPS, "nobody-has-it", namespace=ctx.namespace, type=dict)
    if ctx.object.spec.html == "conflict":
        stale = MergePatch({"metadata": {"resourceVersion": "1"}, "data": {"page": "mine"}})
        await ctx.unfenced.patch(PLAIN_CONFIGMAPS, "shared", stale, namespace=ctx.namespace, type=dict)
    return sc.Done()


@own.reconcile
async def go(ctx: sc.Context[Website]) -> sc.Result:
    if ctx.object.spec.html == "finished":
        await ctx.delete_self()
    return sc.Done()
