"""The program of docs/coming-from-kopf.md does what its table says, on a control plane."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeio.patch import MergePatch
from tests.docs.programs import program_of
from tests.shard_controller.bench import Bench
from tests.shard_controller.objects import WEBSITES


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "controller.py"
    path.write_text(program_of("coming-from-kopf.md"))
    return path


async def condition(bench: Bench, name: str) -> tuple[str, str]:
    """Status and reason of the first condition."""
    status = (await bench.get("websites", name)).get("status", {})
    found = status.get("conditions", [])
    return (found[0]["status"], found[0]["reason"]) if found else ("", "")


async def test_create_update_delete_and_timer_are_one_reconciler_and_a_finalizer(
    bench: Bench, program: Path
) -> None:
    shard = await bench.start("web-0", program=f"{program}:websites", mode="single")
    await bench.site("blog", "hello")

    async def shows(text: str) -> bool:
        page = (await bench.get("configmaps", "blog")).get("data", {}).get("index.html")
        return bool(page == text and await condition(bench, "blog") == ("True", "Published"))

    await bench.until(lambda: shows("hello"))
    await bench.edit("blog", "bye")
    await bench.until(lambda: shows("bye"))
    assert {record["outcome"] for record in shard.records("end")} <= {"requeue"}, "as the timer"
    assert (await bench.get("websites", "blog"))["metadata"]["finalizers"] == ["example.com/cdn"]
    await bench.delete(WEBSITES, "blog")
    await bench.until(lambda: bench.get("websites", "blog"), equals={})


async def test_a_permanent_error_waits_for_a_change(bench: Bench, program: Path) -> None:
    shard = await bench.start("web-0", program=f"{program}:websites", mode="single")
    await bench.site("blog", "")

    async def is_told(reason: str) -> bool:
        return (await condition(bench, "blog"))[1] == reason

    await bench.until(lambda: is_told("Empty"))
    await asyncio.sleep(0.5)  # own writes are seen once more
    reported = len(shard.logged("reconcile failed for good"))
    await asyncio.sleep(1)
    assert len(shard.logged("reconcile failed for good")) == reported
    await bench.edit("blog", "hello")
    await bench.until(lambda: is_told("Published"))


async def test_a_filter_is_an_early_end(bench: Bench, program: Path) -> None:
    await bench.start("web-0", program=f"{program}:websites", mode="single")
    await bench.site("blog", "hello", labels={"example.com/hands-off": "yes"})
    await bench.site("shop", "hello")
    await bench.until(lambda: bench.get("configmaps", "shop"))
    assert await bench.get("configmaps", "blog") == {}
    release = MergePatch({"metadata": {"labels": {"example.com/hands-off": None}}})
    await bench.client.patch(WEBSITES, "blog", release, namespace="default", type=bytes)
    await bench.until(lambda: bench.get("configmaps", "blog"))


async def test_what_was_done_last_is_done_once(bench: Bench, program: Path) -> None:
    shard = await bench.start("web-0", program=f"{program}:announcements", mode="single")
    await bench.site("blog", "hello")

    async def is_known(text: str) -> bool:
        return bool((await bench.get("websites", "blog")).get("status", {}).get("configMap") == text)

    await bench.until(lambda: is_known("hello"))
    assert await shard.terminate() == 0
    writes = len(bench.writes(resource="websites.example.com"))
    second = await bench.start("web-0", program=f"{program}:announcements", mode="single")
    await bench.until(lambda: second.records("end"))
    assert len(bench.writes(resource="websites.example.com")) == writes, "nothing was announced again"
