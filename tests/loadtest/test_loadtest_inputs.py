"""What a person writes for a load test: scenario, service level, template; and the plan that is made of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeio.errors import InputError
from kubeio.resource import ApiResource
from loadtest.inputs.scenario import ACTIONS, Scenario, built_in, read_scenario, read_schedules
from loadtest.inputs.slo import (
    UNITS,
    Line,
    Measured,
    has_failed_clearly,
    has_passed,
    judge,
    read_slo,
    shown_as,
)
from loadtest.inputs.template import RUN_LABEL, Template, created_name, prefilled_name, read_template
from loadtest.pacing import Pacing
from loadtest.plan import LoadPlan, decode, encode

WEBSITE = {"apiVersion": "example.com/v1", "kind": "Website", "metadata": {"name": "site"}}


def scenario(**fields: object) -> Scenario:
    return Scenario("test", fields, where="test.yaml")


# -- scenario -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", built_in())
def test_every_built_in_scenario_can_be_scheduled_and_says_what_it_does(name: str) -> None:
    found = read_scenario(name)
    schedule = found.schedule(duration_s=100, rate=50)
    assert found.description
    assert 0 < schedule.peak_rate <= 50
    assert all(0 < action.at < 100 for action in schedule.actions)


def test_several_scenarios_are_scheduled_in_their_order_and_none_twice() -> None:
    found = read_schedules(["kill", "steady"], duration_s=10, rate=5)
    assert [schedule.scenario for schedule in found] == ["kill", "steady"]
    with pytest.raises(InputError, match="stands twice"):
        read_schedules(["kill", "steady", "kill"], duration_s=10, rate=5)


def test_shares_and_durations_become_seconds_and_operations_per_second() -> None:
    written = scenario(
        load=[{"at": "0%", "rate": "10%"}, {"at": "20s", "rate": 30}],
        actions=[{"at": "50%", "do": "freeze", "for": "1m"}, {"at": 5, "do": "kill", "replica": "replica-2"}],
    )
    schedule = written.schedule(duration_s=100, rate=50)
    assert [(point.at, point.rate) for point in schedule.points] == [(0, 5), (20, 30)]
    assert [(a.at, a.do, a.replica, a.for_s) for a in schedule.actions] == [
        (5, "kill", "replica-2", 0),
        (50, "freeze", "", 60),
    ]


def test_the_rate_is_linear_between_points_and_zero_after_the_end() -> None:
    load = [{"at": "0%", "rate": "0%"}, {"at": "50%", "rate": "100%"}]
    schedule = scenario(load=load).schedule(duration_s=100, rate=40)
    assert [schedule.rate_at(t) for t in (0, 25, 50, 99, 100)] == [0, 20, 40, 40, 0]
    assert schedule.wanted_operations == pytest.approx(40 * 25 + 40 * 50, rel=0.01)


def test_what_is_asked_for_has_the_bursts_and_not_the_first_two_seconds() -> None:
    burst = [{"at": "50%", "do": "burst", "objects": 7}]
    assert scenario(actions=burst).schedule(duration_s=12, rate=10).wanted_operations == pytest.approx(107)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 1000)), min_size=1, max_size=5))
def test_no_rate_lies_outside_what_the_points_say(points: list[tuple[float, float]]) -> None:
    schedule = scenario(load=[{"at": at, "rate": rate} for at, rate in points]).schedule(
        duration_s=100, rate=1
    )
    rates = [rate for _, rate in points]
    for t in range(100):
        assert min(rates) - 1e-9 <= schedule.rate_at(t) <= max(rates) + 1e-9


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"operations": {"creat": 1}}, "did you mean create"),
        ({"operations": {"create": 0}}, "above 0"),
        ({"operations": {"create": -1}}, "from 0 on"),
        ({"load": []}, "is empty"),
        ({"load": [{"at": "x"}]}, "is not a duration"),
        ({"load": {"at": 1}}, "is not a list"),
        ({"actions": [{"do": "kill"}]}, "say|write when"),
        ({"actions": [{"at": 1, "do": "join", "replica": "a"}]}, "not a field"),
        ({"actions": [{"at": 1, "do": "burst", "objects": 0}]}, "from 1 on"),
        ({"actions": ["kill"]}, "is not a mapping"),
    ],
)
def test_a_scenario_that_cannot_be_run_is_refused_by_field(fields: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        scenario(**fields)
    assert refused.value.field.startswith("test.yaml")


def test_the_page_of_the_load_test_names_every_scenario_and_action() -> None:
    page = (Path(__file__).parents[2] / "docs" / "load-test.md").read_text()
    assert not [name for name in (*built_in(), *ACTIONS) if f"`{name}`" not in page]
    assert not [name for name in UNITS if name != "achieved" and f"`{name}`" not in page]


# -- plan ---------------------------------------------------------------------------------------------------


def test_a_plan_survives_the_way_to_a_worker() -> None:
    schedule = scenario(actions=[{"at": 1, "do": "burst", "objects": 7}]).schedule(duration_s=10, rate=30)
    plan = LoadPlan("r1", "/apis/x", dict(WEBSITE), 5, schedule)
    assert decode(encode(plan)) == plan
    assert plan.users_at(0) * plan.per_user >= 30
    assert plan.users_at(10) == 0


def instants_of(
    users: int, per_s: float, *, until: float, crowded_until: float = 0.0, run: str = "r"
) -> list[float]:
    """When *users* act; a server answers nobody until *crowded_until*."""
    found = []
    for index in range(users):
        pacing, now = Pacing(per_s, seed=f"{run}/0/{index}"), 0.0
        while (now := max(now + pacing.wait_s(now), crowded_until)) < until:
            found.append(now)
            now += 0.01
    return sorted(found)


def test_users_that_once_waited_together_do_not_act_together_ever_after() -> None:
    instants = instants_of(48, 2.0, until=60.0, crowded_until=3.0)
    assert len(instants) == pytest.approx(60 * 48 * 2.0, rel=0.05), "what was late is caught up with"
    counts = Counter(int(instant / 0.02) for instant in instants if instant > 8.0)
    in_20_ms = [counts[number] for number in range(400, 3000)]
    mean = sum(in_20_ms) / len(in_20_ms)
    variance = sum((count - mean) ** 2 for count in in_20_ms) / len(in_20_ms)
    assert 0.8 < variance / mean < 1.2, "as of independent clients"


def test_the_same_load_at_another_rate_is_the_same_load_stretched() -> None:
    slow, fast = (instants_of(1, per_s, until=20.0 / per_s) for per_s in (0.5, 1.0))
    assert [instant * 0.5 for instant in slow[:9]] == pytest.approx(fast[:9], abs=0.1)
    assert instants_of(1, 1.0, until=20.0, run="another") != fast


@pytest.mark.parametrize("rate", [0.3, 2.0, 12.3, 57.6, 1234.5])
def test_the_users_make_the_rate_that_was_asked_for(rate: float) -> None:
    plan = LoadPlan("r1", "/apis/x", dict(WEBSITE), 5, scenario().schedule(duration_s=10, rate=rate))
    assert plan.users_at(5) * plan.per_user == pytest.approx(rate)


def test_a_user_far_behind_gives_up_what_it_owes() -> None:
    pacing = Pacing(2.0, seed="r/0/0")
    pacing.wait_s(0.0)
    assert sum(pacing.wait_s(1000.0) == 0.0 for _ in range(100)) < 5


# -- template -----------------------------------------------------------------------------------------------


def test_an_object_has_the_runs_label_its_own_name_and_filled_places() -> None:
    template = Template(
        {
            **WEBSITE,
            "metadata": {"name": "site", "namespace": "elsewhere", "labels": {"a": "${name}"}},
            "spec": {"html": "${name} ${version}", "list": [{"deep": "${version}"}], "number": 3},
            "status": {"left": "out"},
        },
        where="t.yaml",
    )
    made = template.object("site-r1-1", run="r1")
    assert made["metadata"] == {"name": "site-r1-1", "labels": {"a": "site-r1-1", RUN_LABEL: "r1"}}
    assert made["spec"] == {"html": "site-r1-1 0", "list": [{"deep": "0"}], "number": 3}
    assert "status" not in made
    assert template.change("x", 7) == {"spec": {"html": "x 7", "list": [{"deep": "7"}], "number": 3}}


def test_an_update_of_a_template_without_a_version_changes_an_annotation_only() -> None:
    template = Template({**WEBSITE, "spec": {"html": "fixed"}}, where="t.yaml")
    assert not template.changes_spec
    assert list(template.change("x", 7)) == ["metadata"]


def test_generate_name_begins_the_names_too() -> None:
    assert Template({**WEBSITE, "metadata": {"generateName": "site-"}}, where="t.yaml").prefix == "site"


@pytest.mark.parametrize("name", ["", "Site", "-", "x" * 25, 5])
def test_a_name_that_cannot_begin_others_is_refused(name: object) -> None:
    with pytest.raises(InputError, match=r"metadata\.name"):
        Template({**WEBSITE, "metadata": {"name": name}}, where="t.yaml")


def test_the_examples_template_is_that_of_the_examples_kind() -> None:
    assert read_template(None).fits(ApiResource("example.com", "v1", "websites", "Website"))
    assert read_template(None).changes_spec


def test_names_of_workers_runs_and_those_that_existed_before_never_meet() -> None:
    names = [created_name("p", run, worker, n) for run in "ab" for worker in ("w1", "w2") for n in range(3)]
    names += [prefilled_name("p", run, n) for run in "ab" for n in range(3)]
    assert len(set(names)) == len(names)


# -- service level ------------------------------------------------------------------------------------------


def verdict(limits: dict[str, float], **measured: Measured) -> dict[str, Line]:
    return {line.name: line for line in judge(limits, measured)}


def test_a_line_is_held_up_to_its_limit() -> None:
    for value, passed in ((0.9, True), (1.0, True), (1.01, False)):
        assert verdict({"ready": 1.0}, ready=Measured(value, 10))["ready"].passed is passed


def test_the_share_of_operations_is_a_lower_bound() -> None:
    assert verdict({"achieved": 0.9}, achieved=Measured(0.95))["achieved"].passed
    assert not verdict({"achieved": 0.9}, achieved=Measured(0.85))["achieved"].passed


def test_what_was_not_measured_fails_unless_it_does_not_exist_there() -> None:
    lines = judge({"ready": 1.0, "overlaps": 0.0}, {"overlaps": Measured(None, is_excused=True)})
    assert [(line.name, line.passed) for line in lines] == [("ready", False), ("overlaps", None)]


def test_a_run_that_measured_nothing_is_never_green() -> None:
    assert not has_passed([])
    assert not has_passed(judge({"overlaps": 0.0}, {"overlaps": Measured(None, is_excused=True)}))
    assert has_passed(judge({"overlaps": 0.0}, {"overlaps": Measured(0, 5)}))


@pytest.mark.parametrize(
    ("changed_s", "achieved", "is_clear"),
    [(4, 1.0, False), (14, 1.0, False), (16, 1.0, True), (300, 0.55, False)],
)
def test_only_a_load_that_got_through_fails_clearly(
    changed_s: float, achieved: float, is_clear: bool
) -> None:
    limits = {"changed": 5.0, "achieved": 0.9}
    lines = judge(limits, {"changed": Measured(changed_s, 9), "achieved": Measured(achieved, 9)})
    assert has_failed_clearly(lines) is is_clear


def test_the_default_service_level_names_every_line() -> None:
    assert list(read_slo(None)) == ["achieved", *(name for name in UNITS if name != "achieved")]


def test_a_file_says_which_lines_count(tmp_path: Path) -> None:
    path = tmp_path / "slo.yaml"
    path.write_text("ready: 250ms\nfailures: 1%\noverlaps: 2\n")
    assert read_slo(path) == {"achieved": 0.9, "ready": 0.25, "failures": 0.01, "overlaps": 2.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [("ready: -1", "duration"), ("failures: 0.1", "percentage"), ("overlaps: none", "number")],
)
def test_a_limit_of_another_unit_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "slo.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_slo(path)


def test_values_are_shown_in_their_unit() -> None:
    assert [shown_as(0.25, "s"), shown_as(2.5, "s"), shown_as(0.001, "%"), shown_as(1200, "")] == [
        "250 ms",
        "2.50 s",
        "0.1 %",
        "1,200",
    ]
