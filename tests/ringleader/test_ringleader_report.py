"""`ringleader report`: one file that shows what it should, loads nothing, and runs nothing."""

from __future__ import annotations

import asyncio
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kubeio.access.cluster import load_cluster
from ring import HashRing
from ringleader.cluster.picture import MemberPicture, RingPicture
from ringleader.cluster.shards import shards_of
from ringleader.inspect.report.command import own_versions, read_report
from ringleader.inspect.report.doctor import Finding
from ringleader.inspect.report.html import Report, RingPart, render
from ringleader.inspect.report.plots import colour, ring_plot, shares_plot
from tests.ringleader.cluster.snapshots import KEYS, MAINS, NOW, lease
from tests.ringleader.cluster.snapshots import ring as written
from tests.sharder.io.ground import RING, Ground, is_balanced, wait_until
from tests.warm_python import warm_python

HOSTILE = '"><script>alert(1)</script>\u202e'


def report(name: str = "web-0", findings: Sequence[Finding] = ()) -> Report:
    member = MemberPicture(name, f"{name}-1", "ready", 3.0, 10, 1.0, 1.0, 0)
    ring = written(status={"conditions": [{"type": "Ready", "status": "True", "message": name}]})
    shown = RingPicture("websites", "True", "True", 10, 0, 0, [member])
    marks = {KEYS.member: name}
    shards = shards_of(ring, [lease(f"{name}-1", marks=marks)], now=NOW)
    return Report("now", "https://server", {"Python": "3"}, [RingPart(ring, shards, shown)], list(findings))


def test_names_are_text() -> None:
    text = render(report(HOSTILE, [Finding(HOSTILE, "error", HOSTILE, HOSTILE)]))
    assert "<script" not in text
    assert "\u202e" not in text
    assert text.count("&quot;&gt;&lt;script&gt;") >= 5


def test_it_loads_and_runs_nothing() -> None:
    text = render(report())
    assert not re.search(r'\b(src|href|style|on[a-z]+)="', text)
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'; style-src 'sha256-" in text


def test_what_the_doctor_found_is_a_table() -> None:
    assert "Nothing was checked" in render(report())
    found = render(report(findings=[Finding("leases", "warning", "web-1 is silent", "look at its log")]))
    for word in ("warning", "leases", "web-1 is silent", "look at its log"):
        assert f"<td>{word}</td>" in found


def test_a_ring_that_cannot_be_read_does_not_keep_the_others_out() -> None:
    good = report().rings[0]
    bad = RingPart(good.ring, [], None, problem="may not list websites")
    text = render(Report("now", "s", {}, [bad, good]))
    assert "could not be read: may not list websites" in text
    assert text.count("<svg") == 2


def test_main_resources_that_different_members_work_have_plots_of_their_own() -> None:
    part = report().rings[0]
    two = written(resources=MAINS)
    works = {"web-0": "websites.example.com", "sum-0": "secrets", "sum-1": "secrets"}
    leases = [lease(f"{name}-1", works=kind) for name, kind in works.items()]
    shards = shards_of(two, leases, now=NOW)
    text = render(Report("now", "s", {}, [replace(part, ring=two, shards=shards)]))
    assert text.count("<svg") == 4
    assert "The ring of websites.example.com: outside the hash space" in text
    assert "Share of the hash space of secrets (bar), what the weight asks for" in text


@pytest.mark.parametrize("count", [1, 3, 16, 100])
def test_plots_are_drawings_of_every_member(count: int) -> None:
    names = [f"web-{number}" for number in range(count)]
    ring = HashRing(names)
    circle, bars = ring_plot(ring), shares_plot(ring, dict.fromkeys(names, 1 / count))
    for drawing in (circle, bars):
        titles = [each.text or "" for each in ET.fromstring(drawing).iter("title")]
        assert len(titles) == count
        assert titles[0].startswith("web-0: ")
    assert sum(len(each) for each in (circle, bars)) < 150_000


def test_the_first_colours_are_apart() -> None:
    assert len({colour(index) for index in range(100)}) == 100


def test_versions_are_those_of_this_program() -> None:
    assert own_versions()["Python"].startswith(sys.version.split()[0])
    assert own_versions()["ringleader"]


async def test_it_shows_what_the_cluster_has(ground: Ground, tmp_path: Path) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.sites(4)
    async with ground.sharder():
        await wait_until(lambda: is_balanced(ground))
    file = tmp_path / "report.html"
    process = await asyncio.create_subprocess_exec(
        *(warm_python(), "-m", "ringleader", "report", "--kubeconfig", str(ground.plane.kubeconfig)),
        *("-f", str(file)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert (process.returncode, out.decode(), err.decode()) == (0, f"{file}\n", "")
    text = file.read_text()
    assert f"<h2>Ring {RING}</h2>" in text
    assert "<td>a-00000001</td>" in text
    assert "<dt>Objects</dt><dd>4</dd>" in text
    assert "<td>Converged</td>" in text
    assert "<td>API server</td>" in text


async def test_a_ring_without_members_has_nothing_to_draw(ground: Ground) -> None:
    await ground.ring(leaseNamespace="default")
    cluster = load_cluster(kubeconfig=str(ground.plane.kubeconfig))
    found = await read_report(ground.client, cluster, None, timeout_s=5)
    assert [part.ring.name for part in found.rings] == [RING]
    assert found.rings[0].picture is not None
    assert found.rings[0].picture.members == []
    assert "nothing to draw" in render(found)
