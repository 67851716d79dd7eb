"""`ringleader plot`: the numbers of the figures, legible labels, files that are what their names say, bad input."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from kubeio.errors import InputError
from ring import HashRing
from ringleader.__main__ import main
from ringleader.cluster.ring_status import MemberStatus, RingStatus
from ringleader.inspect.plot.command import checked_path
from ringleader.inspect.plot.data import (
    LONGEST_NAME,
    MOST_NAMED,
    MOST_ROWS,
    Moment,
    Timeline,
    label,
    read_moments,
    share_rows,
    timeline,
)
from ringleader.inspect.plot.figures import PALETTE, draw_ring, draw_timeline, drawing, save
from tests.sharder.io.environment import KEYS, SharderEnvironment
from tests.warm_python import warm_python

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
NAMES = {
    "short": "web-{}",
    "long": "an-operator-of-websites-with-a-very-long-name-for-its-pods-{}",
    "hostile": "$\\frac{{{}}}$ <script>&amp;\n\t日本 " + "W" * 60,
}


@pytest.fixture
def style() -> Iterator[None]:
    with drawing():
        yield


def members(count: int, kind: str = "short") -> list[str]:
    return [NAMES[kind].format(index) for index in range(count)]


def picture(counts: dict[str, int], *, name: str = "websites", **fields: Any) -> RingStatus:
    rows = [MemberStatus(each, f"{each}-1", "ready", 1.0, n, 0.5, 0.5, 0) for each, n in counts.items()]
    fields = {"unowned": 0, "in_flight": 0, **fields}
    return RingStatus(name, "True", "True", sum(counts.values()), members=rows, **fields)


def moment(at_s: float, **counts: int) -> Moment:
    return Moment(START + timedelta(seconds=at_s), picture(counts))


def line(at_s: float, *rings: RingStatus, **fields: Any) -> bytes:
    """What `status -w -o json` prints."""
    at = START + timedelta(seconds=at_s)
    return msgspec.json.encode({"at": at, "ageSeconds": 0.0, "problem": "", "rings": rings, **fields})


# ---- the ring's rows --------------------------------------------------------------------------------------------


def test_a_row_has_the_share_the_even_share_and_the_bound_of_a_member() -> None:
    ring = HashRing({"web-10": 1, "web-2": 3}, virtual_nodes=100, eps=0.1)
    rows = share_rows(ring)
    assert [row.name for row in rows] == ["web-2", "web-10"]
    assert [row.even for row in rows] == [0.75, 0.25]
    assert [row.bound for row in rows] == pytest.approx([0.825, 0.275])
    assert [row.share for row in rows] == [float(ring.shares()[name]) for name in ("web-2", "web-10")]


def test_of_many_members_the_nearest_to_their_bound_have_rows_and_the_others_their_mean() -> None:
    ring = HashRing(members(400), virtual_nodes=20)
    rows = share_rows(ring)
    assert len(rows) == MOST_ROWS
    assert rows[-1].name == "mean of 351 others"
    fullest = sorted((float(share) for share in ring.shares().values()), reverse=True)
    assert [row.share for row in rows[:-1]] == fullest[: MOST_ROWS - 1]
    assert rows[-1].share == pytest.approx(sum(fullest[MOST_ROWS - 1 :]) / 351)


@pytest.mark.parametrize("kind", NAMES)
def test_names_are_shown_on_one_line_that_is_not_long(kind: str) -> None:
    shown = label(NAMES[kind].format(7))
    assert len(shown) <= LONGEST_NAME
    assert shown.isprintable()
    assert kind == "hostile" or shown == NAMES[kind].format(7)


# ---- the timeline's lines ---------------------------------------------------------------------------------------


def test_members_that_changed_most_are_named_and_those_that_are_absent_have_gaps() -> None:
    still = {f"still-{index}": 100 for index in range(20)}
    found = timeline([moment(0, a=50, **still), moment(1, a=25, b=25, **still), moment(3, b=50, **still)])
    assert found.seconds == [0.0, 1.0, 3.0]
    assert found.start == START
    assert len(found.named) == MOST_NAMED
    assert found.named["a"][:2] == [50, 25]
    assert math.isnan(found.named["a"][2])
    assert math.isnan(found.named["b"][0])
    assert found.others == [[100.0] * 3] * 12


def test_a_member_counts_its_shards_together_and_is_absent_without_objects_and_place() -> None:
    rows = [
        MemberStatus("a", "a-1", "ready", 1.0, 3, 1.0, 1.0, 0),
        MemberStatus("a", "a-2", "released", 1.0, 4, 0.0, 0.0, 0),
        MemberStatus("gone", "gone-1", "taken", 1.0, 0, 0.0, 0.0, 0),
    ]
    shown = msgspec.structs.replace(picture({}, in_flight=2, unowned=1, misplaced=5), members=rows)
    found = timeline([Moment(START, shown)])
    assert found.named == {"a": [7.0]}
    assert found.waiting == {"being handed over": [2], "misplaced": [5], "without an owner": [1]}


def read(*lines: bytes, ring: str | None = None) -> tuple[list[Moment], list[str]]:
    warnings: list[str] = []
    return read_moments(lines, ring, source="x.jsonl", warn=warnings.append), warnings


def test_moments_are_in_order_of_when_the_ring_was_seen() -> None:
    one, two, old = picture({"a": 1}), picture({"a": 2}), picture({"a": 3}, age_seconds=9.0)
    found, warnings = read(line(5, two), line(8, one, ageSeconds=4), line(10, old, ageSeconds=0.5))
    assert [(each.at - START).total_seconds() for each in found] == [0.5, 4, 5]
    assert [each.ring.objects for each in found] == [3, 1, 2]
    assert warnings == []


def test_lines_that_only_repeat_the_last_look_are_left_out_silently() -> None:
    found, warnings = read(
        line(0, picture({})), line(1, picture({}), problem="no answer"), b"\n", line(2, picture({}))
    )
    assert (len(found), warnings) == (2, [])


def test_broken_lines_are_named_and_left_out() -> None:
    naive = line(0, picture({})).replace(b"Z", b"")
    bad = (b"{\n", b'{"at": "yesterday"}\n', naive, b"\xff\n", b'{"at": "2026-11-21T12:00:00Z"}')
    found, warnings = read(line(0, picture({})), *bad, line(1, picture({})), *bad, *bad)
    assert len(found) == 2
    assert [each.split(":")[0] for each in warnings[:5]] == [
        f"x.jsonl, line {number}" for number in range(2, 7)
    ]
    assert warnings[10:] == ["x.jsonl: 5 more broken lines are left out"]


def test_of_several_rings_one_is_named() -> None:
    both = [line(at, picture({"a": 1}), picture({"b": 1}, name="shops")) for at in (0, 1)]
    found, _ = read(*both, ring="shops")
    assert [each.ring.name for each in found] == ["shops", "shops"]
    with pytest.raises(InputError, match=r"RING.*has several; name one of shops, websites"):
        read(*both)
    with pytest.raises(InputError, match="RING: 'blogs' is not in the input; name one of shops, websites"):
        read(*both, ring="blogs")


@pytest.mark.parametrize(("count", "said"), [(0, "nothing to draw"), (1, "one moment only")])
def test_fewer_than_two_moments_are_refused(count: int, said: str) -> None:
    with pytest.raises(InputError, match=f"{said}; record some: ringleader status -w -o json"):
        read(*[line(0, picture({}))] * count)


# ---- figures ----------------------------------------------------------------------------------------------------


def shown_timeline(count: int, kind: str) -> Timeline:
    """Members of which one goes and one comes."""
    names = members(count, kind)
    moments = []
    for step in range(10):
        there = names[1:] if step > 5 else names[: count - 1] if count > 1 else names
        counts = {name: 1000 + (index * step) % 7 for index, name in enumerate(there)}
        moments.append(
            Moment(START + timedelta(seconds=step), picture(counts, name=NAMES[kind].format("ring")))
        )
    return timeline(moments)


def ring_figure(count: int, kind: str) -> Any:
    ring = HashRing(
        {name: 1 + index % 3 for index, name in enumerate(members(count, kind))}, virtual_nodes=20
    )
    return draw_ring(share_rows(ring), title=f"Ring {label(NAMES[kind].format('ring'))}\n{count} members")


def timeline_figure(count: int, kind: str) -> Any:
    return draw_timeline(shown_timeline(count, kind))


FIGURES = {"ring": ring_figure, "timeline": timeline_figure}


def texts_of(path: Path) -> list[str]:
    root = ElementTree.parse(path).getroot()
    assert root.tag.endswith("svg")
    return [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.usefixtures("style")
@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize(
    ("count", "kind"), [(1, "short"), (3, "long"), (50, "long"), (1000, "short"), (13, "hostile")]
)
def test_labels_are_on_the_paper_and_do_not_overlap(figure: str, count: int, kind: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    drawn = FIGURES[figure](count, kind)
    canvas: Any = FigureCanvasAgg(drawn)
    canvas.draw()
    width, height = canvas.get_width_height()
    numbers = [tick for axes in drawn.axes for tick in axes.xaxis.get_ticklabels()]  # some are never drawn
    if figure == "ring":
        rows = drawn.axes[0].get_yticklabels()
    else:
        numbers += [tick for axes in drawn.axes for tick in axes.get_yticklabels()]
        rows = [text for axes in drawn.axes for text in axes.get_legend().get_texts()]
    texts = [each for each in drawn.findobj(Text) if each.get_text().strip() and each not in numbers]
    boxes = [each.get_window_extent() for each in texts]
    assert len(boxes) > len(rows) >= min(count, MOST_NAMED)
    assert [box for box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height] == []
    places = [each.get_window_extent() for each in rows]
    assert [pair for pair in combinations(places, 2) if pair[0].overlaps(pair[1])] == []


@pytest.mark.usefixtures("style")
def test_the_ring_s_figure_names_members_and_what_the_marks_mean(tmp_path: Path) -> None:
    save(ring_figure(12, "short"), path := tmp_path / "ring.svg")
    found = texts_of(path)
    assert [name for name in members(12) if not any(text.startswith(f"{name}  ") for text in found)] == []
    assert {"share of the hash space", "even share by weight", "bound", "Ring web-ring"} <= set(found)


@pytest.mark.usefixtures("style")
def test_the_timeline_s_figure_names_members_and_what_is_not_at_rest(tmp_path: Path) -> None:
    save(timeline_figure(12, "short"), path := tmp_path / "timeline.svg")
    found = set(texts_of(path))
    assert len(found & set(members(12))) == MOST_NAMED
    assert {"2 others", "being handed over", "misplaced", "without an owner"} <= found
    assert "seconds since 2026-11-21 12:00:00 UTC" in found


@pytest.mark.usefixtures("style")
@pytest.mark.parametrize("figure", FIGURES)
def test_hostile_names_are_only_text(figure: str, tmp_path: Path) -> None:
    save(FIGURES[figure](13, "hostile"), path := tmp_path / "figure.svg")
    assert "script" not in {each.tag.rpartition("}")[2] for each in ElementTree.parse(path).iter()}
    assert any("<script>" in text for text in texts_of(path))


def test_every_named_member_has_a_colour_of_its_own() -> None:
    import matplotlib as mpl

    assert len(set(mpl.color_sequences[PALETTE])) >= MOST_NAMED


# ---- files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "begin"), [("png", b"\x89PNG\r\n"), ("svg", b"<?xml"), ("PDF", b"%PDF-")])
def test_a_figure_is_what_its_name_says_and_the_same_each_time(
    kind: str, begin: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "status.jsonl"
    record.write_bytes(b"\n".join(line(at, picture({"a": 5 - at, "b": at})) for at in range(3)))
    for words in (["ring", "--members", "5"], ["timeline", "-f", str(record)]):
        made = []
        for name in ("one", "two"):
            path = tmp_path / f"{name}.{kind}"
            assert main(["plot", *words, "--out", str(path)]) == 0
            assert capsys.readouterr().out == f"{path}\n"
            made.append(path.read_bytes())
        assert made[0] == made[1]
        assert made[0].startswith(begin)


def test_without_a_name_the_file_is_called_after_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").write_bytes(b"\n".join(line(at, picture({"a": 5})) for at in range(3)))
    assert main(["plot", "ring", "--members", "3"]) == 0
    assert main(["plot", "timeline", "websites", "-f", "x"]) == 0
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["ring.png", "timeline-websites.png"]


class Pipe:
    """Standard input from `status -w`, until Ctrl-C."""

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines

    @property
    def buffer(self) -> Iterator[bytes]:
        yield from self.lines
        raise KeyboardInterrupt

    def isatty(self) -> bool:
        return not self.lines


def test_ctrl_c_ends_the_input_and_the_figure_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Pipe([line(at, picture({"a": 5})) for at in range(3)]))
    path = tmp_path / "timeline.svg"
    assert main(["plot", "timeline", "--out", str(path)]) == 0
    assert "a" in texts_of(path)


def test_a_terminal_is_no_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", Pipe([]))
    assert main(["plot", "timeline"]) == 2
    assert "-f: '-' is a terminal; name a file, or pipe: ringleader status -w" in capsys.readouterr().err


@pytest.mark.parametrize("out", ["figure.gif", "figure", "-", "no-such-folder/ring.png"])
def test_a_name_that_is_no_figure_is_refused(out: str) -> None:
    with pytest.raises(InputError, match="--out"):
        checked_path(out)


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


def test_help_and_simulation_leave_matplotlib_alone() -> None:
    code = "import sys; from ringleader.__main__ import main; main(sys.argv[1:]); sys.exit('matplotlib' in sys.modules)"
    for words in (["plot", "-h"], ["simulate", "--members", "3", "--objects", "5", "--change", "+1"]):
        ended = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, check=False, timeout=30
        )
        assert ended.returncode == 0, ended.stderr


# ---- on a control plane -----------------------------------------------------------------------------------------


async def start(env: SharderEnvironment, *words: str, stdin: int | None = None) -> asyncio.subprocess.Process:
    kubeconfig = await env.plane.kubeconfig_for("ada")
    return await asyncio.create_subprocess_exec(
        *(warm_python(), "-m", "ringleader", *words),
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(env: SharderEnvironment, *words: str) -> tuple[int, str, str]:
    process = await start(env, "plot", *words)
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_a_timeline_is_drawn_from_what_status_prints(env: SharderEnvironment, tmp_path: Path) -> None:
    await env.ring()
    a = await env.shard("a", duration_s=15)
    await env.shard("b", duration_s=15)
    await env.sites(2, labels={KEYS.shard: a.name})
    await env.report(objects=2)
    status = await start(env, "status", "-w", "--interval", "0.2s", "-o", "json")
    assert status.stdout is not None
    lines = []
    for number in range(3):
        lines.append(await asyncio.wait_for(status.stdout.readline(), 30))
        await env.report(objects=3 + number)
    status.send_signal(signal.SIGINT)
    await status.communicate()
    path = tmp_path / "timeline.svg"
    plot = await start(env, "plot", "timeline", "--out", str(path), stdin=asyncio.subprocess.PIPE)
    _, err = await plot.communicate(b"".join(lines))
    assert (plot.returncode, err) == (0, b"")
    assert {"a", "b", "Ring websites over time"} <= set(texts_of(path))


async def test_the_ring_is_the_cluster_s(env: SharderEnvironment, tmp_path: Path) -> None:
    await env.ring()
    await env.shard("a")
    path = tmp_path / "ring.svg"
    code, _, err = await ended(env, "ring", "--out", str(path))
    assert code == 0, err
    assert {"a  100%", "Ring websites"} <= set(texts_of(path))
    assert not [write for write in env.plane.writes() if write.user == "ada"]
    code, _, err = await ended(env, "ring", "website")
    assert (code, err.count("\n")) == (2, 1)
    assert "did you mean websites" in err


async def test_where_main_resources_have_rings_of_their_own_one_is_drawn_and_told(
    env: SharderEnvironment, tmp_path: Path
) -> None:
    await env.ring(
        resources=[{"group": "example.com", "resource": "websites"}, {"group": "", "resource": "secrets"}]
    )
    await env.shard("site-0", works="websites.example.com")
    await env.shard("sum-0", works="secrets")
    path = tmp_path / "ring.svg"
    for words, drawn, of in (
        ([], "site-0  100%", "of websites.example.com"),
        (["--resource", "secrets"], "sum-0  100%", "of secrets"),
    ):
        code, out, err = await ended(env, "ring", *words, "--out", str(path))
        assert (code, out) == (0, f"{path}\n"), err
        found = texts_of(path)
        assert {drawn, of} <= set(found)
        assert len([text for text in found if text.endswith("  100%")]) == 1
        assert (
            "note: the ring of websites.example.com is shown; left out: secrets (other members" in err
        ) == (not words)
    code, _, err = await ended(env, "ring", "--members", "3", "--resource", "secrets")
    assert (code, "--resource: 'secrets' says nothing without a ring" in err) == (2, True)
