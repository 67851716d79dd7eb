"""Controllers that the replicas of a run serve: that of the example with waits, faults of its own and the judges."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

import shard_controller as sc
from simulation.scale import SITES, THEME, Scale

if TYPE_CHECKING:
    from simulation.fleet import Fleet, Replica

UNFIT: Final = "unfit"
"""A content that does not fit the controller's model."""
REFUSED: Final = "refused"
"""A content that its reconciler refuses for good."""
HTML: Final = "index.html"
"""Key of the content in what the controller makes."""
_SEEN: Final = "example.com/seen"
_WORKERS: Final = 4
_LONG_SHARE: Final = 0.1
"""Reconciles that may take two durations of a Lease."""
_AGAIN_SHARE: Final = 0.5
"""Reconciles that ask for another one: a replica that is cut off has work, too."""
_DEAF_SHARE: Final = 0.005
"""Reconciles that go on when they are cancelled."""
_BACKOFF_S: Final = 60.0
"""The longest delay after failures: what failed through all the faults is done again before the judgement."""
_RESYNC_S: Final = 40.0
_MORE_SITES: Final = 1000


class _Spec(msgspec.Struct):
    html: Annotated[str, msgspec.Meta(pattern=f"^(?!{UNFIT})")] = ""


class _Status(msgspec.Struct, rename="camel"):
    observed_generation: int = 0


class _Website(msgspec.Struct):
    spec: _Spec
    status: _Status | None = None


_WEBSITES: Final = sc.Resource("websites.example.com/v1", _Website)
_INDEXED: Final = sc.Resource(
    "websites.example.com/v1", _Website, indexes={"parity": lambda site: [str(int(site.spec.html) % 2)]}
)
_PAGES: Final = sc.Resource("pages.example.com/v1", _Website)
_CONFIGMAPS: Final = sc.Resource("configmaps/v1", dict)
_THEMES: Final[sc.Resource[dict[str, Any]]] = sc.Resource("serviceaccounts/v1", dict)


def controller_of(replica: Replica, fleet: Fleet) -> sc.Controller[_Website]:
    """The controller of *replica*: of pages if it works them, else of websites."""
    if fleet.scale.works_pages(replica.process.name):
        return _page_controller(replica, fleet)
    return _website_controller(replica, fleet)


def children_of(site: str, scale: Scale) -> list[str]:
    """Names of the ConfigMaps that a website may control."""
    return [site, *(f"{site}-{number}" for number in range(1, scale.children))]


def has_children(html: str, scale: Scale) -> bool:
    """Whether a website with this content controls ConfigMaps, in the end."""
    return not (scale.writes_more and html.endswith("7"))


def theme_of(account: dict[str, Any] | None) -> str:
    """The theme that a ServiceAccount carries; empty if there is none."""
    return str(((account or {}).get("metadata", {}).get("annotations") or {}).get(THEME, ""))


def _website_controller(replica: Replica, fleet: Fleet) -> sc.Controller[_Website]:
    scale, judges, rng = fleet.scale, fleet.judges, replica.process.rng

    def themed(changed: sc.Snapshot[dict[str, Any]]) -> list[str]:
        """Names of the objects that depend on a theme: every name that users may have given."""
        int(theme_of(changed.object))
        return [f"site-{number}" for number in range(scale.objects + _MORE_SITES)]

    controller = sc.Controller(
        _INDEXED if scale.watches else _WEBSITES,
        owns=[_CONFIGMAPS],
        watches=[sc.Watch(_THEMES, map=themed, namespaces=[SITES])] if scale.watches else [],
        when=_is_edited if scale.watches else None,
        workers=_WORKERS,
        timeout_s=scale.timeout_s,
        resync_s=_RESYNC_S if scale.writes_more else None,
        backoff=sc.Backoff(max_s=_BACKOFF_S),
    )

    @controller.reconcile
    async def publish(ctx: sc.Context[_Website]) -> sc.Result:
        with judges.reconcile(replica, ctx.uid, f"{ctx.namespace}/{ctx.name}"):
            if ctx.is_deleting:
                return sc.Done()
            _judge_reads(ctx, replica, fleet)
            is_long = rng.random() < _LONG_SHARE
            await asyncio.sleep(rng.uniform(0, 2 * scale.lease_s if is_long else scale.longest_reconcile_s))
            if rng.random() < _DEAF_SHARE:
                await _work_on(2 * scale.lease_s)
            judges.write_outside(replica, ctx.uid, ctx.fencing_token)
            if scale.writes_more:
                await ctx.patch_status({"configMap": ctx.shard})
                await ctx.patch({"metadata": {"annotations": {_SEEN: ctx.object.spec.html}}})
            await _make_children(ctx, scale)
            ctx.status["observedGeneration"] = ctx.generation
            ctx.status["configMap"] = ctx.shard
            if ctx.object.spec.html == REFUSED:
                raise sc.PermanentError("refused by the reconciler", reason="Refused")
            if rng.random() < _AGAIN_SHARE and not fleet.is_settling:
                return sc.RequeueAfter(seconds=rng.uniform(0.5, 2 * scale.lease_s))
            return sc.Done()

    if scale.finalizes:
        _add_finalizer(controller, replica, fleet)
    return controller


async def _make_children(ctx: sc.Context[_Website], scale: Scale) -> None:
    html = ctx.object.spec.html
    data = {HTML: html}
    if scale.watches:
        data[THEME] = theme_of(ctx.get(_THEMES, THEME))
    for name in children_of(ctx.name, scale):
        if has_children(html, scale):
            await ctx.apply(_CONFIGMAPS, name, {"data": data})
        else:
            await ctx.delete(_CONFIGMAPS, name)


def _judge_reads(ctx: sc.Context[_Website], replica: Replica, fleet: Fleet) -> None:
    judges = fleet.judges
    judges.reads(replica, ctx.meta, ctx.object.spec.html)
    for name in children_of(ctx.name, fleet.scale):
        if (child := ctx.get_owned(_CONFIGMAPS, name)) is not None:
            judges.reads_version(replica, child["metadata"]["uid"], child["metadata"]["resourceVersion"])


def _add_finalizer(controller: sc.Controller[_Website], replica: Replica, fleet: Fleet) -> None:
    @controller.finalizer("example.com/simulated")
    async def retire(ctx: sc.Context[_Website]) -> None:
        with fleet.judges.reconcile(replica, ctx.uid, f"{ctx.namespace}/{ctx.name}"):
            await asyncio.sleep(replica.process.rng.uniform(0, fleet.scale.longest_reconcile_s))


def _page_controller(replica: Replica, fleet: Fleet) -> sc.Controller[_Website]:
    controller = sc.Controller(_PAGES, workers=_WORKERS, timeout_s=fleet.scale.timeout_s)
    rng, judges = replica.process.rng, fleet.judges

    @controller.reconcile
    async def publish(ctx: sc.Context[_Website]) -> sc.Result:
        with judges.reconcile(replica, ctx.uid, f"{ctx.namespace}/{ctx.name}"):
            await asyncio.sleep(rng.uniform(0, fleet.scale.longest_reconcile_s))
            judges.write_outside(replica, ctx.uid, ctx.fencing_token)
            ctx.status["observedGeneration"] = ctx.generation
            return sc.Done()

    return controller


def _is_edited(old: sc.Snapshot[_Website], new: sc.Snapshot[_Website]) -> bool:
    """Or its status goes back: a write of it was repeated."""
    is_reverted = _observed(new.object) < _observed(old.object)
    return is_reverted or old.object.spec.html != new.object.spec.html


def _observed(site: _Website) -> int:
    return site.status.observed_generation if site.status is not None else 0


async def _work_on(for_s: float) -> None:
    """Code that does not heed its cancellation."""
    loop = asyncio.get_running_loop()
    until = loop.time() + for_s
    while (left_s := until - loop.time()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(left_s)
