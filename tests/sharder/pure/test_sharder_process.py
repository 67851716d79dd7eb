"""From the words of the command line to a process that holds only what a sharder needs."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kubeio.errors import InputError
from sharder.__main__ import sharder as command
from sharder.flags import Flags, check_duration, process_command
from sharder.process import KEPT_OUT, read_settings

ROOT = Path(__file__).resolve().parents[3]
HEAVY = {
    "typer",
    "click",
    "pydantic",
    "rich",
    "pygments",
    "greenlet",
    "kubernetes",
    "aiohttp",
    "numpy",
    "matplotlib",
}
LOADED = """
import re, sys
from sharder.process import keep_out
keep_out()
import kubeio.program.runtime, sharder.app, uvloop
print(*sorted(name for name, module in sys.modules.items() if module is not None and "." not in name))
print(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


def test_every_flag_of_the_command_reaches_the_process() -> None:
    named = {name: {"ring": "rings"}.get(name, name) for name in inspect.signature(command).parameters}
    assert set(named.values()) == {field.name for field in msgspec.structs.fields(Flags)}


def test_flags_come_out_as_they_went_in() -> None:
    flags = Flags(
        identity="s 1 'x'", rings=("a", "b"), release=True, ring_file="/a b/ring.yaml", kubeconfig=None
    )
    assert Flags.decode(flags.encode()) == flags


@pytest.mark.parametrize(
    ("began_with", "kept"),
    [
        (["python", "-m", "sharder", "--ring", "a"], []),
        (["python", "-X", "dev", "-W", "error", "-m", "sharder"], ["-X", "dev", "-W", "error"]),
        (["/usr/bin/python", "/usr/bin/ringleader", "sharder", "--identity", "-m"], ["-P"]),
    ],
)
def test_the_interpreter_s_own_flags_stay(began_with: list[str], kept: list[str]) -> None:
    flags = Flags(identity="s-1")
    assert process_command(began_with, flags) == [
        sys.executable,
        *kept,
        "-m",
        "sharder.process",
        flags.encode(),
    ]


def test_flags_become_settings() -> None:
    settings = read_settings(
        Flags(
            identity="s-1",
            rings=("a",),
            lease_duration_s=30.0,
            probes_port_file="/x/port",
            probes_bind=":8080",
        )
    )
    found = dataclasses.asdict(settings)
    assert (found["identity"], found["rings"], found["lease_duration_s"]) == ("s-1", ("a",), 30)
    assert (found["election_namespace"], found["probes_port"]) == ("ringleader-system", 8080)
    assert settings.probes_port_file == Path("/x/port")


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        (Flags(identity="s", namespaces="a"), "--namespaces"),
        (Flags(identity="s", release=True), "--release"),
        (Flags(identity="s", lease_namespace="A_b"), "--lease-namespace"),
        (Flags(identity="s", ring_file="r.yaml", rings=("a",)), "--ring"),
        (Flags(identity="s", ring_file="r.yaml", webhook_bind=":1"), "--webhook-bind"),
        (Flags(identity="s", page_bind="8085"), "--page-bind"),
        (Flags(identity="s", page_port_file="/x/port"), "--page-port-file"),
    ],
)
def test_what_cannot_be_used_is_named(flags: Flags, field: str) -> None:
    with pytest.raises(InputError) as caught:
        read_settings(flags)
    assert caught.value.field == field


def test_a_lease_lasts_whole_seconds_up_to_an_hour() -> None:
    assert [check_duration(seconds) for seconds in (1.0, 15.0, 3600.0)] == [1, 15, 3600]
    for seconds in (0.0, 1.5, 3601.0, float("inf"), float("nan")):
        with pytest.raises(InputError):
            check_duration(seconds)


def test_the_process_imports_nothing_that_it_does_not_need_and_is_small() -> None:
    """What is imported stays in memory for ever; the whole sharder may take 64 MB while it assigns."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names, kilobytes = done.stdout.splitlines()
    assert HEAVY & set(names.split()) == set()
    assert set(KEPT_OUT) <= HEAVY
    assert int(kilobytes) <= 44_000


def test_a_sharder_without_its_page_imports_nothing_of_it() -> None:
    code = "import sys, sharder.app, sharder.rings.controller, sharder.rings.ring_file; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    named = {
        name for name in done.stdout.split() if name.startswith(("sharder.page", "kubeio.program.pages"))
    }
    assert named == set()


def test_the_page_is_served_where_it_is_asked_for() -> None:
    assert read_settings(Flags(identity="s")).page_host == ""
    settings = read_settings(Flags(identity="s", page_bind=":8085", page_port_file="/x/port"))
    assert (settings.page_host, settings.page_port) == ("0.0.0.0", 8085)
    assert settings.page_port_file == Path("/x/port")


def test_a_flag_that_cannot_be_used_is_told_by_the_process_in_one_line() -> None:
    word = Flags(identity="s", namespaces="a").encode()
    done = subprocess.run(
        [sys.executable, "-m", "sharder.process", word], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: --namespaces: 'a' ")
    assert done.stderr.count("\n") == 1
