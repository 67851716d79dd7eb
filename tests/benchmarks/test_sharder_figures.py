"""The benchmark's own arithmetic: goals, rates, what the watch makes of events, which flags are refused."""

from __future__ import annotations

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
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.measuring.command import choose_rows, exit_code
from benchmarks.measuring.goals import Goal, Verdict
from benchmarks.measuring.limit import Limit
from benchmarks.measuring.processes import ForeignWork, PeakMemory
from benchmarks.measuring.sightings import LeaseSightings, OwnerChange, Sightings, rates
from benchmarks.measuring.wrk import Request, Tally, WrkFailed, find_wrk, sending
from benchmarks.sharder.__main__ import parse_sizes
from benchmarks.sharder.goals import GOALS, figure
from benchmarks.sharder.list_server import Crowd, ListServer, matches
from benchmarks.sharder.replicas import Join, join_row
from benchmarks.sharder.report import Document
from benchmarks.sharder.rows import ROWS
from benchmarks.sharder.run import LINES
from benchmarks.sharder.throughput import Stretch
from kubeio.clock import ManualClock
from kubeio.errors import InputError
from kubeio.leases.lease import decode_lease
from kubeio.models import HasMeta, Object
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from kubeio.watches.watch import Changed, ListDone, Listed, ListStarted, Removed, WatchEvent
from loadtest.machine import Machine, cpu_s, family, rss_mb

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
KEYS = RingKeys("websites")


# -- goals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("goal", "value", "verdict"),
    [
        (Goal(least=95, unit="%"), 95.0, Verdict.MET),
        (Goal(least=95, unit="%"), 94.99, Verdict.MISSED),
        (Goal(most=15, unit="ms"), 15.0, Verdict.MET),
        (Goal(most=15, unit="ms"), 15.01, Verdict.MISSED),
        (Goal(most=15, unit="ms"), None, Verdict.NOT_MEASURED),
        (Goal(most=15, unit="ms"), math.nan, Verdict.MISSED),
        (Goal(least=95, unit="%"), math.nan, Verdict.MISSED),
    ],
)
def test_a_goal_is_met_or_missed_by_the_value_itself(
    goal: Goal, value: float | None, verdict: Verdict
) -> None:
    assert goal.judge(value) is verdict


def test_a_missed_goal_is_told_with_figure_and_goal() -> None:
    told = figure("takeover", 61.234, "612/s of 1,000/s")
    assert (told.shown, str(told.goal), told.verdict.value) == (
        "61.2 % of the limit",
        ">= 75 % of the limit",
        "MISSED",
    )


def test_every_row_fills_lines_of_the_table_and_every_line_has_a_row() -> None:
    filled = [line for row in ROWS for line in LINES[row]]
    assert sorted([*filled, "peak"]) == sorted(GOALS)


def test_the_table_shows_each_verdict_and_what_else_the_machine_did() -> None:
    figures = [
        figure("assign", 96.0, "960/s of 1,000/s"),
        figure("takeover", 61.2),
        figure("cpu", None, "why"),
    ]
    document = Document(
        command="python -m benchmarks.sharder",
        started_at="2026-01-01 00:00 UTC",
        took_s=1.0,
        plane="real",
        objects=100_000,
        machine=Machine("cpu", 2, 24.0, "6", 0.1),
        foreign_cores=1.5,
        versions={},
        rows=[],
        peak_rss_mb={},
        figures=figures,
    )
    out = io.StringIO()
    Console(file=out, width=160).print(document.table())
    lines = out.getvalue().splitlines()
    assert "100,000 objects, real control plane, 2 cores" in lines[0]
    for words in (("first assignment", " met "), ("take-over", "MISSED"), ("CPU", "not measured", "why")):
        assert any(all(word in line for word in words) for line in lines), words
    assert "other work used 1.5 of 2 cores" in out.getvalue()


# -- rates --------------------------------------------------------------------------------------------------


def changes(*instants: float) -> list[OwnerChange]:
    return [OwnerChange(at, f"site-{index}", "", "a") for index, at in enumerate(instants)]


def test_listing_and_deciding_count_against_the_sharder() -> None:
    stretch = Stretch(100.0, changes(104.0, 105.0, 106.0, 107.0, 108.0))
    assert stretch.per_s == 5 / 8
    assert stretch.per_s_while_writing == 1.0


@given(st.lists(st.floats(0, 300), min_size=2, max_size=200))
def test_a_rate_over_time_counts_nothing_twice(instants: list[float]) -> None:
    step_s, per_s = rates(sorted(instants), since=0.0)
    assert round(sum(rate * step_s for rate in per_s)) <= len(instants)
    assert len(per_s) <= 200


def test_a_handoff_that_left_its_object_without_an_owner_is_counted() -> None:
    join = Join(
        began_at=0.0,
        drains=[10.0, 10.0],
        passes=[11.0, 12.0],
        gaps=1,
        ideal=2,
        most_in_flight=1001,
    )
    tally = Tally(requests=9, took_us=2, bad_statuses=0, broken=0, p50_us=1, p99_us=2)
    row = join_row(join, [Limit(4.0, 9, [0.0, 2.0], tally, 1.7, 1.5)])
    assert row.details["without_owner_in_between"] == 1
    assert [(one.value, one.verdict.value) for one in row.figures] == [
        (50.0, "met"),
        (1.0, "met"),
        (1001.0, "MISSED"),
    ]


# -- the watch ----------------------------------------------------------------------------------------------


class Script:
    """Plays *steps*: seconds to let pass, then what the watch shows."""

    def __init__(self, clock: ManualClock, steps: list[tuple[float, WatchEvent]]) -> None:
        self._clock = clock
        self._steps = steps

    async def events(self):  # type: ignore[no-untyped-def] # stands in for ListWatch.events
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


async def watch(steps: list[tuple[float, WatchEvent]], monkeypatch: pytest.MonkeyPatch) -> Sightings:
    clock = ManualClock(now=0.0)
    monkeypatch.setattr("benchmarks.measuring.sightings.ListWatch", lambda *_, **__: Script(clock, steps))
    sightings = Sightings(None, WEBSITES, keys=KEYS, clock=clock)  # type: ignore[arg-type] # the script needs none
    await sightings.run()
    return sightings


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


async def test_a_take_is_timed_by_the_first_event_that_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def lease(holder: str) -> Object:
        document = {"metadata": {"name": "s1-0a"}, "spec": {"holderIdentity": holder}}
        raw = msgspec.json.encode(document)
        return Object(decode_lease(raw).metadata, raw)

    clock = ManualClock(now=0.0)
    steps = [
        (0.0, Changed(lease("s1-0a"), is_new=True)),
        (5.0, Changed(lease("s1-0a"), is_new=False)),
        (5.0, Changed(lease("sharder-1"), is_new=False)),
        (5.0, Changed(lease("sharder-1"), is_new=False)),
    ]
    monkeypatch.setattr(
        "benchmarks.measuring.sightings.ListWatch", lambda *_, **__: Script(clock, list(steps))
    )
    leases = LeaseSightings(None, "sites", clock=clock)  # type: ignore[arg-type] # the script needs none
    await leases.run()
    assert leases.taken_at("s1-0a") == 10.0
    assert leases.taken_at("s2-0b") is None


# -- the list server ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("", True),
        ("k", True),
        ("!k", False),
        ("k=a", True),
        ("k==a", True),
        ("k=b", False),
        ("k in (a,b)", True),
        ("k notin (a, b)", False),
        ("k notin (b,c)", True),
        ("other notin (a)", True),
        ("other", False),
        ("k in (a,b),other", False),
        ("k in (a,b),!other", True),
    ],
)
def test_the_list_server_selects_as_an_api_server_does(selector: str, selected: bool) -> None:
    assert matches(selector, {"k": "a"}) is selected


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
    assert server.writes == 1


# -- processes ----------------------------------------------------------------------------------------------


def test_memory_and_cpu_of_this_process_are_read() -> None:
    memory = PeakMemory(os.getpid())
    memory.look()
    assert memory.mb >= rss_mb(os.getpid()) * 0.9 > 10
    assert cpu_s([os.getpid()]) > 0
    assert cpu_s([0]) == 0, "a process that does not exist has used nothing"


def test_child_processes_are_counted_with_their_parent() -> None:
    hold = "import time; b = bytearray(30_000_000); print(flush=True); time.sleep(60)"
    alone_mb = rss_mb(os.getpid())
    with subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            assert child.pid in family(os.getpid())
            assert rss_mb(os.getpid()) > alone_mb + 25
            memory = PeakMemory(os.getpid())
            memory.look()
            assert memory.processes >= 2
        finally:
            child.kill()
    memory.look()
    assert memory.mb > alone_mb + 25, "a peak outlives the process that had it"


def test_our_own_work_is_not_foreign() -> None:
    foreign, began_s = ForeignWork(), time.process_time()
    while time.process_time() - began_s < 0.5:
        pass
    ours = time.process_time() - began_s
    used = foreign.cores() * foreign.lasted_s
    everything = foreign.busy_s()
    assert used <= everything - ours + 0.1


# -- flags --------------------------------------------------------------------------------------------------


def test_rows_are_named_by_commas_and_run_in_the_order_of_the_table() -> None:
    assert choose_rows("", ROWS) == ROWS
    assert choose_rows("join, assign", ROWS) == ("assign", "join")
    with pytest.raises(InputError, match="takeover"):
        choose_rows("take-over", ROWS)


@pytest.mark.parametrize("text", ["", "1000", "1000,many", "0,5", "-1,5"])
def test_sizes_that_are_no_numbers_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--rest-sizes"):
        parse_sizes(text)


def test_a_missed_goal_fails_the_run_only_if_asked_to() -> None:
    met, missed, absent = figure("new-p50", 1.0), figure("new-p99", 99.0), figure("cpu", None, "why")
    assert [exit_code([met, missed], strict=strict) for strict in (False, True)] == [0, 1]
    assert exit_code([met, absent], strict=False) == 1


# -- wrk ----------------------------------------------------------------------------------------------------


def test_a_missing_wrk_is_told_with_the_package_that_has_it(
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
    async with sending(
        requests, tmp_path, url="https://127.0.0.1:1", headers={}, connections=2, at_most_s=1
    ) as wrk:
        async with asyncio.timeout(30):
            while wrk.is_running:  # noqa: ASYNC110 - another process's end
                await asyncio.sleep(0.02)
        with pytest.raises(WrkFailed, match="unable to connect"):
            await wrk.end()
