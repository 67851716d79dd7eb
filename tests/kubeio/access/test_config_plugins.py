"""Credentials of real exec plugins and of OpenID Connect, got by the kubernetes package."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import os
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from kubeio.access.cluster import Cluster, load_cluster
from kubeio.access.plugins import PluginFailed, run_child
from kubeio.errors import InputError
from kubeio.http.endpoint import Credential, KeyPair
from tests.kubeio.access.conftest import Load, Write
from tests.kubeio.access.kubeconfigs import Ca, b64

# -- real exec plugins, run by the kubernetes package -----------------------------------------------------

SCRIPT = """#!{python} -S
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "runs"), "a") as runs:
    runs.write("x")
count = os.path.getsize(os.path.join(here, "runs"))
spec = json.load(open(os.path.join(here, "spec.json")))
with open(os.path.join(here, "seen.json"), "w") as seen:
    json.dump({{"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}}, seen)
if spec.get("sleep"):
    time.sleep(spec["sleep"])
if "raw" in spec:
    print(spec["raw"])
    sys.exit(0)
if spec.get("fail"):
    print(spec["fail"], file=sys.stderr)
    sys.exit(3)
status = dict(spec["status"])
if status.get("token") == "COUNT":
    status["token"] = "token-%d" % count
if "life" in spec:
    status["expirationTimestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + spec["life"]))
print(json.dumps({{"apiVersion": spec.get("apiVersion", "{version}"), "kind": "ExecCredential", "status": status}}))
"""

V1 = "client.authentication.k8s.io/v1"


class Exec:
    """An exec plugin on disk that counts its runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / "plugin"
        self.path.write_text(SCRIPT.format(python=sys.executable, version=V1))
        self.path.chmod(0o755)

    def gives(self, **spec: object) -> None:
        (self.directory / "spec.json").write_text(json.dumps(spec))

    @property
    def runs(self) -> int:
        runs = self.directory / "runs"
        return runs.stat().st_size if runs.exists() else 0

    @property
    def seen(self) -> dict[str, object]:
        seen: dict[str, object] = json.loads((self.directory / "seen.json").read_text())
        return seen


@pytest.fixture
def plugin(tmp_path: Path) -> Exec:
    return Exec(tmp_path / "bin")


def exec_cluster(write: Write, cluster: dict[str, object] | None = None, **section: object) -> Cluster:
    user: dict[str, object] = {"exec": {"apiVersion": V1, "command": "bin/plugin", **section}}
    return load_cluster(kubeconfig=str(write(user=user, cluster=cluster)))


async def test_plugin_runs_when_the_first_credential_is_needed_and_writes_no_kubeconfig(
    write: Write, plugin: Exec, tmp_path: Path
) -> None:
    plugin.gives(status={"token": "COUNT"}, life=60)
    credentials = exec_cluster(write).credentials
    path = tmp_path / "config"
    os.utime(path, (1, 1))
    before = path.read_bytes()
    assert plugin.runs == 0
    assert await credentials.renewed() == credentials.current() == Credential("Bearer token-1")
    assert plugin.runs == 1
    assert (path.read_bytes(), path.stat().st_mtime) == (before, 1)


async def test_token_of_five_seconds_is_renewed_by_itself(write: Write, plugin: Exec) -> None:
    plugin.gives(status={"token": "COUNT"}, life=5)
    credentials = exec_cluster(write).credentials
    assert await credentials.renewed() == Credential("Bearer token-1")
    for _ in range(500):
        if (credentials.current() or await credentials.renewed()) == Credential("Bearer token-2"):
            break
        await asyncio.sleep(0.02)
    assert plugin.runs == 2


async def test_certificate_from_a_plugin_is_renewed_too(write: Write, plugin: Exec, ca: Ca) -> None:
    pair = {"clientCertificateData": ca.certificate.decode(), "clientKeyData": ca.key.decode()}
    plugin.gives(status=pair, life=2)
    credentials = exec_cluster(write).credentials
    assert await credentials.renewed() == Credential("", KeyPair(ca.certificate, ca.key))
    plugin.gives(status={**pair, "clientCertificateData": ca.certificate.decode() + "# 2"}, life=60)
    await asyncio.sleep(2)
    renewed = credentials.current() or await credentials.renewed()
    assert renewed == Credential("", KeyPair(ca.certificate + b"# 2", ca.key))
    assert plugin.runs == 2


async def test_plugin_gets_what_the_kubeconfig_says(
    write: Write, plugin: Exec, ca: Ca, tmp_path: Path
) -> None:
    plugin.gives(status={"token": "COUNT"})
    (tmp_path / "ca.crt").write_bytes(ca.pem)
    cluster: dict[str, object] = {"certificate-authority": "ca.crt", "tls-server-name": "k8s"}
    env = [{"name": "COLOUR", "value": "blue"}]
    loaded = exec_cluster(write, cluster, args=["get", "token"], env=env, provideClusterInfo=True)
    await loaded.credentials.renewed()
    seen = plugin.seen
    assert seen["argv"] == ["get", "token"]
    assert seen["cwd"] == str(Path.cwd())
    environment = seen["env"]
    assert isinstance(environment, dict)
    assert environment["COLOUR"] == "blue"
    info = json.loads(environment["KUBERNETES_EXEC_INFO"])
    assert (info["kind"], info["apiVersion"]) == ("ExecCredential", V1)
    assert info["spec"]["interactive"] is False
    assert info["spec"]["cluster"] == {
        "server": "https://10.0.0.1:6443",
        "tls-server-name": "k8s",
        "certificate-authority-data": b64(ca.pem),
    }


async def test_plugin_is_found_on_the_path(load: Load, plugin: Exec, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin.gives(status={"token": "COUNT"})
    monkeypatch.setenv("PATH", f"{plugin.directory}{os.pathsep}{os.environ['PATH']}")
    user: dict[str, object] = {"exec": {"apiVersion": V1, "command": "plugin"}}
    cluster = load(user=user)
    assert await cluster.credentials.renewed() == Credential("Bearer token-1")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"fail": "please log in"}, "please log in"),
        ({"raw": "not json"}, "failed to decode"),
        ({"raw": "{}"}, "apiVersion"),
        ({"raw": json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": None})}, "not an object"),
        ({"status": {"token": "t"}, "apiVersion": "client.authentication.k8s.io/v1beta1"}, "does not match"),
        ({"status": {}}, "neither token nor clientCertificateData"),
        ({"status": {"clientCertificateData": "x"}}, "only one of"),
        ({"status": {"token": 5}}, "not a string"),
        ({"status": {"token": "t", "expirationTimestamp": "tomorrow"}}, "is no time: 'tomorrow'"),
        ({"status": {"token": "t"}, "life": -60}, "expired 6"),
    ],
)
async def test_plugin_that_gives_nothing_usable_is_an_input_error(
    write: Write, plugin: Exec, spec: dict[str, object], problem: str
) -> None:
    plugin.gives(**spec)
    credentials = exec_cluster(write, args=["get"]).credentials
    with pytest.raises(InputError) as caught:
        await credentials.renewed()
    assert caught.value.field.startswith("users[alice].user.exec.command in ")
    assert problem in caught.value.problem
    assert f"{plugin.path} get" in caught.value.remedy


def test_plugin_that_hangs_is_killed_with_its_children(plugin: Exec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeio.access.plugins.PLUGIN_TIMEOUT_S", 1.5)
    plugin.gives(sleep=60, status={"token": "t"})
    begun = time.monotonic()
    request = {
        "kind": "exec",
        "cluster": {},
        "exec": {
            "apiVersion": V1,
            "command": str(plugin.path),
            "args": [],
            "env": [],
            "provideClusterInfo": False,
        },
    }
    with pytest.raises(PluginFailed, match="no answer within"):
        run_child(request, is_interactive=False)
    assert time.monotonic() - begun < 6


# -- OpenID Connect ---------------------------------------------------------------------------------------


def jwt(expires: datetime) -> str:
    def part(value: object) -> str:
        return b64(json.dumps(value).encode()).rstrip("=").replace("+", "-").replace("/", "_")

    claims = {"exp": int(expires.timestamp()), "sub": "joe"}
    # the package wants no padding characters, and a claim set whose length is not 1 modulo 4
    while len(part(claims)) % 4 == 1:
        claims["sub"] = str(claims["sub"]) + "e"
    return f"{part({'alg': 'none'})}.{part(claims)}.sig"


def oidc(token: str) -> dict[str, Any]:
    config = {
        "id-token": token,
        "idp-issuer-url": "https://127.0.0.1:1",
        "client-id": "c",
        "refresh-token": "r",
    }
    return {"auth-provider": {"name": "oidc", "config": config}}


async def test_oidc_token_that_is_valid_is_used_as_it_is(load: Load) -> None:
    token = jwt(datetime.now(UTC) + timedelta(hours=1))
    credentials = load(user=oidc(token)).credentials
    assert await credentials.renewed() == Credential(f"Bearer {token}")


async def test_oidc_token_that_cannot_be_refreshed_is_an_input_error(load: Load) -> None:
    token = jwt(datetime.now(UTC) - timedelta(hours=1))
    credentials = load(user=oidc(token)).credentials
    with pytest.raises(InputError) as caught:
        await credentials.renewed()
    assert "auth-provider.config.idp-issuer-url" in caught.value.field
    assert "log in again" in caught.value.remedy


async def test_oidc_token_is_refreshed_and_the_kubeconfig_is_not_written(
    write: Write, tmp_path: Path
) -> None:
    fresh = jwt(datetime.now(UTC) + timedelta(hours=1))
    authority = trustme.CA()
    with issuer(authority, fresh) as (url, posted):
        user = oidc(jwt(datetime.now(UTC) - timedelta(hours=1)))
        config = user["auth-provider"]["config"]
        config |= {"idp-issuer-url": url, "client-secret": "s"}
        config["idp-certificate-authority-data"] = b64(authority.cert_pem.bytes())
        path = write(user=user)
        before = await asyncio.to_thread(path.read_bytes)
        credentials = load_cluster(kubeconfig=str(path)).credentials
        assert await credentials.renewed() == Credential(f"Bearer {fresh}")
    assert "refresh_token=r" in posted[0]
    assert await asyncio.to_thread(path.read_bytes) == before


@contextlib.contextmanager
def issuer(authority: trustme.CA, token: str) -> Iterator[tuple[str, list[str]]]:
    """An OpenID Connect provider that gives *token* for any refresh token; its URL, and what was posted."""
    posted: list[str] = []

    class Provider(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({"token_endpoint": f"{url}/token"})

        def do_POST(self) -> None:
            posted.append(self.rfile.read(int(self.headers["content-length"])).decode())
            self._answer(
                {"id_token": token, "refresh_token": "r2", "access_token": "a", "token_type": "Bearer"}
            )

        def _answer(self, document: dict[str, str]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Say nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with http.server.HTTPServer(("127.0.0.1", 0), Provider) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = f"https://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield url, posted
        finally:
            server.shutdown()
            thread.join()
