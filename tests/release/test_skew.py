"""Two versions side by side: the sharder of one, the replicas of the other, with a handoff and a fail-over.

The CustomResourceDefinition is that of the sharder's version: both are upgraded before the replicas (docs/day2.md).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ringleader.testing.client import IndependentClient
from ringleader.testing.commands import WAIT_MS, FleetSpec
from ringleader.testing.fleet import Fleet, open_fleet
from ringleader.testing.plugin import plane_context
from ringleader.testing.prerequisites import install_definitions
from tests.fleet.judging import judge
from tests.release.former_version import ROOT, VARIABLE, former_commit, install_former

pytestmark = [pytest.mark.fleet, pytest.mark.slow, pytest.mark.timeout(900)]
OBJECTS = 60


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The former version's Python."""
    commit = former_commit()
    if commit is None:
        pytest.skip(
            f"the former version is not in this clone: git fetch --unshallow --tags, or set {VARIABLE}"
        )
    return install_former(commit, tmp_path_factory.mktemp("former"))


def _said(python: Path | str, *arguments: str) -> str:
    done = subprocess.run([python, "-P", *arguments], capture_output=True, text=True, check=True, cwd="/")
    return done.stdout


@asynccontextmanager
async def _fleet(tmp_path: Path, *, sharder: str, replicas: str) -> AsyncIterator[Fleet]:
    """Three replicas that run *replicas* and two sharders that run *sharder*, with that one's definition of rings."""
    definition = tmp_path / "crd.yaml"
    definition.write_text(_said(sharder, "-m", "ringleader", "crds"))
    spec = FleetSpec(
        lease_s=2, environment={WAIT_MS: "0-50"}, sharder_python=sharder, shard_python=replicas, patience_s=90
    )
    async with plane_context(tmp_path / "plane", is_real=False) as plane:
        async with IndependentClient(await plane.kubeconfig_for("observer")) as client:
            await install_definitions(client, [definition])
        async with open_fleet(plane, tmp_path / "fleet", spec=spec) as fleet:
            await fleet.start(replicas=3)
            await fleet.objects.create_many(OBJECTS)
            await fleet.wait_converged()
            yield fleet


def test_the_former_version_is_imported_from_its_own_environment(former: Path) -> None:
    for module in ("sharder", "shard_controller", "kubeio", "ring"):
        path = Path(_said(former, "-c", f"import {module}; print({module}.__file__)").strip())
        assert path.is_relative_to(former.parents[1]), path
        assert not path.is_relative_to(ROOT)


@pytest.mark.parametrize("older", ["replicas", "sharder"])
async def test_versions_one_apart_hand_over_and_fail_over(former: Path, tmp_path: Path, older: str) -> None:
    old, new = str(former), sys.executable
    sharder, replicas = (old, new) if older == "sharder" else (new, old)
    async with _fleet(tmp_path, sharder=sharder, replicas=replicas) as fleet:
        since = fleet.clock.now()
        await fleet.join()
        evidence = await judge(fleet)
        assert evidence.movement(since=since, until=fleet.clock.now()).moved > 0, "nothing was handed over"
        await fleet.kill("replica-1")
        await judge(fleet)
        assert "replica-1" not in fleet.lives().values()
        await fleet.kill_leader()
        await fleet.leave("replica-2")
        await judge(fleet)
        assert "replica-2" not in fleet.lives().values()
