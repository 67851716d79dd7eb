"""What a replica tells about its objects: of a process over HTTP, and the bounds of what it remembers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from kubeio.clock import ManualClock
from kubeio.models import ObjectKey
from shard_controller.declare.request import Request
from shard_controller.observe.history import LONGEST_MESSAGE, History
from tests.shard_controller.bench import Bench


def task(name: str) -> Request:
    return Request("websites.example.com", ObjectKey("ns", name))


# -- what is remembered


def test_only_the_last_outcomes_are_kept() -> None:
    history = History(ManualClock(), last=10)
    for number in range(1000):
        history.ended(task(f"site-{number}"), "done", None, float(number), 0.1)
    assert [ended.request.key.name for ended in history.newest()] == [
        f"site-{n}" for n in range(999, 989, -1)
    ]
    assert history.last(task("site-5")) is None
    found = history.last(task("site-995"))
    assert found is not None
    assert found.outcome == "done"


def test_an_error_is_remembered_until_the_object_goes_well() -> None:
    history = History(ManualClock(now=7.0))
    history.failed(task("blog"), ValueError("no"))
    failure = history.failure(task("blog"))
    assert failure == ("ValueError", "no", 7.0)
    history.recovered(task("blog"))
    assert history.failure(task("blog")) is None
    assert list(history.failing()) == []


def test_what_fails_everywhere_stays_within_bounds() -> None:
    history = History(ManualClock(), failing=100)
    for number in range(1000):
        history.failed(task(f"site-{number}"), ValueError("x" * 100_000))
    kept = [failed.key.name for failed, _ in history.failing()]
    assert kept == [f"site-{n}" for n in range(999, 899, -1)]
    assert all(len(failure.message) == LONGEST_MESSAGE for _, failure in history.failing())


def test_who_failed_again_is_not_the_first_to_be_forgotten() -> None:
    history = History(ManualClock(), failing=2)
    for name in ("a", "b", "a", "c"):
        history.failed(task(name), ValueError(name))
    assert [failed.key.name for failed, _ in history.failing()] == ["c", "a"]


# -- as a person asks


def age(text: str) -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(text)


async def test_the_page_of_an_object_says_why_nothing_happens_to_it(bench: Bench, tmp_path: Path) -> None:
    shard = await bench.start("web-0")
    texts = {
        "good": "publish hello\nready",
        "bad": "raise",
        "slow": f"await {tmp_path / 'gate'}",
        "later": "requeue 600",
    }
    for name, text in texts.items():
        await bench.site(name, text, owner=shard)

    async def reported(name: str) -> Any:
        status, reported = await shard.page(f"/debug/objects/default/{name}")
        return reported if status == 200 else {}

    async def all_are_there() -> bool:
        good, bad, slow, later = [await reported(name) for name in texts]
        return bool(
            bad.get("failures", 0) > 2
            and slow.get("runningSince")
            and good.get("lastOutcome")
            and good["controlled"]
            and not good["queuedSince"]
            and later.get("nextTry")
        )

    await bench.until(all_are_there)
    good, bad, slow, later = [await reported(name) for name in texts]
    assert bad["object"] == "websites.example.com default/bad"
    assert (bad["lastError"]["type"], bad["lastError"]["message"]) == ("RuntimeError", "as asked")
    assert bad["lastOutcome"]["outcome"] == "error"
    assert age(bad["lastOutcome"]["at"]) < timedelta(seconds=30)
    assert (bad["cached"]["owner"], bad["cached"]["drain"]) == (shard.name, None)
    assert timedelta() <= age(slow["runningSince"]) < timedelta(seconds=30)
    assert slow["lastOutcome"] is None
    assert (good["lastError"], good["failures"]) == (None, 0)
    site = await bench.get("websites", "good")
    assert good["cached"]["resourceVersion"] == site["metadata"]["resourceVersion"]
    (child,) = good["controlled"]
    assert (child["object"], child["owner"]) == ("configmaps default/good", shard.name)
    assert timedelta(seconds=-600) <= age(later["nextTry"]) < timedelta(seconds=-500)

    _, queue = await shard.page("/debug/queue")
    assert queue["controller"] == "sites"
    assert [entry["object"] for entry in queue["longestRunning"]] == ["websites.example.com default/slow"]
    assert [entry["object"] for entry in queue["failing"]] == ["websites.example.com default/bad"]
    assert {"websites.example.com default/good"} < {entry["object"] for entry in queue["lastOutcomes"]}

    await bench.edit("bad", "ready")

    async def it_recovered() -> bool:
        bad = await reported("bad")
        return bool(bad["lastError"] is None and bad["failures"] == 0)

    await bench.until(it_recovered)
    assert (await shard.page("/debug/objects/default/nobody"))[0] == 404
    assert (await shard.page("/debug/objects/_/bad"))[0] == 404


async def test_from_elsewhere_only_a_token_of_the_cluster_opens_the_pages(bench: Bench) -> None:
    shard = await bench.start("web-0")
    await bench.site("blog", "ready", owner=shard)
    await bench.until(lambda: shard.records("end"))
    elsewhere, blog = "127.0.0.2", "/debug/objects/default/blog"
    assert (await shard.page(blog))[0] == 200
    assert (await shard.page(blog, address=elsewhere))[0] == 401
    assert (await shard.page("/debug/queue", address=elsewhere, token="forged"))[0] == 401
    account = yaml.safe_load((await bench.plane.kubeconfig_for("ada")).read_text())
    token = account["users"][0]["user"]["token"]
    status, reported = await shard.page(blog, address=elsewhere, token=token)
    assert (status, reported["object"]) == (200, "websites.example.com default/blog")
    assert (await shard.page("/metrics", address=elsewhere))[0] == 200, "what has no secrets stays open"
    assert token not in shard.log.read_text()
