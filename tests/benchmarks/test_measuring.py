"""The measuring module: goals and exit codes, failed rows, watches, the list server, processes, wrk."""

from __future__ import annotations

import argparse
import asyncio
import io
import math
import os
import stat
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import aiohttp
import msgspec
import pytest
from rich.console import Console

from benchmarks.measuring.list_server import Changes, Crowd, ListServer
from benchmarks.measuring.observations import LeaseObservations, NotSeen, Observations, OwnerChange
from benchmarks.measuring.processes import PeakMemory
from benchmarks.measuring.report import Goal, Verdict
from benchmarks.measuring.run import Options, Run, add_rows, chosen, exit_code, make_parser
from benchmarks.measuring.wrk import Load, Request, WrkFailed, find_wrk, sending, writes_of
from kubeio.clock import ManualClock
from kubeio.errors import InputError
from kubeio.leases.lease import decode_lease
from kubeio.models import HasMeta, Object
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from kubeio.watches.reflector import Changed, ListDone, Listed, ListStarted, Removed, WatchEvent

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
KEYS = RingKeys("websites")
GOALS = {
    "rate": Goal("assign", "first assignment", "% of the limit", least=95),
    "wait": Goal("new", "one new object", "ms", most=15),
    "worst": Goal("new", "the same, p99", "ms", most=60),
    "seen": Goal("new", "objects", "objects"),
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    options = make_parser("bench", "").parse_args(["--out", str(tmp_path)], namespace=Options())
    options.objects = 100_000
    return Run("bench", GOALS, options, tmp_path)


# -- figures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "verdict"),
    [
        ("rate", 95.0, Verdict.MET),
        ("rate", 94.99, Verdict.MISSED),
        ("wait", 15.0, Verdict.MET),
        ("wait", 15.01, Verdict.MISSED),
        ("wait", None, Verdict.NOT_MEASURED),
        ("wait", math.nan, Verdict.MISSED),
        ("rate", math.nan, Verdict.MISSED),
        ("seen", 0.0, Verdict.REPORTED),
    ],
)
def test_a_goal_is_met_or_missed_by_the_value_itself(key: str, value: float | None, verdict: Verdict) -> None:
    assert GOALS[key].judge(value) is verdict


def fail(error: Exception) -> None:
    raise error


def test_lines_that_a_failure_leaves_out_say_why_and_the_next_row_begins(run: Run) -> None:
    with run.row("new"):
        run.figure("wait", 12.345, "of 3")
        fail(ExceptionGroup("both", [NotSeen("waited 30 s in vain")]))
    with run.row("assign"):
        run.figure("rate", 61.234, "612/s of 1,000/s")
    found = {one.key: (one.verdict.value, str(one), one.how) for one in run.report().figures}
    assert found == {
        "rate": ("MISSED", "61.2 % of the limit", "612/s of 1,000/s"),
        "wait": ("met", "12.3 ms", "of 3"),
        "worst": ("not measured", "-", "waited 30 s in vain"),
        "seen": ("not measured", "-", "waited 30 s in vain"),
    }
    assert list(found) == list(GOALS), "in the order of the goals"


def test_a_fault_of_the_benchmark_ends_the_run(run: Run) -> None:
    with pytest.raises(KeyError), run.row("new"):
        fail(KeyError("a fault"))


def test_the_report_is_one_document_and_one_table(run: Run, tmp_path: Path) -> None:
    with run.row("assign"):
        run.figure("rate", 96.0, "960/s of 1,000/s")
        run.detail("assign", samples=[1, 2])
    run.skip("wait", "no Go")
    report = run.report()
    report.foreign_cores = 1.5
    out = io.StringIO()
    report.print(Console(file=out, width=160))
    text = out.getvalue()
    for words in (
        "100,000 objects, real control plane",
        "first assignment",
        " met ",
        "skipped",
        "no Go",
        "used 1.5 of",
    ):
        assert words in text
    saved = msgspec.json.decode((tmp_path / "report.json").read_bytes())
    assert saved["rows"][0]["details"] == {"samples": [1, 2]}
    assert saved["figures"][0]["goal"] == ">= 95 % of the limit"


def test_a_missed_goal_fails_the_run_only_if_asked_to(run: Run) -> None:
    run.figure("wait", 99.0)
    missed = run.report().figures
    assert [exit_code(missed, is_strict=strict) for strict in (False, True)] == [0, 1]
    run.skip("worst", "not here")
    assert exit_code(run.report().figures, is_strict=False) == 0
    run.figure("rate", None, "why")
    assert exit_code(run.report().figures, is_strict=False) == 1


def test_rows_are_named_by_commas_and_run_in_the_order_of_the_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = argparse.ArgumentParser()
    add_rows(parser, ("assign", "new", "join"))

    def rows(*flags: str) -> list[str]:
        return chosen(parser.parse_args(flags, namespace=Options()), ("assign", "new", "join"))

    assert rows() == ["assign", "new", "join"]
    assert rows("--only", "join, assign") == ["assign", "join"]
    with pytest.raises(SystemExit) as ended:
        rows("--only", "asign")
    assert ended.value.code == 2
    assert "choose from assign" in capsys.readouterr().err


def test_listing_and_deciding_count_against_the_sharder() -> None:
    changes = [OwnerChange(at, f"site-{at}", "", "a") for at in (104.0, 105.0, 106.0, 107.0, 108.0)]
    written = writes_of(100.0, changes, {})
    assert (written.per_s, written.per_s_while_writing) == (5 / 8, 1.0)
    with pytest.raises(NotSeen, match="only 1 writes"):
        writes_of(100.0, changes[:1], {})


# -- the watch ----------------------------------------------------------------------------------------------


class Script:
    """Plays *steps*: seconds to let pass, then what the watch shows."""

    def __init__(self, clock: ManualClock, steps: list[tuple[float, WatchEvent]]) -> None:
        self._clock = clock
        self._steps = steps

    async def events(self):  # type: ignore[no-untyped-def] # stands in for Reflector.events
        for pause_s, event in self._steps:
            self._clock.advance(pause_s)
            yield event


def item(name: str, *, owner: str = "", drain: str | None = None, version: int = 1) -> Object:
    labels = ({KEYS.shard: owner} if owner else {}) | ({} if drain is None else {KEYS.drain: drain})
    meta = {"name": name, "uid": name, "resourceVersion": str(version), "labels": labels}
    raw = msgspec.json.encode({"metadata": meta})
    return Object(msgspec.json.decode(raw, type=HasMeta).metadata, raw)


def changed(name: str, *, owner: str = "", drain: str | None = None, version: int = 2) -> Changed:
    return Changed(item(name, owner=owner, drain=drain, version=version), is_new=False)


async def watch(steps: list[tuple[float, WatchEvent]], monkeypatch: pytest.MonkeyPatch) -> Observations:
    clock = ManualClock(now=0.0)
    monkeypatch.setattr("benchmarks.measuring.observations.Reflector", lambda *_, **__: Script(clock, steps))
    observations = Observations(None, WEBSITES, keys=KEYS, clock=clock)  # type: ignore[arg-type] # the script needs none
    await observations.run()
    return observations


async def test_owners_and_handoffs_are_counted_as_the_watch_shows_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = await watch(
        [
            (0, ListStarted()),
            (0, Listed([item("a"), item("b", owner="s1")])),
            (0, ListDone("1")),
            (1, changed("a", owner="s1")),
            (1, changed("a", owner="s1", drain="s2", version=3)),
            (1, changed("b", owner="s1", drain="s2")),
            (1, changed("a", owner="s2", version=4)),
            (1, changed("b", owner="s1", drain="s3", version=3)),
        ],
        monkeypatch,
    )
    assert seen.log == [
        OwnerChange(0, "b", "", "s1"),
        OwnerChange(1, "a", "", "s1"),
        OwnerChange(4, "a", "s1", "s2"),
    ]
    assert (seen.draining, seen.most_draining, seen.drains) == (1, 2, [2.0, 3.0])
    assert +seen.owned == Counter(s1=1, s2=1)
    assert not seen.has_owners(Counter(s1=1, s2=1)), "one is still being drained"
    assert seen.meta("a", "sites").resource_version == "4"


async def test_what_a_second_list_does_not_show_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = await watch(
        [
            (0, Listed([item("a", owner="s1"), item("b", owner="s1", drain="s2"), item("c")])),
            (0, ListDone("1")),
            (0, Removed(item("c"))),
            (0, ListStarted()),
            (0, Listed([item("a", owner="s1")])),
            (0, ListDone("9")),
        ],
        monkeypatch,
    )
    assert seen.has_owners(Counter(s1=1))
    assert list(seen.objects) == ["a"]


async def test_takes_and_renewals_are_timed_by_the_first_event_that_shows_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lease(holder: str, renewed: str = "2026-01-01T00:00:00.000000Z") -> Object:
        spec = {"holderIdentity": holder, "renewTime": renewed}
        document = {"metadata": {"name": "s1-0a"}, "spec": spec}
        raw = msgspec.json.encode(document)
        return Object(decode_lease(raw).metadata, raw)

    clock = ManualClock(now=0.0)
    steps = [
        (0.0, Changed(lease("s1-0a"), is_new=True)),
        (5.0, Changed(lease("s1-0a", "2026-01-01T00:00:05.000000Z"), is_new=False)),
        (5.0, Changed(lease("sharder-1", "2026-01-01T00:00:05.000000Z"), is_new=False)),
        (5.0, Changed(lease("sharder-1", "2026-01-01T00:00:05.000000Z"), is_new=False)),
    ]
    monkeypatch.setattr(
        "benchmarks.measuring.observations.Reflector", lambda *_, **__: Script(clock, list(steps))
    )
    leases = LeaseObservations(None, "sites", clock=clock)  # type: ignore[arg-type] # the script needs none
    await leases.run()
    assert leases.taken_at("s1-0a") == 10.0
    assert leases.taken_at("s2-0b") is None
    (first, second) = leases.renewals
    assert (second.sent_at - first.sent_at, second.seen_at - first.seen_at) == (5.0, 5.0)


# -- the list server ----------------------------------------------------------------------------------------


async def test_the_list_server_pages_through_every_object_of_an_owner_once() -> None:
    crowd = Crowd(WEBSITES, "sites", KEYS, 2_345, {"m1": "s1", "m2": "s2", "m3": "s3"})
    server = ListServer(crowd, upstream="http://127.0.0.1:1", token="", tls=None)
    names: list[str] = []
    async with server.serving(), aiohttp.ClientSession() as session:
        query = {"labelSelector": f"{KEYS.shard} notin (s1,s3)", "limit": "500"}
        while True:
            async with session.get(server.url + WEBSITES.path(), params=query) as answer:
                page = await answer.json()
            names += [found["metadata"]["name"] for found in page["items"]]
            assert all(found["metadata"]["labels"] == {KEYS.shard: "s2"} for found in page["items"])
            if not page["metadata"].get("continue"):
                break
            query["continue"] = page["metadata"]["continue"]
    assert len(names) == len(set(names)) == crowd.owners().count("s2") > 500


async def test_the_list_server_ends_an_empty_streamed_list_with_its_mark() -> None:
    crowd = Crowd(WEBSITES, "sites", KEYS, 100, {"m1": "s1"})
    server = ListServer(crowd, upstream="http://127.0.0.1:1", token="", tls=None)
    query = {"watch": "true", "sendInitialEvents": "true", "labelSelector": f"{KEYS.shard} notin (s1)"}
    async with (
        server.serving(),
        aiohttp.ClientSession() as session,
        session.get(server.url + WEBSITES.path(), params=query) as answer,
    ):
        event = msgspec.json.decode(await answer.content.readline())
    assert event["type"] == "BOOKMARK"
    assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert server.objects_listed == 0


async def test_a_write_to_an_object_that_is_only_a_number_is_counted() -> None:
    crowd = Crowd(WEBSITES, "sites", KEYS, 100, {"m1": "s1"})
    server = ListServer(crowd, upstream="http://127.0.0.1:1", token="", tls=None)
    async with server.serving(), aiohttp.ClientSession() as session:
        path = WEBSITES.path(namespace="sites", name="site-0000001")
        async with session.patch(server.url + path, data=b"{}") as answer:
            assert answer.status == 405
    ((write,)) = server.writes
    assert (write.path, write.body) == (path, b"{}")


async def test_the_list_server_says_in_each_change_when_it_was_sent() -> None:
    crowd = Crowd(WEBSITES, "sites", KEYS, 3, {})
    changes = Changes(4, pause_s=(0, 0.001), settle_s=0)
    server = ListServer(crowd, upstream="http://127.0.0.1:1", token="", tls=None, changes=changes)
    began_at = time.monotonic()
    path, query = WEBSITES.path(namespace="sites"), {"watch": "true", "sendInitialEvents": "true"}
    async with (
        server.serving(),
        aiohttp.ClientSession() as session,
        session.get(server.url + path, params=query) as answer,
    ):
        events = [msgspec.json.decode(await answer.content.readline()) for _ in range(3 + 1 + 4)]
    assert [event["type"] for event in events] == ["ADDED"] * 3 + ["BOOKMARK"] + ["MODIFIED"] * 4
    sent = [float(event["object"]["spec"]["html"].partition("sent-at ")[2]) for event in events[4:]]
    assert began_at <= sent[0] < sent[1] < sent[2] < sent[3] <= time.monotonic()
    names = [event["object"]["metadata"]["name"] for event in events[4:]]
    assert len(set(names[:3])) == 3, "changes of one object would be taken together"
    assert "shard" not in events[0]["object"]["metadata"]["labels"]


# -- processes ----------------------------------------------------------------------------------------------


def test_a_peak_outlives_the_process_that_had_it() -> None:
    hold = "b = bytearray(30_000_000); print(flush=True); input()"
    memory = PeakMemory(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        memory.sample()
        child.kill()
    assert memory.processes >= 2
    peak_mb = memory.mb
    memory.sample()
    assert memory.mb >= peak_mb > 30


# -- wrk ----------------------------------------------------------------------------------------------------


def test_a_missing_wrk_is_found_with_the_package_that_has_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        InputError, match=r"install the package `wrk` \(Debian and Ubuntu: apt-get install wrk"
    ):
        find_wrk()


async def test_a_wrk_that_says_nothing_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "wrk"
    program.write_text("#!/bin/sh\necho unable to connect >&2\nexit 1\n")
    program.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    requests = [Request("/a", b"{}")]
    async with sending(requests, tmp_path, Load({}, 2, 1), url="https://127.0.0.1:1") as wrk:
        async with asyncio.timeout(30):
            while wrk.is_running:  # noqa: ASYNC110 - another process's end
                await asyncio.sleep(0.02)
        with pytest.raises(WrkFailed, match="unable to connect"):
            await wrk.end()
