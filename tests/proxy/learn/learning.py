"""Runs `ringleader proxy --learn` as a process, as a person does."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

CONTROLLERS = Path(__file__).parent / "controllers"
Report = dict[str, Any]


async def learn(
    kubeconfig: Path, command: Sequence[str], while_it_runs: Callable[[], Awaitable[object]] | None = None
) -> Report:
    """The report about *command*: of a run that lasts as long as *while_it_runs*, or until *command* ends."""
    own = ("--learn", "--output", "json", "--kubeconfig", str(kubeconfig), "--stop-within", "5s")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy", *own, "--", *command, stdout=-1, stderr=-1
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            while b"learning" not in (line := await process.stderr.readline()):
                assert line, "it ended before it learned"
        reading = asyncio.create_task(process.communicate())
        if while_it_runs is not None:
            await while_it_runs()
            process.send_signal(signal.SIGINT)
        async with asyncio.timeout(60):
            output, log = await reading
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode in (0, 1), log.decode()[-3000:]
    report: Report = json.loads(output)
    assert process.returncode == (0 if report["verdict"].startswith("yes") else 1)
    return report


def texts(report: Report, letter: str) -> list[str]:
    """Texts of the findings with this letter."""
    return [each["text"] for each in report["findings"] if each["letter"] == letter]


async def until(condition: Callable[[], Awaitable[bool]], *, within_s: float = 40) -> None:
    """Return when *condition*, of a server, is true."""
    async with asyncio.timeout(within_s):
        while not await condition():  # noqa: ASYNC110 - it happens on a server
            await asyncio.sleep(0.1)
