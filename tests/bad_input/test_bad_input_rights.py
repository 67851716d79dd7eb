"""A right that is missing, under the real RBAC authorizer: the message names the rule that grants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from devcluster.real import BinariesMissing, RealPlane, real_plane
from ringleader.testing.single_task import single_task
from tests.warm_python import warm_python

ROOT = Path(__file__).parents[2]
CONTROLLER = f"{ROOT / 'examples' / 'website' / 'controller.py'}:websites"

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def account(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """The kubeconfig of somebody who may do nothing."""
    try:
        plane_in = real_plane(tmp_path_factory.mktemp("plane"), controller_manager=False)
        async with single_task(plane_in) as plane:
            assert isinstance(plane, RealPlane)
            yield await plane.kubeconfig_for("ada", admin=False)
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@pytest.mark.parametrize(
    ("command", "verb"),
    [
        (["ringleader", "status"], "list"),
        (["ringleader", "status", "-w"], "list"),
        (["ringleader", "list", "-A", "-o", "csv"], "list"),
        (["ringleader", "describe", "website/blog"], "list"),
        (["ringleader", "cordon", "web-0"], "list"),
        (["ringleader", "dashboard", "websites"], "list"),
        (["sharder", "--log-format", "console"], "watch"),
        (["shard_controller", "run", CONTROLLER, "--log-format", "console"], "get"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
async def test_a_missing_right_is_told_with_its_rule(account: Path, command: list[str], verb: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(warm_python(), "-m", *command, "--kubeconfig", str(account)),
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(), 30)
    told = err.decode()
    assert process.returncode == 1, told
    assert f'"ada" may not {verb} controllerrings.ringleader.dev in the whole cluster' in told
    assert "this rule in a ClusterRole bound to it grants that" in told
    assert f'{{apiGroups: ["ringleader.dev"], resources: ["controllerrings"], verbs: ["{verb}"]}}' in told
    assert len(told.splitlines()) == 1
