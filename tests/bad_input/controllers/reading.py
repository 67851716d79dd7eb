"""A Website controller that reads what others write: lists and an index of boxes, a predicate, controlled sheets."""

from __future__ import annotations

from typing import Any

import msgspec

import shard_controller as sc


class Spec(msgspec.Struct):
    html: str


class Website(msgspec.Struct):
    spec: Spec


def shelves(box: dict[str, Any]) -> list[str]:
    return [box["spec"]["html"]]


def named_sites(changed: sc.Snapshot[dict[str, Any]]) -> list[str]:
    return [changed.object["spec"]["html"]]


def is_other_box(old: sc.Snapshot[dict[str, Any]], new: sc.Snapshot[dict[str, Any]]) -> bool:
    return bool(old.object["spec"] != new.object["spec"])


WEBSITES = sc.Resource("websites.example.com/v1", Website)
SHEETS = sc.Resource("sheets.example.com/v1", dict, stored="compressed")
BOXES = sc.Resource("boxes.example.com/v1", dict, indexes={"by-shelf": shelves})

websites = sc.Controller(
    WEBSITES, owns=[SHEETS], watches=[sc.Watch(BOXES, map=named_sites, when=is_other_box)], workers=2
)


@websites.reconcile
async def publish(ctx: sc.Context[Website]) -> sc.Result:
    boxes = [*ctx.list(BOXES), *ctx.list(BOXES, index=("by-shelf", "good"))]
    await ctx.apply(SHEETS, ctx.name, {"spec": {"html": ctx.object.spec.html}})
    ctx.status["observedGeneration"] = ctx.generation
    ctx.conditions.set("Ready", True, "Published", f"{len(boxes)} boxes")
    return sc.Done()
