"""From a kubeconfig on disk to what the server sees: tokens and certificates that change while we work."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import time
from pathlib import Path

import yaml

from kubeio.access.cluster import load_cluster
from kubeio.rest.client import Client
from tests.kubeio.http.wire_server import (
    CHUNKED_HEAD,
    Conversation,
    Tls,
    WireServer,
    chunked,
    failure_status,
)

V1 = "client.authentication.k8s.io/v1"
LIFE_S = 5

TOKEN_PLUGIN = """#!{python} -S
import json, time
ends = time.time() + {life}
print(json.dumps({{"apiVersion": "{version}", "kind": "ExecCredential", "status": {{
    "token": "until-%.3f" % ends,
    "expirationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ends)) + ".%03dZ" % (ends % 1 * 1000),
}}}}))
"""

CERTIFICATE_PLUGIN = """#!{python} -S
import json, os, time
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "runs"), "a") as runs:
    runs.write("x")
count = os.path.getsize(os.path.join(here, "runs"))
pair = json.load(open(os.path.join(here, "pair-%d.json" % min(count, 2))))
ends = time.gmtime(time.time() + {life})
pair["expirationTimestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", ends)
print(json.dumps({{"apiVersion": "{version}", "kind": "ExecCredential", "status": pair}}))
"""


def write_plugin(directory: Path, text: str) -> None:
    path = directory / "plugin"
    path.write_text(text.format(python=sys.executable, life=LIFE_S, version=V1))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def write_kubeconfig(directory: Path, server: WireServer, tls: Tls, user: dict[str, object]) -> str:
    (directory / "ca.crt").write_bytes(tls.ca_pem)
    path = directory / "config"
    cluster = {"server": server.url, "certificate-authority": "ca.crt"}
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


async def test_token_of_five_seconds_from_a_plugin_is_good_at_every_request(
    server: WireServer, tls: Tls, tmp_path: Path
) -> None:
    tokens: list[str] = []

    async def strict(conversation: Conversation) -> None:
        while True:
            request = await conversation.request()
            token = request.headers["authorization"].removeprefix("Bearer ")
            if token not in tokens:
                tokens.append(token)
            is_good = time.time() < float(token.removeprefix("until-"))
            await conversation.answer(failure_status(401, "Unauthorized"), status=200 if is_good else 401)

    server.script = strict
    write_plugin(tmp_path, TOKEN_PLUGIN)
    user: dict[str, object] = {"exec": {"apiVersion": V1, "command": "./plugin"}}
    path = write_kubeconfig(tmp_path, server, tls, user)
    begun = time.monotonic()
    async with Client(load_cluster(kubeconfig=path)) as client:
        for _ in range(600):
            await client.request("PATCH", "/a", body=b"{}")
            if len(tokens) == 3:
                break
            await asyncio.sleep(0.05)
    assert len(tokens) == 3
    assert time.monotonic() - begun > 2 * 0.75 * LIFE_S, "a token is used for most of its life"


async def test_certificate_of_five_seconds_from_a_plugin_is_renewed(tls: Tls, tmp_path: Path) -> None:
    async def show_peer(conversation: Conversation) -> None:
        peer = conversation.writer.get_extra_info("peercert")
        while True:
            await conversation.request()
            await conversation.answer({"peer": peer["subjectAltName"][0][1]})

    write_plugin(tmp_path, CERTIFICATE_PLUGIN)
    for number in (1, 2):
        leaf = tls.authority.issue_cert(f"life-{number}")
        chain = "".join(blob.bytes().decode() for blob in leaf.cert_chain_pems)
        pair = {"clientCertificateData": chain, "clientKeyData": leaf.private_key_pem.bytes().decode()}
        (tmp_path / f"pair-{number}.json").write_text(json.dumps(pair))
    async with WireServer(tls, tls.server_context(client_ca=True), script=show_peer) as server:
        user: dict[str, object] = {"exec": {"apiVersion": V1, "command": "./plugin"}}
        path = write_kubeconfig(tmp_path, server, tls, user)
        seen: list[str] = []
        async with Client(load_cluster(kubeconfig=path)) as client:
            for _ in range(200):
                peer = json.loads((await client.request("PATCH", "/a", body=b"{}")).body)["peer"]
                if peer not in seen:
                    seen.append(peer)
                if len(seen) == 2:
                    break
                await asyncio.sleep(0.05)
    assert seen == ["life-1", "life-2"]


async def test_rotated_token_file_is_used_when_the_old_token_is_refused(
    server: WireServer, tls: Tls, tmp_path: Path
) -> None:
    good = "one"

    async def strict(conversation: Conversation) -> None:
        while True:
            request = await conversation.request()
            if request.headers["authorization"] != f"Bearer {good}":
                await conversation.answer(failure_status(401, "Unauthorized"), status=401)
            elif request.path == "/w":
                await conversation.send(CHUNKED_HEAD + chunked(b"line\n"))
            else:
                await conversation.answer(b"ok")

    server.script = strict
    (tmp_path / "token").write_text("one\n")
    path = write_kubeconfig(tmp_path, server, tls, {"tokenFile": "token"})
    async with Client(load_cluster(kubeconfig=path)) as client:
        for good in ("one", "two", "three"):
            (tmp_path / "token").write_text(good)
            assert (await client.request("PATCH", "/a", body=b"{}")).body == b"ok"
        good = "four"
        (tmp_path / "token").write_text(good)
        async with client.stream("/w") as lines:
            assert [line async for line in lines] == [b"line"]


async def test_one_cluster_serves_clients_in_several_threads(
    server: WireServer, tls: Tls, tmp_path: Path
) -> None:
    cluster = load_cluster(kubeconfig=write_kubeconfig(tmp_path, server, tls, {"token": "t"}))

    async def ask() -> int:
        async with Client(cluster) as client:
            answers = await asyncio.gather(*(client.request("GET", "/a") for _ in range(5)))
            return len(answers)

    assert await asyncio.gather(*(asyncio.to_thread(asyncio.run, ask()) for _ in range(3))) == [5, 5, 5]
