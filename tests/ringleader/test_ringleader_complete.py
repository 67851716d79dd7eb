"""Completion asks the cluster and says nothing when that fails; the plugin is found and completed as kubectl wants."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from devcluster.embedded import embedded_plane
from kubeio.access.cluster import load_cluster
from kubeio.rest.client import Client
from ringleader.inspect.complete import WITHIN_S
from tests.sharder.io.environment import SharderEnvironment
from tests.warm_python import warm_python

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def env(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharderEnvironment]:
    """A ring with two members, and three sites in two namespaces."""
    async with (
        embedded_plane(tmp_path_factory.mktemp("plane")) as plane,
        Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client,
    ):
        env = SharderEnvironment(plane, client)
        await env.install()
        await env.ring()
        await env.shard("web-0", duration_s=15)
        await env.shard("web-1", duration_s=15)
        await env.namespace("sites", {})
        await env.site("blog")
        await env.site("shop")
        await env.site("blog-of-sites", namespace="sites")
        yield env
        await env.close()


async def run(words: list[str], environment: dict[str, str]) -> tuple[int, list[str], str]:
    done = await asyncio.to_thread(
        subprocess.run,
        [warm_python(), *words],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )
    return done.returncode, [line for line in done.stdout.splitlines() if line], done.stderr


def bash(line: str, kubeconfig: Path) -> dict[str, str]:
    """The environment in which bash asks for what may follow *line*."""
    count = len(line.split(" ")) - 1
    asked = {"_RINGLEADER_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(count)}
    return {"KUBECONFIG": str(kubeconfig), **asked}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ringleader status we", ["websites"]),
        ("ringleader pause ", ["websites"]),
        ("ringleader status x", []),
        ("ringleader cordon web", ["web-0", "web-1"]),
        ("ringleader cordon --ring websites web-1", ["web-1"]),
        ("ringleader describe w", ["websites.example.com/blog", "websites.example.com/shop"]),
        ("ringleader describe website/b", ["website/blog"]),
        ("ringleader describe -n sites website/b", ["website/blog-of-sites"]),
        ("ringleader list --ring w", ["websites"]),
        ("ringleader list web", ["websites.example.com"]),
        ("ringleader describe ring/w", ["ring/websites"]),
        ("ringleader check w", ["websites"]),
        ("ringleader describe nothing/b", []),
    ],
)
async def test_names_of_rings_members_and_objects_are_suggested(
    env: SharderEnvironment, line: str, expected: list[str]
) -> None:
    code, found, err = await run(["-m", "ringleader"], bash(line, env.plane.kubeconfig))
    assert (code, found, err) == (0, expected, "")


@pytest.mark.parametrize(
    "line", ["ringleader status we", "ringleader describe website/b", "ringleader cordon w"]
)
async def test_a_cluster_that_does_not_answer_suggests_nothing_and_says_nothing(
    line: str, tmp_path: Path
) -> None:
    gone = tmp_path / "kubeconfig"
    environment = bash(line, gone)
    assert (await run(["-m", "ringleader"], environment))[1:] == ([], "")

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    gone.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],"
        f" clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]}}"
    )
    began = time.monotonic()
    assert (await run(["-m", "ringleader"], environment))[1:] == ([], "")
    assert WITHIN_S <= time.monotonic() - began < WITHIN_S + 8
    server.close()
    await server.wait_closed()


async def test_kubectl_gets_its_suggestions_with_a_directive(env: SharderEnvironment) -> None:
    environment = {"KUBECONFIG": str(env.plane.kubeconfig)}
    words = ["-m", "ringleader.kubectl_complete"]
    code, found, err = await run([*words, "status", "we"], environment)
    assert (code, found, err) == (0, ["websites", ":4"], "")
    _, found, _ = await run([*words, "describe", "-n", "sites", "website/"], environment)
    assert found == ["website/blog-of-sites", ":4"]
    _, found, _ = await run([*words, "unc"], environment)
    assert found == ["uncordon", ":4"]
    _, found, _ = await run([*words, "status", "zzz"], environment)
    assert found == [":4"]


async def test_the_plugin_is_installed_under_the_names_that_kubectl_looks_for() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-ringleader"] == "ringleader.__main__:main"
    assert scripts["kubectl_complete-ringleader"] == "ringleader.kubectl_complete:main"


async def test_the_plugin_calls_itself_as_it_was_called(tmp_path: Path) -> None:
    script = tmp_path / "kubectl-ringleader"
    script.write_text("import sys\nfrom ringleader.__main__ import main\nsys.exit(main())\n")
    code, _, err = await run([str(script), "status", "--nothing"], {})
    assert code == 2
    assert "see kubectl ringleader status -h" in err
