"""How every process of ours logs: structlog to stderr, one JSON document per line or columns for people.

Called once per process by `kubeio.program.runtime` or by a command's own set-up.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

import structlog
from structlog.typing import Processor

from kubeio.errors import InputError

FORMATS: Final = ("auto", "json", "console")
LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}

_FRAMES: Final = structlog.processors.ExceptionRenderer(
    # never the variables of the frames: they hold objects, and credentials
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


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
    structlog.configure(
        processors=[*shared, _name_logger, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=_StderrLoggers(),
        cache_logger_on_first_use=False,
    )
    _hear_libraries(shared, renderer, max(threshold, logging.WARNING))


class _NamedLogger(structlog.PrintLogger):
    """Writes to stderr, and remembers which package asked for it."""

    def __init__(self, name: str) -> None:
        super().__init__(sys.stderr)
        self.name = name


class _StderrLoggers:
    """Makes a logger for `structlog.get_logger(name)`."""

    def __call__(self, *names: str) -> _NamedLogger:
        return _NamedLogger(names[0] if names else "")


def _name_logger(
    logger: object, method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    name = getattr(logger, "name", "")
    if name:
        event["logger"] = name
    return event


def _hear_libraries(shared: list[Processor], renderer: list[Processor], level: int) -> None:
    """asyncio, aiohttp and others log through the standard library: same form, from warnings on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
