"""`ringleader devcluster`: a control plane that outlives the command that started it, until it is taken down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devcluster.real import BinariesMissing, kubernetes_recipe
from devcluster.real.binaries import SERVERS, find_binaries

pytestmark = pytest.mark.fleet

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Runs `ringleader devcluster` with a state folder of its own; takes everything down at the end."""
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ringleader", "devcluster", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    yield run
    for name in json.loads(run("list", "-o", "json").stdout)["controlPlanes"]:
        run("down", "--name", name["name"])


def listed(run: Run) -> dict[str, Any]:
    document = json.loads(run("list", "-o", "json").stdout)
    return {one["name"]: one for one in document["controlPlanes"]}


def test_up_prints_the_line_to_export_and_leaves_a_server(run: Run) -> None:
    first = run("up")
    assert first.returncode == 0, first.stderr
    line = first.stdout.strip()
    assert line.startswith("export KUBECONFIG=")
    assert Path(line.partition("=")[2]).is_file()
    assert listed(run)["default"]["up"] is True
    again = run("up")
    assert "is up already" in again.stderr
    assert again.stdout.strip() == line


def test_rbac_refuses_what_no_role_allows(run: Run) -> None:
    up = run("up", "--rbac")
    assert up.returncode == 0, up.stderr
    kubeconfig = up.stdout.strip().partition("=")[2]
    check = [sys.executable, "-m", "ringleader", "status", "--kubeconfig", kubeconfig]
    refused = subprocess.run([*check, "--as", "ann"], capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode != 0
    assert '"ann" may not list controllerrings.ringleader.dev' in refused.stderr
    assert listed(run)["default"]["rbac"] is True


def test_rbac_of_one_that_is_up_without_it_is_an_error(run: Run) -> None:
    run("up")
    again = run("up", "--rbac")
    assert again.returncode == 1
    assert "is up already without RBAC; take it down first" in again.stderr


def test_several_run_side_by_side_under_their_names(run: Run) -> None:
    for name in ("one", "two"):
        assert run("up", "--name", name).returncode == 0
    assert set(listed(run)) == {"one", "two"}
    assert len({one["server"] for one in listed(run).values()}) == 2
    assert run("down", "--name", "one").stdout == "one is down\n"
    assert set(listed(run)) == {"two"}


def test_down_ends_every_process_and_twice_is_no_error(run: Run, tmp_path: Path) -> None:
    run("up")
    described = listed(run)["default"]
    assert run("down").stdout == "default is down\n"
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(described["server"], timeout=5)
    assert not Path(described["folder"]).exists()
    again = run("down")
    assert (again.returncode, again.stdout) == (0, "default is not up\n")


def test_one_that_was_killed_is_shown_as_died_and_replaced_by_up(run: Run, tmp_path: Path) -> None:
    run("up")
    record = json.loads((tmp_path / "ringleader" / "devcluster" / "default" / "record.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    assert listed(run)["default"]["up"] is False
    assert " died " in run("list").stdout
    up = run("up")
    assert "is up at" in up.stderr
    assert listed(run)["default"]["up"] is True


@pytest.mark.real
def test_two_api_servers_are_listed_and_have_a_kubeconfig_each(run: Run) -> None:
    try:
        find_binaries(SERVERS, kubernetes_recipe())
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")
    up = run("up", "--real", "--api-servers", "2")
    assert up.returncode == 0, up.stderr
    first = Path(up.stdout.strip().partition("=")[2])
    assert listed(run)["default"]["apiServers"] == 2
    rings = [sys.executable, "-m", "ringleader", "status", "--kubeconfig"]
    for kubeconfig in (first, first.with_name("admin-2.kubeconfig")):
        asked = subprocess.run([*rings, kubeconfig], capture_output=True, text=True, timeout=60, check=False)
        assert "controllerrings.ringleader.dev" in asked.stdout + asked.stderr
    again = run("up", "--real", "--api-servers", "3")
    assert again.returncode == 1
    assert "is up already with 2 API servers; take it down first" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--api-servers", "2"), "--api-servers: 2 needs a real control plane; add --real"),
        (("--real", "--api-servers", "0"), "--api-servers: 0 is no number of API servers; use 1 to 9"),
    ],
)
def test_number_of_api_servers_that_cannot_be(run: Run, arguments: tuple[str, ...], words: str) -> None:
    refused = run("up", *arguments)
    assert refused.returncode == 2
    assert words in refused.stderr


def test_list_of_nothing_says_how_to_start(run: Run) -> None:
    assert "ringleader devcluster up" in run("list").stdout


def test_bad_name_is_bad_input(run: Run) -> None:
    for verb in ("up", "down"):
        refused = run(verb, "--name", "../elsewhere")
        assert refused.returncode == 2
        assert "--name" in refused.stderr
        assert "../elsewhere" in refused.stderr
        assert "Traceback" not in refused.stderr
