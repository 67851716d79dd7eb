"""How a process of ours starts and ends: the event loop, signals, logs, exit codes. Called by every `__main__`.

Exit codes: 0 ended as asked, 1 failure, 2 bad input; a main that returns a number has its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, TextIO

import structlog

from kubeio.errors import InputError, KubeError

FAILURE: Final = 1
BAD_INPUT: Final = 2
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_FORMATS: Final = ("", "console", "json")

log = structlog.get_logger("kubeio")


def configure_logging(*, format: str = "", level: str = "info", stream: TextIO | None = None) -> None:  # noqa: A002
    """Logs of the whole process on stderr: lines for people on a terminal, JSON when piped or asked for.

    Raises: InputError on an unknown *format* or *level*.
    """
    if format not in _FORMATS:
        raise InputError("--log-format", format, "is not a log format", "use json or console")
    if level.lower() not in _LEVELS:
        raise InputError("--log-level", level, "is not a level", f"use one of {', '.join(_LEVELS)}")
    out = stream or sys.stderr
    is_json = format == "json" or (not format and not out.isatty())
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if is_json
        else structlog.dev.ConsoleRenderer(colors=out.isatty() and "NO_COLOR" not in os.environ)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level.lower()]),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(stream=out, level=logging.WARNING)


def run(main: Coroutine[Any, Any, int | None]) -> int:
    """Run *main* until it ends or a signal cancels it; the exit code.

    The first SIGTERM or SIGINT cancels main's task, which may take its time to end; the second ends the process.
    """
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_until_signalled(main)) or 0
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - a person reads this
        return BAD_INPUT
    except (KubeError, ExceptionGroup) as raised:
        return _failed(raised)


def _failed(raised: Exception) -> int:
    error = _first(raised)
    if isinstance(error, InputError):
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - a person reads this
        return BAD_INPUT
    if not isinstance(error, KubeError):
        raise raised
    log.error("ended by a failure", error=str(error), kind=type(error).__name__)
    return FAILURE


def _first(raised: Exception) -> Exception:
    return _first(raised.exceptions[0]) if isinstance(raised, ExceptionGroup) else raised


async def _until_signalled(main: Coroutine[Any, Any, int | None]) -> int | None:
    loop = asyncio.get_running_loop()
    task = loop.create_task(main, name="main")
    signals = (signal.SIGTERM, signal.SIGINT)
    asked = False

    def stop(number: int) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        task.cancel()

    for number in signals:
        loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not asked:
            raise
        return 0
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed: a third of asyncio's cost per request."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
