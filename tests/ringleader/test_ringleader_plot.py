"""`ringleader plot`: labels keep their distance, files are what their names say, bad input is told."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeio.errors import InputError
from kubeio.patch import MergePatch
from ring import HashRing
from ringleader.__main__ import main
from ringleader.inspect.plot.canvas import LONGEST, drawing, labels, save, short, spread, target_of
from ringleader.inspect.plot.circle import draw_ring
from ringleader.inspect.plot.moves import MOST_SHOWN, OTHERS, draw_moves, gathered
from ringleader.inspect.plot.record import Moment, encode, read_record
from ringleader.inspect.plot.recording import Order, moves_of
from ringleader.inspect.plot.shares import draw_shares
from ringleader.inspect.plot.timeline import draw_timeline
from ringleader.inspect.simulate.change import apply_change
from ringleader.inspect.simulate.simulation import Tally, conclude
from ringleader.inspect.simulate.stock import invented
from tests.sharder.io.ground import KEYS, WEBSITES, Ground, wait_until
from tests.warm_python import warm_python

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
NAMES: dict[str, Callable[[int], str]] = {
    "short": lambda index: f"web-{index}",
    "long": lambda index: f"an-operator-of-websites-with-a-long-name-{index}.and-more-of-it",
    "hostile": lambda index: f"$\\frac{{{index}}}$ <script>&amp;\n\t日本 W{'W' * 30}",
}


@pytest.fixture
def style() -> Iterator[None]:
    with drawing():
        yield


def members(count: int, kind: str = "short") -> list[str]:
    return [NAMES[kind](index) for index in range(count)]


def make_ring(count: int, kind: str = "short", *, weighted: bool = False) -> HashRing:
    names = members(count, kind)
    return HashRing({name: 1 + 3 * weighted * (i % 3) for i, name in enumerate(names)}, virtual_nodes=100)


def ring_picture(count: int, kind: str) -> Any:
    return draw_ring(make_ring(count, kind, weighted=True), name=NAMES[kind](0))


def shares_picture(count: int, kind: str) -> Any:
    ring = make_ring(count, kind, weighted=True)
    objects = Counter(ring.owners([key for batch in invented(20_000) for key in batch.keys]))
    return draw_shares(ring, objects, name=NAMES[kind](0))


def moves_picture(count: int, kind: str) -> Any:
    change = apply_change(dict.fromkeys(members(count, kind), 1.0), ["+2", "+new=3"])
    tally = Tally({"": HashRing(change.before)}, {"": HashRing(change.after)})
    for batch in invented(20_000):
        tally.add(batch)
    return draw_moves(conclude(NAMES[kind](0), change, tally, rate=None))


def timeline_picture(count: int, kind: str) -> Any:
    """Members that all have about the same, one that goes and one that comes."""
    names = members(count, kind)
    moments = []
    for step in range(10):
        there = names[1:] if step > 5 else names[:-1]
        counts = {name: 1000 + (index * step) % 7 for index, name in enumerate(there)}
        moments.append(Moment(START + timedelta(seconds=step), step * 1234, step, 0, counts))
    return draw_timeline(moments, name=NAMES[kind](0))


PICTURES = {
    "ring": ring_picture,
    "shares": shares_picture,
    "moves": moves_picture,
    "timeline": timeline_picture,
}


def boxes(figure: Any) -> dict[str, Any]:
    """Where each text of *figure* stands, in pixels, as matplotlib itself measures it."""
    from matplotlib.text import Text

    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    hidden = undrawn(figure)
    texts = [
        text
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and id(text) not in hidden
    ]
    return {
        f"{index} {text.get_text()}": text.get_window_extent(renderer) for index, text in enumerate(texts)
    }


def undrawn(figure: Any) -> set[int]:
    """Labels of ticks that lie outside what their axis shows: matplotlib has them, and does not draw them."""
    found = set()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        slack = (high - low) * 1e-6
        outside = [
            tick for tick in axis.get_major_ticks() if not low - slack <= tick.get_loc() <= high + slack
        ]
        found |= {id(label) for tick in outside for label in (tick.label1, tick.label2)}
    return found


def overlaps(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (one, other)
        for (one, a), (other, b) in combinations(found.items(), 2)
        if a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1
    ]


# ---- labels -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("style")
@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize(
    ("count", "kind"), [(2, "short"), (3, "long"), (10, "short"), (100, "short"), (100, "long")]
)
def test_no_two_labels_overlap_and_none_leaves_the_paper(picture: str, count: int, kind: str) -> None:
    figure = PICTURES[picture](count, kind)
    found = boxes(figure)
    assert len(found) >= count
    assert overlaps(found) == []
    width, height = figure.canvas.get_width_height()
    outside = [
        text for text, box in found.items() if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height
    ]
    assert outside == []


@pytest.mark.usefixtures("style")
def test_an_overlap_would_be_noticed() -> None:
    figure = draw_ring(make_ring(3))
    figure.axes[0].text(1.0, 1.0, "one label")
    figure.axes[0].text(1.02, 1.02, "another")
    assert len(overlaps(boxes(figure))) == 1


@pytest.mark.usefixtures("style")
@pytest.mark.parametrize("picture", PICTURES)
def test_every_member_is_named(picture: str) -> None:
    told = "\n".join(boxes(PICTURES[picture](100, "short")))
    assert [name for name in members(100) if f"{name} " not in told and f"{name}\n" not in told] == []


@pytest.mark.usefixtures("style")
@pytest.mark.parametrize(("picture", "hidden"), [("ring", "160"), ("shares", None), ("timeline", "160")])
def test_of_very_many_members_the_largest_are_named_and_the_others_counted(
    picture: str, hidden: str | None
) -> None:
    found = boxes(PICTURES[picture](400, "short"))
    assert overlaps(found) == []
    told = "\n".join(found)
    assert hidden is None or f"the {hidden} " in told


@given(
    st.lists(st.floats(-5, 15), max_size=30).map(sorted),
    st.floats(0.01, 0.3),
)
def test_labels_are_spread_in_order_with_a_gap_and_within_bounds(wanted: list[float], gap: float) -> None:
    placed = spread(wanted, gap, 0.0, 10.0)
    assert all(after - before >= gap - 1e-9 for before, after in pairwise(placed))
    assert all(-1e-9 <= place <= 10 + 1e-9 for place in placed)


def test_labels_that_have_room_stay_where_they_are_wanted() -> None:
    assert spread([1.0, 2.0, 3.0], 0.5, 0.0, 10.0) == [1.0, 2.0, 3.0]
    assert spread([1.0, 1.0, 5.0], 0.5, 0.0, 10.0) == [0.75, 1.25, 5.0]


@given(st.text())
def test_names_are_shown_on_one_line_that_is_not_long(name: str) -> None:
    shown = short(name)
    assert len(shown) <= LONGEST
    assert "\n" not in shown
    assert shown.isprintable()


def test_of_long_names_what_tells_them_apart_is_shown() -> None:
    names = [f"an-operator-of-websites-in-the-west-{index}" for index in (7, 17, 170)]
    assert list(labels(names).values()) == ["…7", "…17", "…170"]
    assert labels(["web-0", "web-1"]) == {"web-0": "web-0", "web-1": "web-1"}
    assert len(set(labels(members(100, "long")).values())) == 100


# ---- moves ------------------------------------------------------------------------------------------------------


def test_of_many_members_the_smaller_flows_are_one_block_and_nothing_is_lost() -> None:
    flows = {(f"old-{index}", "new"): 10 + index for index in range(300)}
    found = gathered(flows)
    assert sum(found.values()) == sum(flows.values())
    assert len(found) == MOST_SHOWN + 1
    assert found["old-299", "new"] == 309
    assert (OTHERS, "new") in found


def test_trifles_are_one_block() -> None:
    flows = {("a", "new"): 1000, **{("a", f"b-{index}"): 2 for index in range(5)}}
    assert gathered(flows) == {("a", "new"): 1000, ("a", OTHERS): 10}
    few = {("a", "new"): 1000, ("a", "b"): 2}
    assert gathered(few) == few


# ---- files ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("style")
@pytest.mark.parametrize("picture", PICTURES)
def test_hostile_names_are_only_text(picture: str, tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    save(PICTURES[picture](13, "hostile"), path)
    found = {element.tag.rpartition("}")[2] for element in ElementTree.parse(path).iter()}
    assert "svg" in found
    assert "script" not in found


@pytest.mark.parametrize("kind", ["png", "svg"])
@pytest.mark.parametrize(
    "words", [["ring"], ["shares", "--objects", "500"], ["moves", "--change", "+1", "--objects", "500"]]
)
def test_a_picture_is_what_its_name_says_and_the_same_each_time(
    kind: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.{kind}"
        assert main(["plot", *words, "--members", "5", "-o", str(path)]) == 0
        assert capsys.readouterr().out == f"{path}\n"
        made.append(path.read_bytes())
    assert made[0] == made[1]
    if kind == "svg":
        assert ElementTree.fromstring(made[0]).tag.endswith("svg")
    else:
        assert made[0].startswith(b"\x89PNG\r\n")
        width, height = struct.unpack(">II", made[0][16:24])
        assert 300 < width < 3000
        assert 200 < height < 3000


def test_without_a_name_the_picture_is_called_after_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plot", "ring", "--members", "3"]) == 0
    assert main(["plot", "shares", "--members", "3", "-o", "svg"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ring.png", "shares.svg"]
    assert target_of("png", default="ring-websites") == Path("ring-websites.png")


@pytest.mark.parametrize("output", ["picture.gif", "picture", "no-such-folder/ring.png"])
def test_a_name_that_is_no_picture_is_refused(output: str) -> None:
    with pytest.raises(InputError, match="-o"):
        target_of(output, default="ring")


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError('matplotlib')\n")
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-m", "ringleader", "plot", "ring", "--members", "3"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{root}"},
    )
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "matplotlib is not installed" in ended.stderr
    assert "pip install 'ringleader[plot]'" in ended.stderr


def test_nothing_to_draw_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "moves", "--members", "3", "--objects", "1", "--change", "member-0=1"]) == 2
    assert "nothing to draw" in capsys.readouterr().err


def test_help_and_simulation_leave_matplotlib_alone() -> None:
    code = "import sys; from ringleader.__main__ import main; main(sys.argv[1:]); sys.exit('matplotlib' in sys.modules)"
    for words in (["plot", "-h"], ["simulate", "--members", "3", "--objects", "5", "--change", "+1"]):
        ended = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, check=False, timeout=30
        )
        assert ended.returncode == 0, ended.stderr


# ---- the timeline's file ----------------------------------------------------------------------------------------


def moment(at_s: float, moved: int = 0, **counts: int) -> Moment:
    return Moment(START + timedelta(seconds=at_s), moved, members=counts)


def test_a_recording_is_read_back_in_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "record"
    moments = [moment(2, 5, a=1), moment(0, 0, a=2), moment(1, 3, a=3)]
    path.write_bytes(b"\n".join(map(encode, moments)))
    told: list[str] = []
    assert read_record(path, told=told.append) == [moments[1], moments[2], moments[0]]
    assert told == []


def test_broken_lines_of_a_recording_are_named_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "record"
    good = encode(moment(0)), encode(moment(1))
    bad = (
        b"{\n",
        b'{"time": "yesterday", "moved": 1}\n',
        b'{"time": "2026-11-21T12:00:00Z", "moved": -1}\n',
        b"\xff\n",
    )
    path.write_bytes(good[0] + b"".join(bad) + good[1])
    told: list[str] = []
    assert len(read_record(path, told=told.append)) == 2
    assert [line.split(":")[0] for line in told] == [f"record, line {number}" for number in (2, 3, 4, 5)]


@pytest.mark.parametrize(("lines", "said"), [([], "nothing to draw"), ([0], "one moment only")])
def test_a_recording_without_a_timeline_is_refused(lines: list[float], said: str, tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_bytes(b"".join(encode(moment(at_s)) for at_s in lines))
    with pytest.raises(InputError, match=said):
        read_record(path, told=lambda line: None)


def test_a_recording_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="FILE"):
        read_record(tmp_path / "gone", told=lambda line: None)


def test_the_sharder_s_own_count_is_read_from_its_metrics() -> None:
    text = (
        "# TYPE ringleader_moves_total counter\n"
        'ringleader_moves_total{ring="websites",reason="rebalance"} 120\n'
        'ringleader_moves_total{ring="websites",reason="owner_dead"} 30\n'
        'ringleader_moves_total{ring="websites",reason="new"} 999\n'
        'ringleader_moves_total{ring="shops",reason="rebalance"} 999\n'
        "# TYPE ringleader_handoffs_in_flight gauge\n"
        'ringleader_handoffs_in_flight{ring="websites"} 8\n'
    )
    assert moves_of(text, "websites") == (150, 8)
    with pytest.raises(ValueError, match="nothing about ring blogs"):
        moves_of(text, "blogs")


def test_an_order_to_record_is_checked_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--metrics"):
        Order(file=tmp_path / "record", metrics="file:///etc/passwd")
    with pytest.raises(InputError, match="FILE"):
        Order(file=tmp_path / "gone" / "record")


# ---- on a control plane -----------------------------------------------------------------------------------------


async def ended(ground: Ground, *words: str) -> tuple[int, str, str]:
    kubeconfig = await ground.plane.kubeconfig_for("ada")
    process = await asyncio.create_subprocess_exec(
        *(warm_python(), "-m", "ringleader", "plot", *words),
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_a_rebalance_is_recorded_while_it_happens(ground: Ground, tmp_path: Path) -> None:
    await ground.ring()
    a, b = await ground.shard("a"), await ground.shard("b")
    await ground.sites(6, labels={KEYS.shard: a.name})
    record, picture = tmp_path / "record.jsonl", tmp_path / "timeline.png"

    async def move() -> None:
        await wait_until(lambda: record.exists() and record.read_bytes().count(b"\n") >= 2)
        labels = {"metadata": {"labels": {KEYS.shard: b.name}}}
        for number in range(4):
            await ground.client.patch(
                WEBSITES, f"site-{number}", MergePatch(labels), namespace="default", type=bytes
            )

    moving = asyncio.create_task(move(), name="move")
    words = ("timeline", str(record), "--record", "--every", "0.2s", "--for", "4s", "-o", str(picture))
    code, out, err = await ended(ground, *words)
    await moving
    assert code == 0, err
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert lines[0]["members"] == {"a": 6, "b": 0}
    assert lines[-1]["members"] == {"a": 2, "b": 4}
    assert lines[-1]["moved"] == 4
    assert out.splitlines() == [f"{len(lines)} moments in {record}", str(picture)]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert not [write for write in ground.plane.writes() if write.user == "ada"]


async def test_ring_and_shares_are_the_cluster_s(ground: Ground, tmp_path: Path) -> None:
    await ground.ring()
    await ground.shard("a")
    await ground.sites(3)
    for words in (["ring"], ["shares"], ["moves", "--change", "+b,-a"]):
        path = tmp_path / f"{words[0]}.svg"
        code, _, err = await ended(ground, *words, "-o", str(path))
        assert code == 0, err
        assert "<!-- a" in path.read_text()  # what matplotlib notes beside the strokes of a text
    code, _, err = await ended(ground, "ring", "website")
    assert (code, err.count("\n")) == (2, 1)
    assert "did you mean websites" in err


async def test_where_main_resources_have_rings_of_their_own_one_is_drawn_and_told(
    ground: Ground, tmp_path: Path
) -> None:
    await ground.ring(
        resources=[{"group": "example.com", "resource": "websites"}, {"group": "", "resource": "secrets"}]
    )
    await ground.shard("site-0", works="websites.example.com")
    await ground.shard("sum-0", works="secrets")
    await ground.sites(3)
    for words, drawn, absent in (([], "site-0", "sum-0"), (["--resource", "secrets"], "sum-0", "site-0")):
        for kind in ("ring", "shares"):
            path = tmp_path / f"{kind}.svg"
            code, out, err = await ended(ground, kind, *words, "-o", str(path))
            assert (code, out) == (0, f"{path}\n"), err
            text = path.read_text()
            assert f"<!-- {drawn}" in text
            assert f"<!-- {absent}" not in text
        assert (
            "note: the ring of websites.example.com is shown; left out: secrets (other members" in err
        ) == (not words)
    code, _, err = await ended(ground, "ring", "--members", "3", "--resource", "secrets")
    assert (code, "--resource: 'secrets' says nothing without a ring" in err) == (2, True)
