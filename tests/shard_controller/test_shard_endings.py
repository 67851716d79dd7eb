"""A process whose Lease is lost ends, whatever holds up its log, its event loop or the GIL. Real child processes."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time

import pytest

from kubeio.shard.kernel_timer import EXIT_CODE

DURATION_S = 1.0
CHILD = """
import asyncio, ctypes, sys, threading, time
from kubeio.clock import SystemClock
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.program.host import Host
from kubeio.program.logs import configure_logging
from kubeio.shard import heartbeat
from kubeio.shard.exit_timer import ExitTimer
from kubeio.shard.progress import StallDetector
from kubeio.shard.lease_validity import LeaseValidity

configure_logging(format="json")

class Silent:
    "An API server that answers %(renewals)d renewals."
    left = %(renewals)d
    def __init__(self, *_, **__): pass
    async def __aenter__(self): return self
    async def __aexit__(self, *_): pass
    async def swap(self, lease):
        Silent.left -= 1
        if Silent.left < 0:
            await asyncio.sleep(3600)
        return lease
    async def get(self, name): await asyncio.sleep(3600)

class SilentHost(Host):
    def client(self, *_, **__): return Silent()
    def loop_thread(self, *args, **kwargs):
        self.heartbeat_thread = super().loop_thread(*args, **kwargs)
        return self.heartbeat_thread

heartbeat.Leases = Silent
clock = SystemClock()
validity = LeaseValidity(duration_s=%(duration)r, sent_at=clock.now())
validity.running = %(running)d
name = "web-0-aaaaaaaa"
host = SilentHost()
lease = Lease(Meta(name=name, namespace="ns", resource_version="1"), LeaseSpec(name, 1))
thread = heartbeat.HeartbeatThread(
    host, None, lease, validity=validity, progress=StallDetector(deadline_s=60, clock=clock),
    timer=ExitTimer(validity, clock=clock), on_phase=lambda phase: None,
)
thread.start()
print("started", flush=True)
%(then)s
"""
SLEEPS = "time.sleep(60)"
HOLDS_THE_GIL = "time.sleep(0.2)\nctypes.PyDLL(None).sleep(60)"
TAKES_THE_STACKS_AWAY = (
    "import faulthandler\ntime.sleep(0.2)\nfaulthandler.cancel_dump_traceback_later()\n"
    "ctypes.PyDLL(None).sleep(60)"
)
FAILS = (
    "async def swap(self, lease):\n    raise ValueError('not foreseen')\nSilent.swap = swap\ntime.sleep(60)"
)
STOPS_THE_LOOP = "time.sleep(0.2)\nhost.heartbeat_thread.call(time.sleep, 60)\ntime.sleep(60)"


def full_pipe() -> tuple[int, int]:
    """A pipe that takes nothing more."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    while True:
        try:
            os.write(writer, b"x")
        except BlockingIOError:
            os.set_blocking(writer, True)
            return reader, writer


def closed_pipe() -> tuple[int, int]:
    """A pipe whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    return os.open(os.devnull, os.O_RDONLY), writer


def start(then: str, stderr: int, *, running: int = 1, renewals: int = 0) -> subprocess.Popen[str]:
    values = {"then": then, "running": running, "renewals": renewals, "duration": DURATION_S}
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD % values], stderr=stderr, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def code_and_time(process: subprocess.Popen[str]) -> tuple[int, float]:
    began = time.monotonic()
    try:
        return process.wait(20), time.monotonic() - began
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("pipe", [full_pipe, closed_pipe, os.pipe])
def test_a_log_without_a_reader_does_not_keep_a_process_alive(pipe: object) -> None:
    reader, writer = pipe()  # type: ignore[operator]
    process = start(SLEEPS, writer)
    os.close(writer)
    code, took_s = code_and_time(process)
    os.close(reader)
    assert code == 3
    assert took_s < 1.9 * DURATION_S


@pytest.mark.parametrize("then", [HOLDS_THE_GIL, STOPS_THE_LOOP])
@pytest.mark.parametrize("pipe", [full_pipe, os.pipe])
def test_a_process_whose_threads_stand_still_ends_before_others_have_its_objects(
    then: str, pipe: object
) -> None:
    reader, writer = pipe()  # type: ignore[operator]
    process = start(then, writer)
    os.close(writer)
    code, took_s = code_and_time(process)
    output = os.read(reader, 100_000) if pipe is os.pipe else b"Timeout"
    os.close(reader)
    assert code == EXIT_CODE
    assert took_s < 2 * DURATION_S + 1, "the machine may be busy"
    assert b"Timeout" in output


def test_user_code_that_takes_the_stacks_away_does_not_take_the_end() -> None:
    code, took_s = code_and_time(start(TAKES_THE_STACKS_AWAY, subprocess.DEVNULL))
    assert code == EXIT_CODE
    assert took_s < 2 * DURATION_S + 1, "the machine may be busy"


def test_an_exception_that_is_not_foreseen_is_written_with_its_stack() -> None:
    process = start(FAILS, subprocess.PIPE, renewals=100)
    _, written = process.communicate(timeout=20)
    (line,) = written.splitlines()
    ended = json.loads(line)
    assert (process.returncode, ended["event"], ended["reason"]) == (1, "process ends", "not foreseen")
    assert [each["exc_type"] for each in ended["exception"]] == ["ValueError"]


def test_a_process_in_which_nothing_runs_outlives_its_lease() -> None:
    process = start("time.sleep(3)\nsys.exit(7)", subprocess.DEVNULL, running=0)
    assert code_and_time(process)[0] == 7


def test_each_renewal_puts_the_end_off_and_a_stop_takes_it_away() -> None:
    then = "time.sleep(2.5)\nasyncio.run(thread.stop(release=False))\ntime.sleep(2.5)\nsys.exit(7)"
    assert code_and_time(start(then, subprocess.DEVNULL, renewals=100))[0] == 7
