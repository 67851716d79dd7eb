"""What a replica tells about its objects: of a process over HTTP, and the bounds of what it remembers."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from kubeio.clock import ManualClock
from kubeio.models import ObjectKey
from shard_controller.declare.request import Request
from shard_controller.observe.history import LONGEST_MESSAGE, History

Bench = Any  # tests/shard_controller/conftest.py: fixtures cannot be imported


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


async def page(port: int, path: str, *, address: str = "127.0.0.1", token: str = "") -> tuple[int, Any]:
    """Status and document."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    credentials = f"Authorization: Bearer {token}\r\n" if token else ""
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n{credentials}Connection: close\r\n\r\n".encode()
    )
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), json.loads(body) if body.startswith("{") else body


def age(text: str) -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(text)


async def test_an_object_tells_why_nothing_happens_to_it(bench: Bench, tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    shard = await bench.start("web-0", flags=("--probes-port-file", str(port_file)))
    port = int(port_file.read_text())
    await bench.site("good", "publish hello\nready", owner=shard)
    await bench.site("bad", "raise", owner=shard)
    gate = tmp_path / "gate"
    await bench.site("slow", f"await {gate}", owner=shard)
    await bench.site("later", "requeue 600", owner=shard)

    async def all_are_there() -> bool:
        status, bad = await page(port, "/debug/objects/default/bad")
        _, slow = await page(port, "/debug/objects/default/slow")
        _, good = await page(port, "/debug/objects/default/good")
        _, later = await page(port, "/debug/objects/default/later")
        return bool(
            status == 200
            and bad["failures"] > 2
            and slow.get("runningSince")
            and good.get("lastOutcome")
            and good["controlled"]
            and not good["queuedSince"]
            and later.get("nextTry")
        )

    await bench.until(all_are_there)
    _, bad = await page(port, "/debug/objects/default/bad")
    assert bad["object"] == "websites.example.com default/bad"
    assert (bad["lastError"]["type"], bad["lastError"]["message"]) == ("RuntimeError", "as told")
    assert bad["lastOutcome"]["outcome"] == "error"
    assert age(bad["lastOutcome"]["at"]) < timedelta(seconds=30)
    assert bad["cached"]["owner"] == shard.name
    assert bad["cached"]["drain"] is None
    _, slow = await page(port, "/debug/objects/default/slow")
    assert timedelta() <= age(slow["runningSince"]) < timedelta(seconds=30)
    assert slow["lastOutcome"] is None
    _, good = await page(port, "/debug/objects/default/good")
    assert good["lastError"] is None
    assert good["failures"] == 0
    assert (
        good["cached"]["resourceVersion"]
        == (await bench.get("websites", "good"))["metadata"]["resourceVersion"]
    )
    assert [child["object"] for child in good["controlled"]] == ["configmaps default/good"]
    assert good["controlled"][0]["owner"] == shard.name
    _, later = await page(port, "/debug/objects/default/later")
    assert timedelta(seconds=-600) <= age(later["nextTry"]) < timedelta(seconds=-500)

    _, queue = await page(port, "/debug/queue")
    assert queue["controller"] == "sites"
    assert [entry["object"] for entry in queue["longestRunning"]] == ["websites.example.com default/slow"]
    assert [entry["object"] for entry in queue["failing"]] == ["websites.example.com default/bad"]
    assert {"websites.example.com default/good"} < {entry["object"] for entry in queue["lastOutcomes"]}

    await bench.edit("bad", "ready")

    async def it_recovered() -> bool:
        _, bad = await page(port, "/debug/objects/default/bad")
        return bool(bad["lastError"] is None and bad["failures"] == 0)

    await bench.until(it_recovered)
    assert (await page(port, "/debug/objects/default/nobody"))[0] == 404
    assert (await page(port, "/debug/objects/_/bad"))[0] == 404


async def test_from_elsewhere_only_a_token_of_the_cluster_opens_the_pages(
    bench: Bench, tmp_path: Path
) -> None:
    port_file = tmp_path / "port"
    shard = await bench.start("web-0", flags=("--probes-port-file", str(port_file)))
    port = int(port_file.read_text())
    await bench.site("blog", "ready", owner=shard)

    async def is_known() -> bool:
        return (await page(port, "/debug/objects/default/blog"))[0] == 200

    await bench.until(is_known)
    elsewhere = "127.0.0.2"
    assert (await page(port, "/debug/objects/default/blog", address=elsewhere))[0] == 401
    assert (await page(port, "/debug/queue", address=elsewhere, token="forged"))[0] == 401
    account = yaml.safe_load((await bench.plane.kubeconfig_for("ada")).read_text())
    token = account["users"][0]["user"]["token"]
    status, told = await page(port, "/debug/objects/default/blog", address=elsewhere, token=token)
    assert (status, told["object"]) == (200, "websites.example.com default/blog")
    assert (await page(port, "/metrics", address=elsewhere))[0] == 200, "what has no secrets stays open"
    assert token not in shard.log.read_text()
