"""Certificates of the relay are made by a child process; the proxy never loads what makes them: 9 MB."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROXY = "import proxy.app, proxy.settings, proxy.learn.known, kubeio.program.runtime, sys\n"
MADE = (
    "from datetime import UTC, datetime\n"
    "from proxy.loopback import Loopback, make_certificates_in_child\n"
    "loopback = Loopback(make_certificates_in_child(datetime.now(UTC)))\n"
)
MODULE = "cryptography"


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_a_proxy_with_its_certificates_has_not_loaded_what_makes_them() -> None:
    done = run(f"{PROXY}{MADE}sys.exit({MODULE!r} in sys.modules or b'BEGIN' not in loopback.ca)")
    assert (done.returncode, done.stderr) == (0, "")


def test_they_are_made_before_the_first_thread_is_started() -> None:
    """A child that is forked beside threads may wait for ever; Python warns of that."""
    begin = "import sys, proxy.__main__ as proxy, kubeio.program.runtime as runtime\n"
    end = "runtime.run = lambda work: work.close()\n"
    command = "sys.exit(proxy.main(['--ring', 'r', '--', '/bin/true']))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", begin + end + command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("end", "exit_code"), [("os._exit(3)", "3"), ("os.kill(os.getpid(), 9)", "-9")], ids=["ended", "killed"]
)
def test_a_child_that_makes_none_is_named(end: str, exit_code: str) -> None:
    done = run(f"import os, proxy.loopback\nproxy.loopback.make_certificates = lambda now: {end}\n{MADE}")
    assert done.returncode != 0
    assert f"no certificate was made: the child process ended with {exit_code}" in done.stderr
