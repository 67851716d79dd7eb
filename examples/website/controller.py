"""A Website becomes a ConfigMap with its page: a whole sharded controller.

Run one replica:  python -m shard_controller run examples/website/controller.py:websites --ring websites
WEBSITE_WAIT_MS simulates a call to the outside world in each reconcile: `20`, or `0-200` for a random time.
With WEBSITE_WAIT_FOR=changes only unpublished generations wait, with WEBSITE_WAIT_FOR=updates only changes of
published sites.
"""

from __future__ import annotations

import asyncio
import html
import os
import random
import sys

import msgspec

import shard_controller as sc


class WebsiteSpec(msgspec.Struct):
    html: str = ""


class WebsiteStatus(msgspec.Struct, rename="camel"):
    observed_generation: int = 0


class Website(msgspec.Struct):
    spec: WebsiteSpec
    status: WebsiteStatus = msgspec.field(default_factory=WebsiteStatus)


WEBSITES = sc.Resource("websites.example.com/v1", Website)
CONFIGMAPS = sc.Resource("configmaps/v1", dict)

websites = sc.Controller(WEBSITES, owns=[CONFIGMAPS], workers=8, timeout_s=30)


@websites.reconcile
async def publish(ctx: sc.Context[Website]) -> sc.Result:
    """Keep a ConfigMap of the same name with the page, and report it in the status."""
    if ctx.is_deleting:
        return sc.Done()  # the ConfigMap goes with its owner
    if waits(published=ctx.object.status.observed_generation, generation=ctx.generation):
        await outside_call()
    await ctx.apply(CONFIGMAPS, ctx.name, {"data": {"index.html": page(ctx.name, ctx.object.spec.html)}})
    ctx.status["configMap"] = ctx.name
    ctx.status["observedGeneration"] = ctx.generation
    ctx.conditions.set("Ready", True, "Published", f"ConfigMap {ctx.name} has the page")
    return sc.Done()


def page(title: str, body: str) -> str:
    """The whole page of a site."""
    return f"<!doctype html><title>{html.escape(title)}</title><body>{body}</body>"


def waits(*, published: int, generation: int) -> bool:
    """Whether a reconcile of *generation* calls to the outside; *published*: the last generation published, or 0."""
    match os.environ.get("WEBSITE_WAIT_FOR"):
        case "changes":
            return published != generation
        case "updates":
            return 0 < published < generation
        case _:
            return True


async def outside_call() -> None:
    """Take as long as a call to a CDN or a bank would."""
    low, _, high = os.environ.get("WEBSITE_WAIT_MS", "0").partition("-")
    await asyncio.sleep(random.uniform(float(low), float(high or low)) / 1000)  # noqa: S311 - a simulated delay


if __name__ == "__main__":
    sys.exit(sc.run(websites, mode=sc.Sharded("websites")))
