"""From the words of the command line to a process that holds only what a sharder needs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kubeio.errors import InputError
from kubeio.program.lean_structlog import OPTIONAL
from sharder.settings import read_lease_duration, read_settings

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
import sharder.__main__
import kubeio.program.runtime, sharder.app, sharder.settings, uvloop
print(*sorted(name for name, module in sys.modules.items() if module is not None and "." not in name))
print(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


def test_every_flag_of_the_help_reaches_the_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read_settings(["-h"])
    assert ended.value.code == 0
    flags = set(re.findall(r"^  (?:-h, )?--([a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    ring = tmp_path / "ring.yaml"
    ring.write_text(
        "{metadata: {name: websites}, spec: {leaseNamespace: sites, resources: [{resource: secrets}]}}"
    )
    of_a_file = {"ring-file": str(ring), "namespaces": "team", "release": None}
    others = {
        "kubeconfig": "k",
        "context": "c",
        "identity": "s-1",
        "lease-namespace": "leases",
        "lease-duration": "30s",
        "health-probe-bind-address": ":8080",
        "probes-port-file": "/x/port",
        "log-format": "json",
        "log-level": "debug",
    }
    of_the_cluster = {
        "ring": "a",
        "upgrade-crd": None,
        "webhook-bind": ":9443",
        "webhook-service": "system/sharder",
        "webhook-secret": "keys",
    }
    assert {*others, *of_a_file, *of_the_cluster, "webhook-url", "help"} == flags
    settings = read_settings(_words({**others, **of_the_cluster}))
    assert (settings.kubeconfig, settings.context, settings.identity) == ("k", "c", "s-1")
    assert (settings.election_namespace, settings.lease_duration_s) == ("leases", 30.0)
    assert (settings.probes_host, settings.probes_port) == ("", 8080)
    assert settings.probes_port_file == Path("/x/port")
    assert (settings.log_format, settings.log_level) == ("json", "debug")
    assert (settings.rings, settings.ring_file, settings.release) == (("a",), None, False)
    assert settings.upgrade_crd
    assert settings.webhook is not None
    assert (settings.webhook.port, settings.webhook.secret, settings.webhook.namespace) == (
        9443,
        "keys",
        "leases",
    )
    settings = read_settings(_words({**others, **of_a_file, "lease-namespace": ""}))
    assert settings.ring_file is not None
    assert (settings.ring_file.spec.name, settings.election_namespace) == ("websites", "sites")
    assert settings.election_lease == "ringleader-sharder-websites"
    assert (settings.ring_file.scope.names, settings.release) == (("team",), True)


def _words(flags: dict[str, str | None]) -> list[str]:
    return [f"--{name}" if value is None else f"--{name}={value}" for name, value in flags.items()]


def test_what_is_left_out_has_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "sharder-7")
    settings = read_settings([])
    assert (settings.identity, settings.rings, settings.lease_duration_s) == ("sharder-7", (), 15)
    assert (settings.election_namespace, settings.election_lease) == (
        "ringleader-system",
        "ringleader-sharder",
    )
    assert (settings.probes_host, settings.probes_port, settings.probes_port_file) == ("127.0.0.1", 0, None)
    assert settings.webhook is None
    monkeypatch.delenv("POD_NAME")
    assert read_settings([]).identity.rpartition("-")[2].isdecimal()


def test_a_flag_may_be_repeated() -> None:
    assert read_settings(["--ring", "a", "--ring=b"]).rings == ("a", "b")


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--namespaces", "a"], "--namespaces"),
        (["--release"], "--release"),
        (["--lease-namespace", "A_b"], "--lease-namespace"),
        (["--lease-duration", "-1"], "--lease-duration"),
        (["--ring-file", "r.yaml", "--ring", "a"], "--ring"),
        (["--ring-file", "r.yaml", "--webhook-bind", ":1"], "--webhook-bind"),
        (["--webhook-secret", "keys"], "--webhook-secret"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(words: list[str], field: str) -> None:
    with pytest.raises(InputError) as caught:
        read_settings(words)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nope", "x"], "No such option: --nope;"),
        (["--nope=secret"], "No such option: --nope;"),
        (["--rin", "a"], "No such option: --rin. Did you mean --ring or --ring-file?"),
        (["extra", "--ring", "a"], "Got unexpected extra argument(s) (extra);"),
        (["--ring"], "--ring: expected one argument;"),
    ],
)
def test_arguments_that_are_no_flags_end_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read_settings(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"error: {message} see python -m sharder -h\n"


def test_a_lease_lasts_whole_seconds_up_to_an_hour() -> None:
    assert [read_lease_duration(text) for text in ("1", "15s", "1h")] == [1, 15, 3600]
    for text in ("0", "1500ms", "3601", "inf", "nan", "soon", ""):
        with pytest.raises(InputError):
            read_lease_duration(text)


def test_the_process_imports_nothing_that_it_does_not_need_and_is_small() -> None:
    """What is imported stays in memory for ever; the whole sharder may take 64 MB while it assigns."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names, kilobytes = done.stdout.splitlines()
    assert HEAVY & set(names.split()) == set()
    assert set(OPTIONAL) <= HEAVY
    assert int(kilobytes) <= 44_000


@pytest.mark.parametrize("command", [["sharder"], ["ringleader", "sharder"]], ids=" ".join)
def test_a_flag_that_cannot_be_used_is_named_by_the_process_in_one_line(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command, "--namespaces", "a"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: --namespaces: 'a' ")
    assert done.stderr.count("\n") == 1


def test_help_without_a_reader_is_no_crash() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "sharder", "-h"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
