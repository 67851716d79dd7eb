"""The kernel's timer that ends a process. Real child processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time

import pytest

from kubeio.shard.kernel_timer import EXIT_CODE, IS_SUPPORTED

pytestmark = pytest.mark.skipif(not IS_SUPPORTED, reason="only Linux has timer_create with this layout")
NOT_ENDED = 7
CHILD = """
import ctypes, os, resource, signal, sys, time
from kubeio.shard.kernel_timer import KernelTimer
hold_the_gil = ctypes.PyDLL(None).usleep
timer = KernelTimer()
%s
sys.exit(7)
"""
PID_ONE = ("unshare", "--user", "--map-root-user", "--pid", "--fork")


def run(then: str, *, prefix: tuple[str, ...] = ()) -> tuple[int, float, str]:
    """Exit code, seconds from when the child said a word (else the whole run), and what it wrote to stderr."""
    command = [*prefix, sys.executable, "-c", CHILD % then]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        began = time.monotonic()
        try:
            _, stderr = process.communicate(timeout=20)
        finally:
            process.kill()
    return process.returncode, time.monotonic() - began, stderr


@pytest.mark.parametrize("prefix", [(), PID_ONE], ids=["any process", "PID 1, as in a container"])
def test_it_ends_a_process_whose_gil_is_held(prefix: tuple[str, ...]) -> None:
    if prefix:
        probe = [*prefix, "true"]
        if (
            shutil.which(prefix[0]) is None
            or subprocess.run(probe, capture_output=True, check=False).returncode
        ):
            pytest.skip("needs unshare (package util-linux) and user namespaces")
    then = "timer.arm(0.5); print(os.getpid(), flush=True); hold_the_gil(900_000); hold_the_gil(900_000)"
    code, took_s, stderr = run(then, prefix=prefix)
    assert code == EXIT_CODE, stderr
    assert 0.3 < took_s < 1.3


def test_it_is_put_off_and_closed() -> None:
    assert run("timer.arm(0.3); timer.arm(60); time.sleep(0.6)")[0] == NOT_ENDED
    assert run("timer.arm(0.3); timer.close(); time.sleep(0.6)")[0] == NOT_ENDED


def test_user_code_has_its_alarm_and_its_children() -> None:
    """An alarm in the middle neither ends the process nor takes the end away; a child outlives its parent's timer."""
    then = """
seen = []
signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
timer.arm(0.6)
signal.setitimer(signal.ITIMER_REAL, 0.1)
if os.fork() == 0:
    time.sleep(0.9)
    os.write(2, b"the child lives")
    os._exit(0)
time.sleep(0.3)
assert seen
time.sleep(0.6)
"""
    code, _, stderr = run(then)
    assert code == EXIT_CODE, stderr
    assert stderr == "the child lives"


def test_each_timer_of_a_process_counts() -> None:
    assert (
        run("second = KernelTimer(); second.arm(0.2); timer.arm(5); timer.close(); time.sleep(1)")[0]
        == EXIT_CODE
    )


def test_a_kernel_without_a_timer_left_is_an_error_of_words() -> None:
    code, _, stderr = run("resource.setrlimit(resource.RLIMIT_SIGPENDING, (0, 0)); KernelTimer()")
    assert code == 1
    assert (
        "no timer of the kernel: Resource temporarily unavailable; raise the limit of pending signals (ulimit -i)"
        in stderr
    )
