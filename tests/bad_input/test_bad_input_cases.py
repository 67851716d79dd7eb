"""Whatever a person writes wrong is told in a line that names field, value and remedy (`cases.yaml`).

A command is mostly its own start-up: the few that run at the same time shorten the whole by half.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from devcluster.embedded import Fault
from ringleader.testing.single_task import single_task
from tests.manifests import manifest

CASES = Path(__file__).with_name("cases.yaml")
AT_ONCE = 3
Place = Any  # conftest.py: fixtures cannot be imported
Ended = Any

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One command that cannot succeed, and what it must say."""

    run: str
    says: list[str] = []
    prints: list[str] = []
    exit: int = 2
    lines: int = 1
    until: str = ""
    env: dict[str, str] = {}
    faults: list[Fault] = []

    @property
    def shown(self) -> str:
        return " ".join([*(f"{name}={value}" for name, value in self.env.items()), self.run])


@cache
def all_cases() -> dict[str, Case]:
    groups = manifest(CASES)["cases"]
    read = {group: msgspec.convert(cases, list[Case]) for group, cases in groups.items()}
    return {f"{group}: {case.shown}": case for group, cases in read.items() for case in cases}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def endings(
    request: pytest.FixtureRequest, place: Place
) -> AsyncIterator[Mapping[str, Awaitable[Ended]]]:
    """How each of the chosen commands ends; they run in order, a few at a time."""
    chosen = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    cases = {name: case for name, case in all_cases().items() if name in chosen}
    async with single_task(_all_run(place, cases)) as endings:
        yield endings


@asynccontextmanager
async def _all_run(place: Place, cases: Mapping[str, Case]) -> AsyncIterator[Mapping[str, Awaitable[Ended]]]:
    turns = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as tasks:
        running = {
            name: tasks.create_task(_run(place, case, turns), name=name) for name, case in cases.items()
        }
        yield running
        for task in running.values():
            task.cancel()


async def _run(place: Place, case: Case, turns: asyncio.Semaphore) -> Ended:
    async with turns:
        environment = dict(case.env)
        if case.faults:  # they strike an account of its own
            user = f"ada-{abs(hash(case.run))}"
            environment["KUBECONFIG"] = str(await place.plane.kubeconfig_for(user))
            for fault in case.faults:
                await place.plane.faults.add(msgspec.structs.replace(fault, user=user))
        return await place.run(case.run, environment=environment, until=case.until)


@pytest.mark.parametrize("name", list(all_cases()), ids=lambda name: name.replace("python -m ", "")[:100])
async def test_bad_input_is_told_with_field_value_and_remedy(
    name: str, place: Place, endings: Mapping[str, Awaitable[Ended]]
) -> None:
    case, ended = all_cases()[name], await endings[name]
    told = f"exit {ended.code}\n{ended.out}{ended.err}"
    assert ended.code == case.exit, told
    assert "Traceback" not in ended.out + ended.err, told
    assert '"frames"' not in ended.err, told  # a traceback in a log of JSON
    for pattern in case.says:
        assert re.search(place.filled(pattern), ended.err), f"{pattern!r} is not in\n{told}"
    for pattern in case.prints:
        assert re.search(place.filled(pattern), ended.out), f"{pattern!r} is not in\n{told}"
    assert len(ended.err.splitlines()) <= case.lines, told
