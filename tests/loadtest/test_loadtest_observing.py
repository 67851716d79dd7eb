"""What the observer makes of a watch, and what metrics of many processes say together."""

from __future__ import annotations

import math
from collections.abc import Collection

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeio.clock import ManualClock
from kubeio.errors import Unreachable
from kubeio.models import HasMeta, Object
from kubeio.resource import ApiResource
from kubeio.watches.reflector import Changed, Gap, ListDone, Listed, ListStarted, Removed, WatchEvent
from loadtest.observing.histograms import QUEUE, ApiPage, MetricsPage, Window, observations
from loadtest.observing.observer import ASSIGNED, CHANGED, READY, Observer
from loadtest.quantiles import bucket_quantile, percentile
from loadtest.targets.target import Testimony as Said  # pytest would collect a Test...

LABEL = "shard.ringleader.dev/websites"
IS_READY = {"conditions": [{"type": "Ready", "status": "True"}]}
LISTED: list[tuple[float, WatchEvent]] = [(0.0, ListStarted()), (0.0, ListDone("1"))]


class Script:
    """Plays *steps*: seconds to let pass, then what the watch shows."""

    def __init__(self, clock: ManualClock, steps: list[tuple[float, WatchEvent]]) -> None:
        self._clock = clock
        self._steps = steps

    async def events(self):  # type: ignore[no-untyped-def] # stands in for Reflector.events
        for pause_s, event in self._steps:
            self._clock.advance(pause_s)
            yield event


def site(
    *, generation: int = 1, status: dict[str, object] | None = None, owner: str = "", uid: str = "u1"
) -> Object:
    labels = {LABEL: owner} if owner else {}
    metadata = {"name": uid, "uid": uid, "generation": generation, "labels": labels}
    raw = msgspec.json.encode({"metadata": metadata, "status": status or {}})
    return Object(msgspec.json.decode(raw, type=HasMeta).metadata, raw)


def seen(**fields: object) -> Changed:
    return Changed(site(**fields), is_new=False)  # type: ignore[arg-type]


def done(generation: int) -> dict[str, object]:
    return {"observedGeneration": generation, **IS_READY}


async def observe(
    steps: list[tuple[float, WatchEvent]], monkeypatch: pytest.MonkeyPatch, expected: Collection[str] = ()
) -> Observer:
    clock = ManualClock()
    monkeypatch.setattr("loadtest.observing.observer.Reflector", lambda *_, **__: Script(clock, steps))
    observer = Observer(
        None,  # type: ignore[arg-type] # the script needs no client
        ApiResource("example.com", "v1", "websites", "Website"),
        namespace="load",
        selector="",
        shard_label=LABEL,
        clock=clock,
    )
    observer.expected = expected
    await observer.run()
    return observer


def waits(observer: Observer) -> list[tuple[str, float]]:
    return [(wait.name, round(wait.took_s, 6)) for wait in observer.waits]


async def test_waits_are_counted_from_the_first_event_that_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    observer = await observe(
        [
            *LISTED,
            (1.0, seen()),
            (0.2, seen(owner="a-1")),
            (0.3, seen(owner="a-1", status=done(1))),
            (5.0, seen(generation=2, owner="a-1", status=done(1))),
            (0.4, seen(generation=3, owner="a-1", status=done(1))),
            (0.1, seen(generation=3, owner="a-1", status=done(3))),
        ],
        monkeypatch,
    )
    assert waits(observer) == [
        ("created -> assigned", 0.2),
        ("created -> ready", 0.5),
        ("changed -> ready", 0.5),
        ("changed -> ready", 0.1),
    ]
    assert (observer.unready, observer.unassigned) == (0, 0)


async def test_what_existed_before_is_no_wait_but_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    old = Listed([site(), site(uid="u2", owner="a-1", status=done(1))])
    observer = await observe([(0.0, ListStarted()), (0.0, old), (0.0, ListDone("1"))], monkeypatch)
    assert (observer.unassigned, observer.unready, waits(observer)) == (1, 1, [])


async def test_a_ready_condition_that_is_not_true_answers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "False"}]}
    observer = await observe([*LISTED, (1.0, seen()), (1.0, seen(status=failed))], monkeypatch)
    assert (observer.unready, observer.says_ready) == (1, False)


async def test_readiness_without_a_generation_answers_the_creation_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = [*LISTED, (1.0, seen()), (1.0, seen(status=IS_READY)), (1.0, seen(generation=2, status=IS_READY))]
    observer = await observe(steps, monkeypatch)
    assert (waits(observer), observer.unready) == ([("created -> ready", 1.0)], 1)


async def test_a_move_is_a_change_of_member_not_of_process(monkeypatch: pytest.MonkeyPatch) -> None:
    owners = ["a-11111111", "a-22222222", "b-33333333", "", "a-44444444"]
    observer = await observe([*LISTED, *((1.0, seen(owner=owner)) for owner in owners)], monkeypatch)
    assert len(observer.moves) == 2
    assert observer.owners() == {"a-44444444": 1}


async def test_what_is_gone_is_not_waited_for_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Removed(site())
    observer = await observe([*LISTED, (1.0, seen()), (1.0, gone)], monkeypatch)
    assert (len(observer), observer.unready) == (0, 0)


async def test_a_wait_that_never_ends_counts_with_the_time_until_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed = [
        (1.0, seen(uid="u3", owner="a-1", status=done(1))),
        (1.0, seen(uid="u3", generation=2, owner="a-1")),
    ]
    steps = [*LISTED, (1.0, seen(uid="u1")), (4.0, seen(uid="u2", owner="a-1")), *changed]
    observer = await observe(steps, monkeypatch)
    observer.expected = [ASSIGNED, READY, CHANGED]
    observer.waits.clear()
    observer.cut_short()
    assert waits(observer) == [(ASSIGNED, 6.0), (READY, 6.0), (READY, 2.0), (CHANGED, 0.0)]


async def test_what_is_deleted_while_it_waits_counts_with_the_time_until_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[tuple[float, WatchEvent]] = [*LISTED, (1.0, seen()), (3.0, Removed(site()))]
    observer = await observe(steps, monkeypatch, expected=[ASSIGNED])
    assert waits(observer) == [(ASSIGNED, 3.0)]


async def test_what_was_deleted_during_an_outage_is_found_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    gap = Gap(Unreachable("WATCH", "refused", maybe_done=False), 1.0)
    steps: list[tuple[float, WatchEvent]] = [*LISTED, (1.0, seen()), (1.0, gap), (3.0, ListStarted())]
    observer = await observe([*steps, (0.0, Listed([])), (0.0, ListDone("9"))], monkeypatch)
    assert len(observer) == 0
    assert [(round(o.ended_at - o.began_at, 6), "refused" in o.reason) for o in observer.outages] == [
        (3.0, True)
    ]


async def test_a_status_of_another_shape_is_left_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    odd: dict[str, object] = {"conditions": "none", "observedGeneration": "one"}
    observer = await observe([*LISTED, (1.0, seen(status=odd))], monkeypatch)
    assert observer.waits == []


# -- quantiles ----------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_not_exceeded_by_its_share_of_the_values(values: list[float], share: float) -> None:
    answer = percentile(values, share)
    assert answer in values
    assert sum(value <= answer for value in values) >= share * len(values) - 1e-9


def test_nothing_measured_is_not_a_number() -> None:
    assert math.isnan(percentile([], 0.5))
    assert math.isnan(bucket_quantile({}, 0.5))
    assert math.isnan(bucket_quantile({1.0: 0, math.inf: 0}, 0.5))


def test_a_quantile_of_buckets_is_linear_inside_and_bounded_above() -> None:
    buckets = {1.0: 50.0, 2.0: 100.0, math.inf: 110.0}
    assert bucket_quantile(buckets, 0.25) == pytest.approx(0.55)
    assert bucket_quantile(buckets, 0.75) == pytest.approx(1.65)
    assert bucket_quantile(buckets, 0.99) == 2.0


# -- metrics ------------------------------------------------------------------------------------------------


def page(started: float, fast: int, slow: int) -> MetricsPage:
    name = f'{QUEUE}_bucket{{name="w",controller="w",le='
    return MetricsPage(
        "# TYPE process_start_time_seconds gauge\n"
        f"process_start_time_seconds {started}\n"
        f"# TYPE {QUEUE} histogram\n"
        f'{name}"1.0"}} {fast}\n{name}"+Inf"}} {fast + slow}\n'
    )


def test_queued_keys_of_all_controllers_and_priorities_are_one_number() -> None:
    lines = [
        'workqueue_depth{name="w",controller="w",priority="0"} 3',
        'workqueue_depth{name="v",priority=""} 2',
    ]
    assert MetricsPage("\n".join([*lines, "workqueue_depth_other 9"])).queued == 5


def test_findings_before_a_load_are_not_counted_as_of_it() -> None:
    before = Said(overlaps=1, foreign_writes=2, reconciles=100, named=["a", "b"])
    whole = Said(overlaps=1, foreign_writes=3, reconciles=150, named=["a", "b", "c"])
    assert whole.since(before) == Said(overlaps=0, foreign_writes=1, reconciles=50, named=["c"])
    assert whole.since(Said()) == whole
    silent = Said(reason="the journals hold no reconcile")
    assert silent.since(before) == silent


def test_a_second_window_begins_where_the_first_one_ends() -> None:
    window = Window()
    window.add("a", page(1, 100, 0))
    window.begin()
    window.add("a", page(1, 110, 5))
    window.begin()
    window.add("a", page(1, 112, 5))
    assert window.buckets(QUEUE) == {1.0: 2, math.inf: 2}


def test_only_what_was_counted_within_the_window_counts() -> None:
    window = Window()
    window.add("a", page(1, 100, 0))
    window.begin()
    window.add("a", page(1, 110, 5))
    assert window.buckets(QUEUE) == {1.0: 10, math.inf: 15}
    assert observations(window.buckets(QUEUE)) == 15


def test_a_process_that_starts_within_the_window_counts_whole_and_the_dead_one_keeps_its_count() -> None:
    window = Window()
    window.add("a", page(1, 100, 0))
    window.begin()
    window.add("a", page(1, 120, 0))
    window.add("a", page(2, 7, 1))
    assert window.buckets(QUEUE) == {1.0: 27, math.inf: 28}


def test_requests_of_an_api_server_are_those_between_two_scrapes_without_watches() -> None:
    def scrape(count: int) -> ApiPage:
        name = "apiserver_request_duration_seconds_bucket"
        return ApiPage(
            [
                f'{name}{{verb="PATCH",scope="resource",le="0.5"}} {count}',
                f'{name}{{verb="PATCH",scope="resource",le="+Inf"}} {count}',
                f'{name}{{verb="WATCH",le="+Inf"}} 9',
                f'apiserver_request_total{{code="429",verb="PATCH"}} {count}',
                "other_total 5",
            ]
        )

    before, after = scrape(10), scrape(40)
    assert after.since(before) == {"PATCH": {0.5: 30, math.inf: 30}}
    assert after.codes_since(before) == {"429": 30}
