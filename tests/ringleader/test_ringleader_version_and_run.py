"""`ringleader version` names client and server; `ringleader run` is a replica."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from importlib.metadata import version

import pytest
import yaml

from kubeio.models import Lease
from ringleader.__main__ import main
from ringleader.assets import website_controller
from tests.sharder.io.environment import KEYS, RING, SharderEnvironment, wait_until
from tests.warm_python import warm_python


def test_the_client_s_version_needs_no_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    assert main(["version", "--client"]) == 0
    assert capsys.readouterr().out == f"Client Version: {version('ringleader')}\n"
    assert main(["version", "--client", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document.keys() == {"clientVersion"}
    assert document["clientVersion"]["ringleader"] == version("ringleader")
    assert main(["version"]) == 2
    assert "/nowhere/config" in capsys.readouterr().err


async def test_the_server_s_version_is_beside_the_client_s(env: SharderEnvironment) -> None:
    served = json.loads((await env.client.request("GET", "/version")).body)["gitVersion"]
    code, out, err = await ended(env, "version", "-o", "json")
    assert (code, err) == (0, "")
    assert json.loads(out)["serverVersion"] == {"gitVersion": served}
    code, out, _ = await ended(env, "version", "-o", "yaml")
    assert yaml.safe_load(out)["serverVersion"] == {"gitVersion": served}
    code, out, _ = await ended(env, "version")
    assert out.splitlines() == [f"Client Version: {version('ringleader')}", f"Server Version: {served}"]


async def test_run_is_a_replica_until_its_end_is_asked_for(env: SharderEnvironment) -> None:
    await env.ring()
    words = ("run", f"{website_controller()}:websites", "--ring", RING, "--member", "web-0")
    process = await start(env, *words, "--lease-duration", "2")
    try:
        await wait_until(lambda: is_synced(env), within_s=30)
        process.send_signal(signal.SIGTERM)
        _, err = await asyncio.wait_for(process.communicate(), 30)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    assert [lease.spec.holder_identity or "" for lease in await leases(env)] == [""]


async def test_run_passes_its_words_on(env: SharderEnvironment) -> None:
    code, out, err = await ended(env, "run", "-h")
    assert (code, err) == (0, "")
    assert "--member" in out
    code, _, err = await ended(env, "run", "nowhere.py:websites")
    assert (code, err.count("Traceback")) == (2, 0)
    assert "nowhere.py" in err


async def is_synced(env: SharderEnvironment) -> bool:
    found = await leases(env)
    return [lease.metadata.annotations.get(KEYS.synced) for lease in found] == ["true"]


async def leases(env: SharderEnvironment) -> list[Lease]:
    found, _ = await env.leases.list(f"{KEYS.ring_label}={RING}")
    return list(found)


async def start(env: SharderEnvironment, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(warm_python(), "-m", "ringleader", *words),
        env={**os.environ, "KUBECONFIG": str(env.plane.kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(env: SharderEnvironment, *words: str) -> tuple[int, str, str]:
    process = await start(env, *words)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode(), err.decode()
