"""How a process of ours starts and ends: real child processes, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from kubeio.errors import InputError
from kubeio.program.http_server import parse_bind
from kubeio.program.logs import configure_logging

PROLOGUE = """
import asyncio, sys
import structlog
from kubeio.errors import InputError, KubeError
from kubeio.program.runtime import configure_logging, run
configure_logging(format="json")
log = structlog.get_logger("test")
def ready():
    print("ready", flush=True)
"""


def start(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROLOGUE + program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, list[dict[str, object]]]:
    """Exit code, stdout, and the log."""
    out, err = process.communicate(timeout=30)
    lines = [line for line in err.splitlines() if line.startswith("{")]
    assert "Traceback" not in err.replace(lines[-1] if lines else "", ""), err
    return process.returncode, out, [json.loads(line) for line in lines]


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


STUBBORN = """
async def main():
    ready()
    try:
        await asyncio.Event().wait()
    finally:
        print("cleaning", flush=True)
        await asyncio.sleep(%s)
        print("clean", flush=True)
sys.exit(run(main()))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_cancels_main_which_cleans_up_and_the_exit_is_clean(number: signal.Signals) -> None:
    process = start(STUBBORN % 0.2)
    wait_until_ready(process)
    process.send_signal(number)
    code, out, log = finish(process)
    assert code == 0
    assert out == "cleaning\nclean\n"
    assert [(entry["event"], entry["signal"]) for entry in log] == [("stopping", number.name)]


def test_second_signal_ends_the_process_at_once() -> None:
    process = start(STUBBORN % 60)
    wait_until_ready(process)
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.readline() == "cleaning\n"
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    code, out, log = finish(process)
    assert code == 128 + signal.SIGTERM
    assert out == ""
    assert time.monotonic() - began < 5
    assert log[-1]["event"] == "stopped at once by a second signal"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("return None", 0),
        ("return 5", 5),
        ("raise ValueError('boom')", 1),
        ("raise KubeError('boom')", 1),
        ("raise type('ShardLost', (KubeError,), {'exit_code': 3})('lease lost')", 3),
        ("raise ExceptionGroup('g', [type('ShardLost', (KubeError,), {'exit_code': 3})('lost')])", 3),
        (
            "raise ExceptionGroup('g', [ValueError(1), ExceptionGroup('h', [InputError('f', 1, 'p', 'r')])])",
            2,
        ),
    ],
)
def test_how_main_ends_is_the_exit_code(body: str, code: int) -> None:
    process = start(f"async def main():\n    {body}\nsys.exit(run(main()))")
    assert finish(process)[0] == code


def test_main_that_ends_well_after_a_signal_chooses_its_exit_code() -> None:
    process = start("""
async def main():
    ready()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return 3
sys.exit(run(main()))
""")
    wait_until_ready(process)
    process.terminate()
    assert finish(process)[0] == 3


def test_bad_input_is_one_line_with_field_value_and_remedy() -> None:
    process = start("""
async def main():
    raise InputError("--eps", "-1", "must be positive", "write 0.05")
sys.exit(run(main()))
""")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert err == "error: --eps: '-1' must be positive; write 0.05\n"


def test_failure_is_logged_with_its_traceback_as_one_document() -> None:
    process = start("async def main():\n    raise ValueError('boom')\nsys.exit(run(main()))")
    _, _, log = finish(process)
    assert log[-1]["event"] == "failed"
    assert log[-1]["level"] == "error"
    assert "ValueError" in json.dumps(log[-1]["exception"])


def test_an_exit_code_beside_it_hides_no_traceback() -> None:
    lost = "type('ShardLost', (KubeError,), {'exit_code': 3})('lost')"
    process = start(
        f"async def main():\n    raise ExceptionGroup('g', [{lost}, KeyError('k')])\nsys.exit(run(main()))"
    )
    code, _, log = finish(process)
    assert (code, log[-1]["event"]) == (3, "failed")
    assert "KeyError" in json.dumps(log[-1]["exception"])


def test_event_loop_is_uvloop() -> None:
    process = start(
        "async def main():\n    print(type(asyncio.get_running_loop()).__module__)\nsys.exit(run(main()))"
    )
    assert finish(process)[1] == "uvloop\n"


def test_logs_carry_the_package_and_libraries_log_in_the_same_form() -> None:
    process = start("""
import logging
async def main():
    structlog.get_logger("sharder").info("ring rebuilt", members=3)
    structlog.get_logger("sharder").debug("not shown")
    logging.getLogger("asyncio").warning("slow %s", "callback")
    logging.getLogger("asyncio").info("not shown")
sys.exit(run(main()))
""")
    ours, theirs = finish(process)[2]
    assert (ours["event"], ours["members"], ours["logger"], ours["level"]) == (
        "ring rebuilt",
        3,
        "sharder",
        "info",
    )
    assert (theirs["event"], theirs["logger"], theirs["level"]) == ("slow callback", "asyncio", "warning")
    assert str(ours["timestamp"]).endswith("Z")


@pytest.mark.parametrize(("option", "value"), [("format", "xml"), ("level", "loud")])
def test_unknown_log_options_are_refused(option: str, value: str) -> None:
    with pytest.raises(InputError, match=f"--log-{option}: '{value}'"):
        configure_logging(**{option: value})


@pytest.mark.parametrize(
    ("bind", "address"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        (":8081", ("", 8081)),
        ("[::1]:8081", ("::1", 8081)),
        ("localhost:80", ("localhost", 80)),
    ],
)
def test_addresses_of_probes(bind: str, address: tuple[str, int]) -> None:
    assert parse_bind("--health-probe-bind-address", bind) == address


@pytest.mark.parametrize("bind", ["", "8081", "localhost", "::1:80", "a:b", "a:70000", "a:-1"])
def test_what_is_no_address_is_refused(bind: str) -> None:
    with pytest.raises(InputError, match="--health-probe-bind-address"):
        parse_bind("--health-probe-bind-address", bind)
