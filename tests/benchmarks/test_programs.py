"""The measured programs: their reports, the peer in Go, and that wrk sends the same patches as ours."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import time
from pathlib import Path

import aiohttp
import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.measuring.list_server import Crowd, ListServer, anonymous_kubeconfig
from benchmarks.measuring.observations import Renewal
from benchmarks.neighbour import rate_at
from benchmarks.runtime.changing import Lateness, headers, lateness, request, waits_after_answers
from benchmarks.runtime.ours import tick
from benchmarks.runtime.programs import (
    PEER,
    Began,
    Loaded,
    Order,
    Records,
    Repeated,
    Ticked,
    go_recipe,
    go_version,
    ours,
)
from benchmarks.runtime.starting import times_again
from benchmarks.runtime.tally import Report, Tally
from devcluster.embedded import EmbeddedPlane
from kubeio.access.cluster import load_cluster
from kubeio.models import HasMeta
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from ringleader.assets import website_crd
from ringleader.testing.client import IndependentClient
from ringleader.testing.prerequisites import install_definitions

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")


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
    found = [*records.of(Loaded), *records.of(Repeated)]
    assert [type(record) for record in found] == [Loaded, Repeated][: 1 + (times > 0)]
    assert [record.count for record in found if isinstance(record, Loaded | Repeated)] == [
        objects,
        objects * times,
    ][: len(found)]


def test_few_objects_come_again_more_often() -> None:
    assert [times_again(500_000, 100_000), times_again(1_000, 300), times_again(10, 1_000)] == [5, 4, 1]


def test_half_a_record_waits_for_its_end(tmp_path: Path) -> None:
    records = Records(tmp_path / "report")
    assert records.of(Began) == []
    line = b'{"e":"began","at":2.5,"version":"7"}\n'
    records.path.write_bytes(line + line[:9])
    assert records.of(Began) == [Began(2.5, "7")]
    records.path.write_bytes(line + line)
    assert records.of(Began) == [Began(2.5, "7")] * 2


def test_the_peer_in_go_writes_a_record_that_is_understood() -> None:
    source = (PEER / "main.go").read_text()
    form = source.partition("Sprintf(`")[2].partition("`")[0]
    written = form.replace("%d", "7").replace("%f", "1.5")
    assert msgspec.json.decode(written, type=Loaded | Ticked) == Loaded(7, 1.5, 1.5, 1.5)


def test_a_changed_program_in_go_is_built_anew(tmp_path: Path) -> None:
    copy = tmp_path / "peer"
    shutil.copytree(PEER, copy)
    assert go_recipe(copy).folder_stem == go_recipe().folder_stem
    with (copy / "main.go").open("a") as source:
        source.write("// changed\n")
    assert go_recipe(copy).folder_stem != go_recipe().folder_stem
    assert go_version() in go_recipe().folder_stem


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
    (ticked,) = records.of(Ticked)
    assert 50 < ticked.worst_ms < 190
    assert ticked.ticks > 2


def test_a_wait_on_the_control_plane_begins_at_the_answer() -> None:
    began = [Began(1.0, "1"), Began(2.002, "2"), Began(3.5, "3")]
    waits = waits_after_answers(began, {"2": 2.0, "3": 3.6})
    assert [round(wait, 3) for wait in waits] == [2.0, -100.0]


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


@pytest.mark.parametrize(
    ("p99_ms", "per_s"),
    [(5, 300.0), (10, 300.0), (15, 400.0), (20, 500.0), (30, 500.0), (60, 800.0), (99, 800.0)],
)
def test_the_rate_of_the_load_generator_is_read_between_its_points(p99_ms: float, per_s: float) -> None:
    """The point at 40 ms is slower than one that others feel less: it counts as that one."""
    curve = [(20.0, 500.0), (10.0, 300.0), (40.0, 450.0), (60.0, 800.0)]
    assert rate_at(p99_ms, curve) == pytest.approx(per_s)


async def test_wrk_sends_the_very_patches_that_the_program_sends(
    new_plane: EmbeddedPlane, tmp_path: Path
) -> None:
    """The program against a server that refuses its patches and keeps them."""
    async with IndependentClient(new_plane.kubeconfig) as client:
        await install_definitions(client, (website_crd(),))
    cluster = load_cluster(kubeconfig=str(new_plane.kubeconfig))
    tls = ssl.create_default_context(cadata=cluster.trust.ca.decode())
    token = yaml.safe_load(new_plane.kubeconfig.read_text())["users"][0]["user"]["token"]
    crowd = Crowd(WEBSITES, "sites", RingKeys("websites"), 3, {})
    server = ListServer(crowd, upstream=new_plane.url, token=token, tls=tls)
    async with server.serving(), aiohttp.ClientSession() as session:
        order = Order(
            kubeconfig=anonymous_kubeconfig(tmp_path / "config", server.url),
            namespace="sites",
            objects=3,
            report=tmp_path / "report",
        )
        async with session.get(server.url + WEBSITES.path(namespace="sites")) as answer:
            listed = msgspec.json.decode(await answer.read(), type=_List)
        program = await asyncio.create_subprocess_exec(*ours(order, "--act", "write", "--value", "v1"))
        try:
            async with asyncio.timeout(60):
                while len({write.path for write in server.writes}) < 3:  # noqa: ASYNC110 - another process's requests
                    await asyncio.sleep(0.02)
        finally:
            program.kill()
            await program.wait()
    names = ("Content-Type", "Accept", "User-Agent")
    taken = {write.path: (write.body, *(write.headers[name] for name in names)) for write in server.writes}
    sent = headers("token")
    wanted = [request(WEBSITES, item.metadata, "v1") for item in listed.items]
    assert taken == {one.path: (one.body, *(sent[name] for name in names)) for one in wanted}


class _List(msgspec.Struct):
    items: list[HasMeta]
