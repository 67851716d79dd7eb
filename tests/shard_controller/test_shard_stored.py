"""Stored forms and models in real replicas: what is asked of the server, and what a handoff needs of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.shard_controller.bench import Bench
from tests.shard_controller.objects import CONFIGMAPS, WEBSITES, reference

HEAD = "import shard_controller as sc\nCONFIGMAPS = sc.Resource('configmaps/v1', dict)\n"
METADATA = """
SITES = sc.Resource("websites.example.com/v1", dict, stored="metadata")
sites = sc.Controller(SITES, owns=[CONFIGMAPS])

@sites.reconcile
async def show(ctx):
    await ctx.apply(CONFIGMAPS, ctx.name, {"data": {"page": " ".join(sorted(ctx.object))}})
    return sc.Done()
"""
NOTHING_OWNED = """
sites = sc.Controller(sc.Resource("websites.example.com/v1", dict))

@sites.reconcile
async def nothing(ctx):
    return sc.Done()
"""
SPINNING = """
sites = sc.Controller(sc.Resource("websites.example.com/v1", dict), workers=1)

@sites.reconcile
async def spin(ctx):
    return sc.RequeueAfter(seconds=0)
"""
PYDANTIC = """
import pydantic
from typing import Literal

class Spec(pydantic.BaseModel):
    text: Literal["hello", "again"] = pydantic.Field(alias="html")

class Site(pydantic.BaseModel):
    spec: Spec

sites = sc.Controller(sc.Resource("websites.example.com/v1", Site, stored="compressed"), owns=[CONFIGMAPS])

@sites.reconcile
async def show(ctx):
    await ctx.apply(CONFIGMAPS, ctx.name, {"data": {"page": ctx.object.spec.text}})
    return sc.Done()
"""


@pytest.fixture
def program(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    path = tmp_path / "controller.py"
    path.write_text(HEAD + request.param)
    return f"{path}:sites"


@pytest.mark.parametrize("program", [METADATA], indirect=True)
async def test_a_controller_can_work_on_metadata_alone(bench: Bench, program: str) -> None:
    shard = await bench.start("web-0", program=program)
    await bench.site("blog", "<p>hi</p>", owner=shard)

    async def has_page() -> bool:
        return bool(await bench.page("blog"))

    await bench.until(has_page)
    assert await bench.page("blog") == "apiVersion kind metadata"


@pytest.mark.parametrize("program", [NOTHING_OWNED], indirect=True)
async def test_what_no_controller_declares_is_handed_over_with_its_root(bench: Bench, program: str) -> None:
    old = await bench.start("web-0", program=program)
    new = await bench.start("web-1", program=program)
    site = await bench.site("blog", "<p>hi</p>", owner=old)
    owner = reference("blog", site["metadata"]["uid"])
    marks = {"name": "blog", "labels": {bench.keys.shard: old.name}, "ownerReferences": [owner]}
    body = {"metadata": marks, "data": {"page": "kept"}}
    await bench.client.create(CONFIGMAPS, body, namespace="default", type=dict)
    await bench.until(lambda: len(old.reconciles("blog")) > 1)  # once for the site, once for what it controls
    await bench.label(WEBSITES, "blog", drain=new.name)
    await bench.until(lambda: bench.owner(WEBSITES, "blog"), equals=new.name)
    assert await bench.owner(CONFIGMAPS, "blog") == new.name
    assert await bench.page("blog") == "kept"


@pytest.mark.parametrize("program", [PYDANTIC], indirect=True)
async def test_an_object_that_does_not_fit_is_logged_without_its_value_and_the_others_go_on(
    bench: Bench, program: str
) -> None:
    shard = await bench.start("web-0", program=program)
    await bench.site("bad", "SECRET", owner=shard)
    await bench.site("good", "hello", owner=shard)

    async def has_page() -> bool:
        return bool(await bench.page("good") == "hello" and shard.logged("object does not fit the model"))

    await bench.until(has_page)
    (reported,) = shard.logged("object does not fit the model")
    assert "default/bad" in reported["error"]
    assert "$.spec.html" in reported["error"]
    assert "SECRET" not in shard.log.read_text()
    await bench.edit("bad", "again")
    await bench.until(lambda: bench.page("bad"), equals="again")


@pytest.mark.parametrize("program", [SPINNING], indirect=True)
async def test_a_function_that_never_waits_leaves_the_loop_to_others(bench: Bench, program: str) -> None:
    shard = await bench.start("web-0", program=program)
    await bench.site("spins", "x", owner=shard)
    await bench.until(lambda: begun(shard, "spins"))
    await bench.site("late", "x", owner=shard)
    await bench.until(lambda: begun(shard, "late"))


async def begun(shard: Any, site: str) -> bool:
    return bool(shard.reconciles(site))
