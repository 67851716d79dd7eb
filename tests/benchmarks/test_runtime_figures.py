"""The arithmetic of the runtime's benchmark: what counts as a start, a rate, a wait, a late renewal; who takes part."""

from __future__ import annotations

import asyncio
import io
import json
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.measuring.command import choose_rows, exit_code
from benchmarks.measuring.document import Document
from benchmarks.measuring.goals import Figure, Goal, Verdict
from benchmarks.measuring.rows import Row
from benchmarks.runtime.contestants import (
    Order,
    controller_runtime,
    go_recipe,
    go_version,
    kopf,
    kubernetes_informer,
    our_forms,
    ours,
)
from benchmarks.runtime.events import real_waits_ms, stub_kubeconfig, stub_waits_ms
from benchmarks.runtime.goals import GOALS, figure, skipped
from benchmarks.runtime.ours import can_choose_storage, tick
from benchmarks.runtime.rates import again
from benchmarks.runtime.records import Began, Loaded, Records, Repeated, Ticked
from benchmarks.runtime.renewals import Lateness, Renewal, lateness
from benchmarks.runtime.report import draw, tables
from benchmarks.runtime.rows import LINES, ROWS, Options
from benchmarks.runtime.starting import Start, Starts, figures
from benchmarks.runtime.stub import Stub
from benchmarks.runtime.tally import Report, Tally
from benchmarks.runtime.writing import headers, request
from devcluster.real.build_progress import SilentProgress
from kubeio.errors import InputError
from kubeio.models import HasMeta
from loadtest.machine import Machine
from ringleader.testing.commands import WEBSITES

PEER = Path(__file__).parents[2] / "benchmarks/runtime/peer"


# -- lines --------------------------------------------------------------------------------------------------


def test_every_row_fills_lines_of_the_table_and_every_line_has_a_row() -> None:
    assert sorted(line for row in ROWS for line in LINES[row]) == sorted(GOALS)


def test_a_figure_without_a_goal_is_reported_and_never_missed() -> None:
    told = figure("event-real", 12.3)
    assert (told.verdict, str(told.goal), told.shown) == (Verdict.REPORTED, "", "12.3 ms")
    assert figure("event-real", None).verdict is Verdict.NOT_MEASURED


def test_what_cannot_be_had_here_does_not_fail_a_run_and_what_went_wrong_does() -> None:
    absent, broken = skipped("start-raw-go", "Go is not there"), figure("rate-kopf", None, "kopf ended")
    assert (absent.verdict, absent.value, absent.how) == (Verdict.SKIPPED, None, "Go is not there")
    assert exit_code([absent], strict=True) == 0
    assert exit_code([absent, broken], strict=False) == 1


def test_large_figures_are_written_out() -> None:
    goal = Goal(least=100_000, unit="/s per core")
    assert str(goal) == ">= 100,000 /s per core"
    assert figure("rate-raw", 1_234_567.8).shown == "1,234,568 /s per core"


def test_rows_that_do_not_exist_are_refused_with_the_nearest() -> None:
    assert choose_rows("lease,start", ROWS) == ("start", "lease")
    with pytest.raises(InputError, match="start"):
        choose_rows("strat", ROWS)


# -- starts -------------------------------------------------------------------------------------------------


def starts(name: str, *runs: tuple[float, float], why_not: str = "", problem: str = "") -> Starts:
    """A contestant whose runs took so many seconds and megabytes."""
    found = [
        Start(took_s=took_s, until_first_s=0.1, rss_mb=mb, per_s=1.0, per_core_s=1.0) for took_s, mb in runs
    ]
    return Starts(name, found, why_not, problem)


def field(**changes: Starts) -> dict[str, Starts]:
    """Everybody, as *changes* say or well within the goals."""
    return {
        "ours-raw": starts("raw", (4.0, 200.0), (6.0, 240.0)),
        "ours-compressed": starts("compressed", (5.0, 100.0)),
        "ours-metadata": starts("metadata", (2.0, 50.0)),
        "go": starts("controller-runtime", (14.0, 1400.0)),
        "go-metadata": starts("controller-runtime, metadata only", (4.0, 500.0)),
    } | {name.replace("_", "-"): one for name, one in changes.items()}


def by_key(lines: Sequence[Figure]) -> dict[str, Figure]:
    return {line.key: line for line in lines}


def test_times_are_means_and_memory_is_the_highest_of_all_rounds() -> None:
    found = by_key(figures(field(), 4.0))
    assert set(found) == set(LINES["start"])
    assert found["start-raw-list"].value == 5.0 / 4.0
    assert found["start-raw-go"].value == 5.0 / 14.0
    assert found["rss-raw"].value == 240.0
    assert found["metadata-go"].value == 0.5
    assert found["metadata-rss"].value == 0.1
    assert {line.verdict for line in found.values()} == {Verdict.MET}


def test_a_contestant_that_is_left_out_takes_only_its_own_lines_with_it() -> None:
    found = by_key(figures(field(go=starts("controller-runtime", why_not="no Go; install it")), 4.0))
    gone = {key for key, line in found.items() if line.verdict is Verdict.SKIPPED}
    assert gone == {"start-raw-go", "start-compressed-go"}
    assert found["start-raw-go"].how == "no Go; install it"


def test_a_contestant_that_failed_once_is_not_judged_by_the_rounds_that_went_well() -> None:
    found = by_key(figures(field(ours_raw=starts("raw", (1.0, 1.0), problem="raw-3 ended: killed")), 4.0))
    broken = {key for key, line in found.items() if line.verdict is Verdict.NOT_MEASURED}
    assert broken == {"start-raw-list", "start-raw-go", "rss-raw"}
    assert "killed" in found["rss-raw"].how


# -- who takes part -----------------------------------------------------------------------------------------


@pytest.fixture
def without_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Go, and with nothing built yet."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)


@pytest.mark.usefixtures("without_go")
def test_a_missing_go_is_told_with_the_remedy() -> None:
    reasons = {contestant.why_not for contestant in controller_runtime(SilentProgress())}
    assert len(reasons) == 1
    assert "install Go" in reasons.pop()


def test_a_changed_program_in_go_is_built_anew(tmp_path: Path) -> None:
    copy = tmp_path / "peer"
    shutil.copytree(PEER, copy)
    assert go_recipe(copy).folder_stem == go_recipe().folder_stem
    with (copy / "main.go").open("a") as source:
        source.write("// changed\n")
    assert go_recipe(copy).folder_stem != go_recipe().folder_stem
    assert go_version() in go_recipe().folder_stem


def test_our_forms_are_asked_for_or_left_out_with_the_reason(tmp_path: Path) -> None:
    order = Order(kubeconfig=tmp_path / "config", namespace="sites", objects=7, report=tmp_path / "report")
    for form, contestant in zip(("raw", "compressed", "metadata"), our_forms(), strict=True):
        assert contestant.key == f"ours-{form}"
        command = contestant.command(order)
        if can_choose_storage():
            assert (contestant.why_not, form in command) == ("", True)
        else:
            assert ("stored" in contestant.why_not) is (form != "raw")
            assert "--stored" not in command


@pytest.mark.usefixtures("without_go")
def test_every_peer_is_told_where_and_how_many(tmp_path: Path) -> None:
    order = Order(kubeconfig=tmp_path / "config", namespace="sites", objects=7, report=tmp_path / "report")
    peers = [kopf(), kubernetes_informer(), *controller_runtime(SilentProgress())]
    for peer in peers:
        words = peer.command(order)
        assert {str(order.kubeconfig), "sites", "7", str(order.report)} <= set(words), peer.key
    assert "--metadata" in peers[-1].command(order)
    assert "--metadata" not in peers[-2].command(order)


# -- counting -----------------------------------------------------------------------------------------------


@given(objects=st.integers(1, 30), times=st.integers(0, 4))
def test_every_object_comes_once_and_then_again_as_often_as_asked(
    tmp_path_factory: pytest.TempPathFactory, objects: int, times: int
) -> None:
    records = Records(tmp_path_factory.mktemp("tally") / "report")
    report = Report(str(records.path))
    tally = Tally(report, objects=objects, again=times)
    queue = list(range(objects))
    seen = [0] * objects
    while queue:
        one = queue.pop(0)
        seen[one] += 1
        if tally.one():
            queue.append(one)
    assert seen == [1 + times] * objects
    report.close()
    found = records.read()
    assert [type(record) for record in found] == [Loaded, Repeated][: 1 + (times > 0)]
    assert [record.count for record in found if isinstance(record, Loaded | Repeated)] == [
        objects,
        objects * times,
    ][: len(found)]


def test_a_rate_counts_cpu_and_not_the_time_that_passed() -> None:
    record = Repeated(count=1000, first_at=10.0, at=20.0, cpu_s=0.5)
    assert (record.per_s, record.per_core_s) == (100.0, 2000.0)


def test_few_objects_come_again_more_often() -> None:
    assert again(Options(objects=100_000, reconciles=500_000)) == 5
    assert again(Options(objects=300, reconciles=1_000)) == 4
    assert again(Options(objects=1_000, reconciles=10)) == 1


def test_half_a_record_waits_for_its_end(tmp_path: Path) -> None:
    records = Records(tmp_path / "report")
    assert records.read() == []
    line = b'{"e":"began","at":2.5,"version":"7"}\n'
    records.path.write_bytes(line + line[:9])
    assert records.read() == [Began(2.5, "7")]
    records.path.write_bytes(line + line)
    assert records.read() == [Began(2.5, "7")] * 2


def test_the_peer_in_go_writes_a_record_that_is_understood() -> None:
    source = (PEER / "main.go").read_text()
    form = source.partition("Sprintf(`")[2].partition("`")[0]
    written = form.replace("%d", "7").replace("%f", "1.5")
    assert msgspec.json.decode(written, type=Loaded | Ticked) == Loaded(7, 1.5, 1.5, 1.5)


# -- stalls -------------------------------------------------------------------------------------------------


async def test_the_stall_in_which_the_load_ends_is_seen(tmp_path: Path) -> None:
    records = Records(tmp_path / "report")
    report = Report(str(records.path))
    tally = Tally(report, objects=1)
    ticking = asyncio.create_task(tick(report, tally))
    await asyncio.sleep(0.02)
    time.sleep(0.06)  # noqa: ASYNC251 - the stall
    tally.one()
    await asyncio.sleep(0.02)
    time.sleep(0.2)  # noqa: ASYNC251 - after the load: none of its business
    await asyncio.sleep(0.02)
    ticking.cancel()
    report.close()
    (told,) = [record for record in records.read() if isinstance(record, Ticked)]
    assert 50 < told.worst_ms < 190
    assert told.ticks > 2


# -- waits --------------------------------------------------------------------------------------------------


def test_a_wait_begins_at_the_socket_or_at_the_answer() -> None:
    began = [Began(1.0, "1"), Began(2.002, "2", 2.0), Began(3.5, "3", 3.499)]
    assert [round(wait, 3) for wait in stub_waits_ms(began)] == [2.0, 1.0]
    waits = real_waits_ms(began, {"2": 2.0, "3": 3.6})
    assert [round(wait, 3) for wait in waits] == [2.0, -100.0]


async def test_the_stub_says_in_each_change_when_it_was_sent() -> None:
    stub = Stub(namespace="sites", objects=3, samples=4, settle_s=0, pause_s=(0, 0.001), rng=random.Random(1))
    path = "/apis/example.com/v1/namespaces/sites/websites"
    began_at = time.monotonic()
    events: list[dict[str, Any]] = []
    async with TestClient(TestServer(stub.app())) as client:
        listed = await (await client.get(path)).json()
        query = {"watch": "true", "sendInitialEvents": "true"}
        async with client.get(path, params=query) as answer:
            while len(events) < 3 + 1 + 4:
                events.append(json.loads(await answer.content.readline()))
    assert len(listed["items"]) == 3
    assert [event["type"] for event in events] == ["ADDED"] * 3 + ["BOOKMARK"] + ["MODIFIED"] * 4
    assert events[3]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    sent = [float(event["object"]["spec"]["html"].partition("sent-at ")[2]) for event in events[4:]]
    assert began_at <= sent[0] < sent[1] < sent[2] < sent[3] <= time.monotonic()
    names = [event["object"]["metadata"]["name"] for event in events[4:]]
    assert len(set(names[:3])) == 3, "changes of one object would be taken together"
    assert all("sent-at" not in json.dumps(event) for event in events[:4])


# -- writes -------------------------------------------------------------------------------------------------


async def test_wrk_sends_the_very_patches_that_the_program_sends(tmp_path: Path) -> None:
    """A stub that takes patches, the program against it, and what wrk would be given for the same objects."""
    taken: dict[str, tuple[bytes, str, str, str]] = {}

    async def take(request: web.Request) -> web.Response:
        names = ("Content-Type", "Accept", "User-Agent")
        content_type, accept, agent = (request.headers[name] for name in names)
        taken[request.raw_path] = await request.read(), content_type, accept, agent
        return web.json_response(
            {"metadata": {"name": request.match_info["name"], "resourceVersion": "5000"}}
        )

    stub = Stub(namespace="sites", objects=3, samples=0, pause_s=(0, 0), rng=random.Random(1))
    app = stub.app()
    collection = "/apis/example.com/v1/namespaces/sites/websites"
    app.router.add_patch(collection + "/{name}/status", take)
    async with TestClient(TestServer(app)) as client:
        order = Order(
            kubeconfig=stub_kubeconfig(tmp_path / "config", client.port or 0),
            namespace="sites",
            objects=3,
            report=tmp_path / "report",
        )
        listed = await (await client.get(collection)).read()
        program = await asyncio.create_subprocess_exec(*ours(order, "--act", "write", "--value", "v1"))
        try:
            async with asyncio.timeout(30):
                while len(taken) < 3:  # noqa: ASYNC110 - another process's requests
                    await asyncio.sleep(0.02)
        finally:
            program.kill()
            await program.wait()
    sent = headers("token")
    with_it = sent["Content-Type"], sent["Accept"], sent["User-Agent"]
    metas = [item.metadata for item in msgspec.json.decode(listed, type=_List).items]
    wanted = {
        asked.path: (asked.body, *with_it) for asked in (request(WEBSITES, meta, "v1") for meta in metas)
    }
    assert taken == wanted


class _List(msgspec.Struct):
    items: list[HasMeta]


# -- renewals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("renewals", "ended_at", "late", "worst_s"),
    [
        ([(0, 0), (5, 5), (10, 10)], 12, 0, 0),
        ([(0, 0), (5.9, 5.9), (10.9, 10.9)], 12, 0, 0.9),
        ([(0, 0), (6.5, 6.5), (11.5, 11.5)], 12, 1, 1.5),
        ([(0, 0), (5, 6.5), (10, 10.1)], 12, 1, 1.5),  # sent in time, seen late
        ([(0, 0), (6.5, 5), (11.5, 10)], 12, 1, 1.5),  # sent late by its own clock
        ([(0, 0), (5, 5)], 12, 1, 2),  # the next one never came
    ],
)
def test_a_renewal_is_late_by_either_clock_and_one_that_never_came_too(
    renewals: list[tuple[float, float]], ended_at: float, late: int, worst_s: float
) -> None:
    found = lateness([Renewal(*one) for one in renewals], every_s=5, ended_at=ended_at)
    assert (found.late, round(found.worst_s, 3)) == (late, worst_s)


def test_without_any_renewal_nothing_can_be_said_of_them() -> None:
    assert lateness([], every_s=5, ended_at=60) == Lateness(0, 0, 0.0)


# -- report -------------------------------------------------------------------------------------------------


def document(rows: list[Row], lines: list[Figure]) -> Document:
    return Document(
        command="python -m benchmarks.runtime",
        started_at="2026-01-01 00:00 UTC",
        took_s=1.0,
        plane="real",
        objects=100_000,
        machine=Machine("cpu", 2, 24.0, "6", 0.1),
        foreign_cores=0.0,
        versions={},
        rows=rows,
        figures=lines,
    )


def test_peers_stand_beside_us_or_with_the_reason_why_they_do_not(tmp_path: Path) -> None:
    found = field(go=starts("controller-runtime", why_not="no Go; install it"))
    details: dict[str, object] = {
        "list_s": [4.0],
        "contestants": {key: one.details() for key, one in found.items()},
    }
    shown = document([Row(key="start", details=details)], figures(found, 4.0))
    out = io.StringIO()
    for table in tables(shown):
        Console(file=out, width=180).print(table)
    text = out.getvalue()
    assert "100,000 objects, real control plane, 2 cores" in text
    assert any("controller-runtime " in line and "no Go; install it" in line for line in text.splitlines())
    assert any("raw" in line and "5.00" in line and "240" in line for line in text.splitlines())
    assert draw(shown, tmp_path / "report.png")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_anything_to_draw_has_no_picture(tmp_path: Path) -> None:
    assert not draw(document([], []), tmp_path / "report.png")
    assert not (tmp_path / "report.png").exists()
