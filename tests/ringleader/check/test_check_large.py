"""A hundred thousand objects: the memory of the check follows replicas and troubles, not objects."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.measuring.list_server import Crowd, ListServer
from kubeio.resource import ApiResource
from tests.ringleader.check.environment import KEYS, ONE, TWO, CheckEnvironment

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
THREE = "three-00000003"
GROWTH_MB = 25
"""The allocator's share: live Python objects are as many for a thousand as for a hundred thousand (tracemalloc)."""
RUN = """
import resource, sys
from ringleader.__main__ import main
code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
ACCOUNTS = ("--sharder-account", "system/sharder", "--shard-account", "sites/websites")


async def check(env: CheckEnvironment, folder: Path, *, objects: int) -> tuple[dict[str, Any], float]:
    """The report on a ring of so many objects, and the command's memory at its largest in MB."""
    crowd = Crowd(WEBSITES, "sites", KEYS, objects, {"one": ONE, "two": TWO, "three": THREE})
    config = yaml.safe_load(env.plane.kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    tls = ssl.create_default_context(cadata=_pem(cluster))
    server = ListServer(crowd, upstream=env.plane.url, token=user["token"], tls=tls)
    async with server.serving():
        config["clusters"][0]["cluster"] = {"server": server.url}
        path = folder / f"{objects}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        path.chmod(0o600)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-c", RUN, "check", "-o", "json", "--recheck-after", "1.2s"),
            *(*ACCOUNTS, "--kubeconfig", str(path)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 120)
        assert not server.writes
    assert process.returncode == 0, out.decode() + err.decode()
    return json.loads(out), int(err.split()[-1]) / 1024


def _pem(cluster: dict[str, str]) -> str:
    return base64.b64decode(cluster["certificate-authority-data"]).decode()


@pytest.mark.timeout(180)
async def test_memory_does_not_follow_the_number_of_objects(env: CheckEnvironment, tmp_path: Path) -> None:
    await env.join(THREE)
    _, few_mb = await check(env, tmp_path, objects=1_000)
    report, many_mb = await check(env, tmp_path, objects=100_000)
    (owners,) = [each for each in report["findings"] if each["check"] == "owners"]
    assert owners["summary"].startswith("100,012 objects of 1 ring have living owners")
    assert many_mb < few_mb + GROWTH_MB, f"{few_mb:.0f} MB for 1,000 objects, {many_mb:.0f} MB for 100,000"
