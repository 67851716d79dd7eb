"""The machine as /proc shows it: processes with their descendants, memory, CPU time."""

from __future__ import annotations

import os
import subprocess
import sys

from loadtest.machine import cpu_s, family, memory_kb, read_machine, rss_mb


def test_this_process_has_memory_and_cpu_time() -> None:
    assert memory_kb(os.getpid(), "VmHWM") >= memory_kb(os.getpid(), "VmRSS") > 10_000
    assert cpu_s([os.getpid()]) > 0


def test_a_process_that_does_not_exist_uses_nothing() -> None:
    assert (cpu_s([0]), memory_kb(0, "VmRSS")) == (0, 0)


def test_child_processes_are_counted_with_their_parent() -> None:
    hold = "import time; b = bytearray(30_000_000); print(flush=True); time.sleep(60)"
    alone_mb = rss_mb(os.getpid())
    with subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            assert child.pid in family(os.getpid())
            assert rss_mb(os.getpid()) > alone_mb + 25
        finally:
            child.kill()


def test_the_machine_has_cores_and_memory() -> None:
    machine = read_machine()
    assert machine.cores >= 1
    assert machine.memory_gib > 0
