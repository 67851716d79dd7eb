"""Logging of every process of ours: structlog to stderr, one JSON document per line or columns for people.

Logging never waits: a thread writes the lines, and lines that are not read in time are dropped
(`kubeio.program.log_writer`). Configured once per process.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Final, TextIO

import structlog
from structlog.typing import Processor

from kubeio.errors import InputError
from kubeio.program.log_writer import LogWriter

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily

FORMATS: Final = ("auto", "json", "console")
LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}

_FRAMES: Final = structlog.processors.ExceptionRenderer(
    # never the variables of the frames: they hold objects, and credentials
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


AT_EXIT_S: Final = 1.0
"""Time for the last lines of a process."""
_writers: list[LogWriter] = []
"""The newest last; the others may have lines still."""


def configure_logging(*, format: str = "auto", level: str = "info") -> None:  # noqa: A002 - the flag's name
    """Send our events, and warnings of the libraries, to stderr. `auto` or empty: console on a terminal, else JSON.

    Raises: InputError on an unknown *format* or *level*.
    """
    if format and format not in FORMATS:
        raise InputError("--log-format", format, "is not a log format", "use json, console or auto")
    if level.lower() not in LEVELS:
        raise InputError("--log-level", level, "is not a level", f"use {', '.join(LEVELS)}")
    is_json = format == "json" or (format != "console" and not sys.stderr.isatty())
    threshold = LEVELS[level.lower()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: list[Processor] = (
        [_FRAMES, structlog.processors.JSONRenderer()]
        if is_json
        else [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty() and "NO_COLOR" not in os.environ,
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    )
    out = _out()
    structlog.configure(
        processors=[*shared, _name_logger, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=partial(_Logger, out),
        cache_logger_on_first_use=False,
    )
    _configure_libraries(out, shared, renderer, max(threshold, logging.WARNING))


def write_text(text: str) -> None:
    """Put *text*, stacks for example, behind the lines logged so far."""
    (_writers[-1] if _writers else sys.stderr).write(text)


def drain(*, within_s: float = AT_EXIT_S) -> bool:
    """Wait until every line is written, *within_s* at most; whether they are. `os._exit` waits for none."""
    return all(writer.drain(within_s=within_s) for writer in _writers)


def watch_dropped(registry: CollectorRegistry) -> None:
    """Count the dropped lines in *registry*."""
    from prometheus_client.core import CounterMetricFamily

    from kubeio.fast_metrics import FastCollector

    def family() -> CounterMetricFamily:
        return CounterMetricFamily("ringleader_dropped_log_lines", "Log lines that were not read in time")

    def add_samples(family: CounterMetricFamily) -> None:
        family.add_metric((), sum(writer.dropped for writer in _writers))

    registry.register(FastCollector(family, add_samples))


def _out() -> LogWriter | TextIO:
    """Output for lines: a new writer for stderr, or stderr itself if it has no descriptor, as in tests."""
    try:
        fd = os.dup(sys.stderr.fileno())
    except (AttributeError, OSError):
        return sys.stderr
    if not _writers:
        atexit.register(drain)
    writer = LogWriter(fd, on_resumed=_log_dropped)
    _writers.append(writer)
    return writer


def _log_dropped(lines: int) -> None:
    structlog.get_logger("kubeio").warning(
        "log lines dropped", lines=lines, remedy="the reader of this process' stderr was too slow, or gone"
    )


class _Logger:
    """Writes to *out*, whole lines, and remembers which package asked for it."""

    def __init__(self, out: LogWriter | TextIO, name: str = "") -> None:
        self._out = out
        self.name = name

    def msg(self, message: str) -> None:
        self._out.write(f"{message}\n")
        self._out.flush()

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


def _name_logger(
    logger: object, method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    name = getattr(logger, "name", "")
    if name:
        event["logger"] = name
    return event


def _configure_libraries(
    out: LogWriter | TextIO, shared: list[Processor], renderer: list[Processor], level: int
) -> None:
    """asyncio, aiohttp and others log through the standard library: same form, from warnings on."""
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
