"""Figures over time, the picture and the page of a run; and what of a run becomes the verdict."""

from __future__ import annotations

from kubeio.resource import ApiResource
from loadtest.inputs.scenario import Point, Schedule
from loadtest.inputs.slo import judge
from loadtest.observing.histograms import Window
from loadtest.observing.observer import ASSIGNED, READY, MeasuredWait
from loadtest.reporting.document import Grid
from loadtest.reporting.figures import measured, operations, request_rows
from loadtest.reporting.picture import draw
from loadtest.run import Found, Prepared

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
ROWS = {
    "create": {"num_requests": 100, "num_failures": 1, "response_times": {"5": 98, "200": 2}},
    "create (429)": {"num_requests": 7, "num_failures": 0, "response_times": {"1": 7}},
    ASSIGNED: {"num_requests": 99, "num_failures": 0, "response_times": {"30": 99}},
}


def found(**fields: object) -> Found:
    run = Found(Prepared(WEBSITES), Schedule("steady", 10.0, {"update": 1}, [Point(0.0, 10.0)], []))
    run.requests = ROWS
    run.objects_at_end = 10
    for name, value in fields.items():
        setattr(run, name, value)
    return run


def figures(run: Found, waits: list[MeasuredWait]) -> dict[str, bool | None]:
    values = measured(run, waits, Window(), changes_spec=True)
    limits = dict.fromkeys(values, 1.0)
    return {line.name: line.passed for line in judge(limits, values)}


def test_steps_are_seconds_until_there_are_too_many() -> None:
    assert (Grid(10, 70).width_s, Grid(10, 70).count) == (1, 61)
    assert (Grid(0, 14_400).width_s, Grid(0, 14_400).count) == (24, 601)


def test_instants_outside_the_span_are_left_out() -> None:
    grid = Grid(10, 13)
    assert grid.per_second([9.9, 10, 10.5, 12.99, 13.5, 14.1]) == [2, 0, 1, 1]


def test_a_sum_read_every_three_seconds_becomes_an_even_rate() -> None:
    assert Grid(0, 6).rates([(3, 30), (6, 90)]) == [10, 10, 10, 20, 20, 20, None]


def test_a_value_lasts_until_the_next_one() -> None:
    assert Grid(0, 4).last([(1.2, 5), (3.1, 7)]) == [None, 5, 5, 7, 7]


def test_waits_and_requests_that_were_put_off_are_no_operations() -> None:
    assert operations(ROWS) == 100
    assert request_rows(ROWS) == {
        "create": {"requests": 100, "failures": 1, "p50_s": 0.005, "p99_s": 0.2},
        "create (429)": {"requests": 7, "failures": 0, "p50_s": 0.001, "p99_s": 0.001},
    }


def test_a_watch_that_saw_nothing_of_what_was_asked_for_fails() -> None:
    verdict = figures(found(), [MeasuredWait(ASSIGNED, 1.0, 0.1)])
    assert (verdict["assigned"], verdict["ready"]) == (True, False)
    assert verdict["changed"] is None  # the load has changed nothing
    assert (verdict["queueWait"], verdict["reconcile"]) == (False, False)


def test_a_kind_that_says_nothing_is_excused_from_ready_only() -> None:
    run = found()
    run.prepared.measures_ready = False
    verdict = figures(run, [])
    assert (verdict["assigned"], verdict["ready"], verdict["changed"]) == (False, None, None)
    assert verdict["unready"] is None


def test_a_single_object_that_is_left_behind_fails() -> None:
    assert figures(found(unready=2), [])["unready"] is False
    assert figures(found(unready=0), [])["unready"] is True


def test_a_load_without_requests_or_objects_fails() -> None:
    verdict = figures(found(requests={}, objects_at_end=0), [])
    assert (verdict["failures"], verdict["unowned"], verdict["achieved"]) == (False, False, False)


def test_the_picture_is_one_svg_element_and_marks_the_actions() -> None:
    series: dict[str, list[float | None]] = {
        "second": [0, 1, 2],
        "operations": [1, 2, None],
        "failures": [0, 0, 0],
        "moved": [0, 5, 0],
        f"{READY}, p99 s": [0.1, None, 0.3],
    }
    picture = draw(series, [{"action": "node-loss", "began_s": 1.0, "ended_s": 2.0}])
    assert picture.startswith("<svg")
    assert "http" not in picture.replace("http://www.w3.org", "")
    assert "node-loss" in picture
