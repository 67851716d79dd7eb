"""Who logs never waits: lines that nobody reads are dropped and counted, and the count is told."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

import pytest

from kubeio.program.log_writer import LogWriter

LINE = "x" * 99 + "\n"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    yield reader, writer
    for fd in (reader, writer):
        with contextlib.suppress(OSError):
            os.close(fd)


def test_lines_arrive_whole_and_in_order(pipe: tuple[int, int]) -> None:
    reader, fd = pipe
    writer = LogWriter(fd, on_resumed=lambda lines: None)
    for number in range(100):
        writer.write(f"{number} é\n")
    assert writer.drain(within_s=5)
    assert os.read(reader, 100_000).decode().split("\n")[:-1] == [f"{number} é" for number in range(100)]
    assert writer.dropped == 0


def fill(fd: int) -> None:
    """Write to the pipe until it takes no more."""
    os.set_blocking(fd, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(fd, b"x" * 4096)
    os.set_blocking(fd, True)


def test_a_full_pipe_delays_no_caller_and_dropped_lines_are_counted(pipe: tuple[int, int]) -> None:
    reader, fd = pipe
    fill(fd)
    reported: list[int] = []
    writer = LogWriter(fd, on_resumed=reported.append, max_pending_bytes=10_000)
    began = time.monotonic()
    for _ in range(2_000):
        writer.write(LINE)
    assert time.monotonic() - began < 5
    assert not writer.drain(within_s=0.05)
    dropped = writer.dropped
    assert dropped > 1_000
    while not writer.drain(within_s=0.05):
        os.read(reader, 65_536)
    assert reported == [dropped]
    writer.write(LINE)
    assert writer.drain(within_s=5)
    assert reported == [dropped], "reported once"


def test_a_reader_that_is_gone_costs_the_lines_and_nothing_else(pipe: tuple[int, int]) -> None:
    reader, fd = pipe
    os.close(reader)
    writer = LogWriter(fd, on_resumed=lambda lines: None)
    for _ in range(10):
        writer.write(LINE)
    assert writer.drain(within_s=5)
    assert writer.dropped == 10
