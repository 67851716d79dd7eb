"""A load on a cluster that is not its own: what it leaves behind, also when it is interrupted, is nothing."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from devcluster.embedded import EmbeddedPlane, embedded_plane
from devcluster.faults import Fault
from loadtest.inputs.template import RUN_LABEL
from ringleader.testing.commands import WEBSITES, FleetSpec
from ringleader.testing.fleet import Fleet, open_fleet
from ringleader.testing.single_task import single_task

pytestmark = [pytest.mark.fleet, pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="module")]
SLO = "assigned: 10s\nready: 20s\nfailures: 1%\nunowned: 0\noverlaps: 0\n"
RUN = re.compile(r"^run ([0-9a-f]{8}):", re.MULTILINE)
PATIENCE_S = 60.0
USER = "admin"
"""The load's account: that of the plane's kubeconfig."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """A fleet that somebody else runs, with one object of theirs."""
    folder = tmp_path_factory.mktemp("cluster")
    async with (
        single_task(embedded_plane(folder / "plane", faults=True)) as plane,
        single_task(open_fleet(plane, folder / "fleet", spec=FleetSpec(sharders=1))) as fleet,
    ):
        await fleet.start(replicas=2)
        await fleet.objects.create("theirs")
        yield fleet


class Command:
    """A running `ringleader loadtest`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said = ""

    async def wait_says(self, text: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while text not in self.said:
                line = await self.process.stderr.readline()  # type: ignore[union-attr] # a pipe
                assert line, f"it ended without {text!r}: {self.said}"
                self.said += line.decode()

    async def wait(self) -> tuple[int, str]:
        """Exit code and stdout."""
        async with asyncio.timeout(PATIENCE_S):
            out, errors = await self.process.communicate()
        self.said += errors.decode()
        return self.process.returncode or 0, out.decode()

    @property
    def run(self) -> str:
        found = RUN.search(self.said)
        assert found, self.said
        return found[1]


async def start(fleet: Fleet, folder: Path, *arguments: str) -> Command:
    command = [sys.executable, "-m", "ringleader", "loadtest", *arguments]
    command += ["--kubeconfig", str(fleet.plane.kubeconfig), "-n", fleet.spec.namespace]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    return Command(process)


async def load(fleet: Fleet, folder: Path, duration: str) -> Command:
    (folder / "slo.yaml").write_text(SLO)
    arguments = ["--objects", "50", "--rate", "20", "--duration", duration, "--slo", "slo.yaml", "-o", "json"]
    return await start(fleet, folder, "steady", *arguments)


async def names(fleet: Fleet, run: str = "") -> list[str]:
    selector = f"{RUN_LABEL}={run}" if run else ""
    found = await fleet.client.list_all(WEBSITES, namespace=fleet.spec.namespace, selector=selector)
    return [item["metadata"]["name"] for item in found]


async def wait_gone(fleet: Fleet, run: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await names(fleet, run):  # noqa: ASYNC110 - another process deletes them
            await asyncio.sleep(0.2)


async def test_a_run_measures_the_fleet_that_is_there_and_removes_its_objects_only(
    fleet: Fleet, tmp_path: Path
) -> None:
    command = await load(fleet, tmp_path, "6s")
    code, out = await command.wait()
    assert code == 0, command.said
    report: dict[str, Any] = json.loads(out)
    verdict = {line["name"]: line["passed"] for line in report["verdict"]}
    assert verdict == {
        "assigned": True,
        "ready": True,
        "failures": True,
        "overlaps": None,
        "unowned": True,
        "achieved": True,
    }
    assert await names(fleet) == ["theirs"]


async def test_requests_that_the_server_puts_off_are_sent_again_and_counted_apart(
    fleet: Fleet, tmp_path: Path
) -> None:
    command = await load(fleet, tmp_path, "8s")
    await command.wait_says("load began")
    assert isinstance(fleet.plane, EmbeddedPlane)
    throttled = Fault(
        what="error",
        user=USER,
        verb="patch",
        resource="websites.example.com",
        code=429,
        count=5,
        retry_after_s=1,
    )
    await fleet.plane.faults.add(throttled)
    code, out = await command.wait()
    assert code == 0, command.said
    report: dict[str, Any] = json.loads(out)
    assert report["requests"]["update (429)"]["requests"] == 5
    assert report["requests"]["update"]["failures"] == 0


async def test_ctrl_c_in_the_middle_of_the_load_removes_the_objects(fleet: Fleet, tmp_path: Path) -> None:
    command = await load(fleet, tmp_path, "60s")
    await command.wait_says("load began")
    command.process.send_signal(signal.SIGINT)
    code, _ = await command.wait()
    assert code == 130, command.said
    assert "none is left" in command.said
    assert await names(fleet) == ["theirs"]


async def test_a_second_ctrl_c_ends_the_command_and_not_the_removal(fleet: Fleet, tmp_path: Path) -> None:
    command = await load(fleet, tmp_path, "60s")
    await command.wait_says("load began")
    command.process.send_signal(signal.SIGINT)
    await command.wait_says("removing the objects")
    command.process.send_signal(signal.SIGINT)
    async with asyncio.timeout(PATIENCE_S):
        assert await command.process.wait() == 130
    await wait_gone(fleet, command.run)
    assert await names(fleet) == ["theirs"]


async def test_what_a_killed_run_left_goes_by_its_id(fleet: Fleet, tmp_path: Path) -> None:
    command = await load(fleet, tmp_path, "60s")
    await command.wait_says("load began")
    command.process.kill()
    await command.process.wait()
    assert len(await names(fleet, command.run)) >= 50
    other = await start(fleet, tmp_path, "teardown", "--run", "0" * 8)
    assert await other.wait() == (0, "")
    assert len(await names(fleet, command.run)) >= 50
    removal = await start(fleet, tmp_path, "teardown", "--run", command.run)
    assert (await removal.wait())[0] == 0, removal.said
    assert await names(fleet) == ["theirs"]
