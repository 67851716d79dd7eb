"""How the suite is dealt out to workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import distribution
from tests.distribution import group_of, longest_first

TESTS = Path(__file__).parent


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/ring/test_ring_arcs.py::test_a[x]", "tests/ring/test_ring_arcs.py"),
        ("tests/contract/test_contract_lists.py::test_a[real]", "tests/contract[real]"),
        ("tests/contract/test_contract_lists.py::test_a[embedded-true]", "tests/contract[embedded]"),
        ("tests/fleet/test_fleet_outages.py::test_a[real]", "tests/fleet/test_fleet_outages.py[real]"),
        ("tests/kubeio/watches/test_watch_on_planes.py::test_a[real-False]", "tests/kubeio[real]"),
        ("tests/kubeio/watches/test_watch_session.py::test_a", "tests/kubeio/watches/test_watch_session.py"),
    ],
)
def test_tests_that_share_a_control_plane_go_to_one_worker(nodeid: str, group: str) -> None:
    assert group_of(nodeid) == group


def test_the_longest_begin_and_an_unknown_one_is_not_left_for_the_end() -> None:
    rank = longest_first(["quick", "slow", "new", "slow"], {"quick": 1.0, "slow": 100.0})
    assert sorted(rank, key=rank.__getitem__) == ["slow", "new", "quick"]


def test_what_is_kept_are_the_seconds_of_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    durations = tmp_path / "durations.json"
    monkeypatch.setattr(distribution, "DURATIONS", durations)
    monkeypatch.setattr(distribution, "ROOT", tmp_path)
    (tmp_path / "there.py").touch()
    durations.write_text('{"tests/a.py": 9.0, "there.py[real]": 3.0, "gone.py[real]": 4.0}')
    distribution.save({"tests/a.py::test_long": 2.0, "tests/a.py::test_short": 0.5, "tests/b.py::test": 1.0})
    assert distribution.recorded() == {"tests/a.py": 2.5, "tests/b.py": 1.0, "there.py[real]": 3.0}


def test_unit_tests_are_those_without_server_and_process(request: pytest.FixtureRequest) -> None:
    assert distribution.is_unit(request.node)
    units = {item.path.relative_to(TESTS).as_posix(): item for item in request.session.items}
    marked = {path: item.get_closest_marker("unit") is not None for path, item in units.items()}
    assert not marked.get("sharder/io/test_sharder_moving.py", False), "it needs a control plane"
    assert not marked.get("sharder/io/test_sharder_storms.py", False), (
        "it needs a control plane behind a proxy"
    )
    assert not marked.get("kubeio/program/test_runtime.py", False), "it starts processes"
