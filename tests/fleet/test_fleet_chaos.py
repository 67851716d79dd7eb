"""The parts of `make chaos` that can be judged without it, a minute of it, and its three checks seen red."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from devcluster.faults import Fault
from devcluster.real import BinariesMissing, kubernetes_recipe
from devcluster.real.binaries import SERVERS, find_binaries
from tests.fleet.chaos.__main__ import storm_on
from tests.fleet.chaos.author_check import AuthorCheck
from tests.fleet.chaos.faults import FAULTS
from tests.fleet.chaos.soak import Sample, growth_of, growths
from tests.fleet.chaos.storm import Plan, subset, waves
from tests.fleet.chaos.strike import Strike

LABEL = "shard.ringleader.dev/websites"


def website(version: int, *, label: str, worker: str = "", generation: int = 1) -> dict[str, Any]:
    meta = {"uid": "u1", "namespace": "sites", "name": "a", "resourceVersion": str(version)}
    status = {"worker": worker, "observedGeneration": generation} if worker else {}
    return {"metadata": meta | {"labels": {LABEL: label}}, "status": status}


def judged(*versions: dict[str, Any]) -> AuthorCheck:
    check = AuthorCheck(LABEL)
    check.start([versions[0]])
    for each in versions[1:]:
        check.see("MODIFIED", each)
    return check


def test_a_status_by_the_shard_that_the_label_names_is_right() -> None:
    check = judged(website(1, label="a-1"), website(2, label="a-1", worker="a-1"))
    assert (check.judged, check.findings) == (1, [])


def test_a_status_of_a_former_owner_is_found_with_both_names() -> None:
    late = website(4, label="b-1", worker="a-1", generation=2)
    check = judged(website(2, label="a-1", worker="a-1"), website(3, label="b-1", worker="a-1"), late)
    assert check.judged == 1
    (found,) = check.findings
    assert (found.key, found.version, found.author, found.label) == ("sites/a", "4", "a-1", "b-1")
    assert "version 4 has a new status by a-1 under the label b-1" in str(found)


def test_a_status_is_judged_by_the_label_of_its_own_version_and_not_by_that_before() -> None:
    both = website(3, label="b-1", worker="a-1")
    assert len(judged(website(2, label="a-1"), both).findings) == 1


def test_a_label_that_changes_alone_says_nothing_about_an_author() -> None:
    check = judged(website(2, label="a-1", worker="a-1"), website(3, label="b-1", worker="a-1"))
    assert (check.judged, check.findings) == (0, [])


def test_what_happened_before_a_list_is_not_judged() -> None:
    check = judged(website(2, label="a-1"))
    check.start([website(9, label="b-1", worker="a-1")])
    assert check.findings == []
    check.see("MODIFIED", website(10, label="b-1", worker="a-1", generation=2))
    assert len(check.findings) == 1


def test_one_seed_gives_one_order_and_what_strikes_alone_does() -> None:
    faults = list(FAULTS.values())
    orders = [
        [waves(rng, faults, most_at_once=3) for _ in range(200)]
        for rng in (random.Random(1), random.Random(1), random.Random(2))
    ]
    assert orders[0] == orders[1] != orders[2]
    for wave in orders[0]:
        assert len(set(wave)) == len(wave) <= 3
        assert len(wave) == 1 or not any(each.is_alone for each in wave)
    assert {each.name for wave in orders[0] for each in wave} == FAULTS.keys()


def test_a_run_has_a_part_of_the_faults_and_many_runs_have_all() -> None:
    chosen = [subset(random.Random(seed), list(FAULTS.values())) for seed in range(20)]
    assert all(5 < len(each) < len(FAULTS) for each in chosen)
    assert {fault.name for each in chosen for fault in each} == FAULTS.keys()


def test_every_fault_says_what_it_does() -> None:
    assert all(each.does.endswith(".") for each in FAULTS.values())


def series(*values: float, what: str = "threads", pid: int = 1) -> list[Sample]:
    return [Sample(60.0 * index, "replica-1", pid, what, value) for index, value in enumerate(values)]


def test_growth_is_the_slope_times_the_time_without_the_warm_up() -> None:
    leak = growth_of(series(*range(100)))
    assert leak is not None
    assert leak.is_too_much
    assert leak.growth == pytest.approx(79, abs=1.1)
    flat = growth_of(series(*[0.0] * 20, *[9.0, 10.0] * 40))
    assert flat is not None
    assert not flat.is_too_much


def test_a_leak_of_memory_beyond_a_tenth_is_found() -> None:
    (grown,) = growths(series(*(100e6 + 5e5 * minute for minute in range(100)), what="rss_bytes"))
    assert grown.is_too_much
    (flat,) = growths(series(*(100e6 + 5e4 * minute for minute in range(100)), what="rss_bytes"))
    assert not flat.is_too_much


def test_each_process_is_judged_by_itself() -> None:
    after_restart = series(*[5.0] * 60) + series(*[9.0] * 20, pid=2)
    (found,) = growths(after_restart)
    assert found.mean == 5.0
    assert found.growth == pytest.approx(0)
    assert growths(series(*range(5))) == []


def chaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fleet.chaos", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)


def test_an_unknown_fault_is_bad_input() -> None:
    refused = chaos("--faults", "process_killed,flood")
    assert refused.returncode == 2
    assert "--faults: flood is no fault; use some of process_killed" in refused.stderr


def test_no_time_is_bad_input() -> None:
    refused = chaos("--minutes", "0")
    assert refused.returncode == 2
    assert "--minutes: '0' is not a number above 0" in refused.stderr


@pytest.fixture(scope="module")
def _servers() -> None:
    try:
        find_binaries(SERVERS, kubernetes_recipe())
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@pytest.mark.real
@pytest.mark.alone
@pytest.mark.fleet
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("_servers")
class TestOnRealServers:
    def test_a_minute_of_faults_loses_nothing(self) -> None:
        done = chaos("--minutes", "1", "--seed", "1", "--faults", "all")
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.endswith("chaos: nothing was lost\n")

    async def test_without_the_fence_the_author_check_names_an_object(self, tmp_path: Path) -> None:
        """Status writes of a replica that lost its Lease meanwhile are delivered late."""
        plan = Plan(seed=1, seconds=0, faults=[], fenced=False)
        async with storm_on("real", tmp_path, plan) as storm:
            fleet = storm.site.fleet
            for attempt in range(6):
                member = f"replica-{attempt % 4 + 1}"
                await fleet.objects.update_all()
                await Strike(storm.site, random.Random(attempt)).order(
                    Fault(what="hold", user=member, for_s=4 * plan.lease_s)
                )
                with contextlib.suppress(AssertionError):
                    await storm.settle()
                    continue
                break
            storm.report.read()
            assert storm.report.findings
            assert "has a new status by replica-" in str(storm.report.findings[0])
