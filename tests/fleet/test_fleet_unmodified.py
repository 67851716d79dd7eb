"""The demo of unmodified controllers as a command, and minutes of `make unmodified`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster.real import BinariesMissing, kubernetes_recipe
from devcluster.real.binaries import SERVERS, find_binaries
from tests.fleet.unmodified.faults import FAULTS


def run(*command: str, within_s: float) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", *command]
    return subprocess.run(whole, capture_output=True, text=True, check=False, timeout=within_s)


def require_binaries() -> None:
    try:
        find_binaries(SERVERS, kubernetes_recipe())
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@pytest.mark.fleet
@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--no-fence",), "error: --no-fence does not go with --unmodified; leave one of them out\n"),
        (("--until", "kill"), "error: --until does not go with --unmodified; leave one of them out\n"),
        (
            ("--objects", "201"),
            "error: --objects: 201 is too much for --unmodified; use 200 Deployments or fewer\n",
        ),
    ],
)
def test_flags_that_make_no_sense_together_are_refused(flags: tuple[str, ...], problem: str) -> None:
    ended = run("ringleader", "demo", "--unmodified", *flags, within_s=60)
    assert (ended.returncode, ended.stderr) == (2, problem)


@pytest.mark.fleet
def test_a_fault_that_is_none_is_refused_and_the_list_names_all() -> None:
    ended = run("tests.fleet.unmodified", "--faults", "proxy_frozen,flood", within_s=60)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: --faults: flood is no fault; use some of proxy_killed, ")
    listed = run("tests.fleet.unmodified", "--list", within_s=60).stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(FAULTS)
    assert all(len(line.split()) > 3 for line in listed)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_headless_demo_prints_one_document_and_proves_what_it_says() -> None:
    require_binaries()
    ended = run(
        "ringleader", "demo", "--unmodified", "--headless", "--objects", "20", "-o", "json", within_s=390
    )
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["deployments"] == sum(document["owners"].values()) == 20
    assert len(document["owners"]) == 3
    assert document["pods_made"] == document["pods_wanted"] >= 20 * 7
    assert (document["findings"], document["foreign_writes"], document["unowned"]) == (0, 0, 0)
    acts = {act["what"]: act for act in document["acts"]}
    assert list(acts) == ["share", "kill", "join", "scale"]
    assert acts["scale"]["pods_made"] == 20
    assert min(acts["kill"]["rolling"], acts["join"]["rolling"]) > 0
    assert min(acts["kill"]["moved"], acts["join"]["moved"]) > 0


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_five_minutes_of_faults_lose_nothing_and_make_nothing_twice(tmp_path: Path) -> None:
    require_binaries()
    flags = ("--minutes", "5", "--seed", "5", "--deployments", "60", "--out", str(tmp_path / "out"))
    ended = run("tests.fleet.unmodified", *flags, within_s=1400)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
    assert "nothing was lost or made twice" in ended.stdout
