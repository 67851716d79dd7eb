"""Fifty seeds of the simulation: those that failed once, and the first ones."""

from __future__ import annotations

import pytest

from tests.simulation.command import simulate

SEEDS = 50
FAILED_ONCE = (
    "280",
    "525",
    "1703",
    "1778",
    (
        "2140 server_restarted@45.18#505412 ring_edited@81.60#779849 admission_switched@139.88#250042 "
        "process_copied@159.45#656717 namespace_recreated@163.75#824588 clock_jumped@211.97#882965 "
        "ring_edited@214.83#817589 ring_definition_changed@215.48#772082"
    ),
    "2227",
    "2276",
    "2394",
    "3284",
    "3332",
    "3453",
    "4734",
    "4923",
    "6290",
    "6363",
    "9661",
    "11015",
    "19015",
    (
        "20267 owner_forged@141.82#30387 ring_deleted_while_objects_land@160.11#181075 "
        "admission_switched@177.32#976202"
    ),
    (
        "24679 request_late@56.26#581167 process_terminated@82.50#492767 process_terminated@98.94#200959 "
        "resource_removed_while_objects_land@124.04#69778 leader_killed@139.74#262609"
    ),
    "21051 ring_deleted_while_objects_land@216.44#484061 definition_recreated@221.11#830051",
    "24758",
    "24822",
    "5208",
    "1345",
    "14 thread_frozen@94.36#526145 admission_switched@153.14#591309 server_lagging@200.34#241895",
    "183",
    "272",
    "3708 ring_deleted@35.47#292637 etcd_restored@52.33#263233 etcd_restored@89.32#737593",
    "3 labels_forged_at_rest@108.23#540432",
    "47 labels_forged_at_rest@219.11#426758 labels_forged_at_rest@239.49#384891",
    "17",
    "40",
    "460",
)
"""Each with the faults that it takes if those are few. docs/testing-results.md says what they found."""


@pytest.mark.parametrize("seed_and_faults", FAILED_ONCE, ids=lambda value: value.split()[0])
def test_what_failed_once_passes(seed_and_faults: str) -> None:
    seed, _, faults = seed_and_faults.partition(" ")
    done = simulate("--no-shrink", "--seed", seed, *(("--faults", faults) if faults else ()))
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.mark.timeout(600)
def test_the_first_seeds_pass() -> None:
    first = SEEDS - len(FAILED_ONCE)
    done = simulate("--seeds", str(first), "--no-shrink")
    assert done.returncode == 0, done.stdout[-6000:]
    assert f"{first} seeds from 1 on" in done.stdout
    assert ": 0 failed" in done.stdout
