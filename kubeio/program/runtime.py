"""The outermost part of a process: event loop, signals, exit code.

Owns the meaning of signals and the exit code of each failure; knows nothing of what runs.

Exit codes: 0 clean; 2 bad input, one line; an exception that has an `exit_code` chooses its own;
1 for every other failure.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from kubeio.errors import InputError, KubeError, leaves
from kubeio.program.failures import exit_code_of, failure, own_exit_code, unforeseen
from kubeio.program.logs import configure_logging, drain

__all__ = ["configure_logging", "run"]

_log = structlog.get_logger("kubeio")
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def run(main: Coroutine[Any, Any, int | None]) -> int:
    """Run *main* to its end and give the exit code of the process.

    The first SIGTERM or SIGINT cancels *main*, which may clean up as long as it needs; a second one ends the
    process at once. *main* returns the exit code (None: 0), also after a signal.
    """
    if not structlog.is_configured():
        configure_logging()
    stop = _Stop()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_supervised(main, stop)) or 0
    except asyncio.CancelledError:
        return 0 if stop.signal is not None else _failed(RuntimeError("cancelled, but not by a signal"))
    except KeyboardInterrupt:  # before the handlers stood
        return 128 + signal.SIGINT
    except Exception as error:
        return _failed(error)


class _Stop:
    """Stop requests by signals: the first one cancels the task, a second one ends the process at once."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def ask(self, asked: signal.Signals, task: asyncio.Task[Any]) -> None:
        if self.signal is not None:
            _log.error("stopped at once by a second signal", signal=asked.name)
            drain()
            os._exit(128 + asked)
        self.signal = asked
        _log.info("stopping", signal=asked.name)
        task.cancel()


async def _supervised(main: Coroutine[Any, Any, int | None], stop: _Stop) -> int | None:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("not in a task")
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.ask, number, task)
    try:
        return await main
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _failed(error: BaseException) -> int:
    """Log the reason for the end of the process; its exit code."""
    code = exit_code_of(error)
    causes = list(leaves(error))
    for cause in causes:
        if isinstance(cause, InputError):
            print(f"error: {cause}", file=sys.stderr)  # noqa: T201  # for a person at the command line
            return code
    if unforeseen(error):
        _log.error("failed", error=str(error), exit_code=code, exc_info=error)
    elif reasons := [str(cause) for cause in causes if own_exit_code(cause) is not None]:
        _log.error("stopped", reason=reasons[0], exit_code=code)
    else:
        for message in {failure(cause).message: None for cause in causes if isinstance(cause, KubeError)}:
            _log.error("failed", error=message)  # an answer of the API, not a fault of ours
    return code
