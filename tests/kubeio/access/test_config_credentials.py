"""Credentials renew themselves: files when they change, plugins before their life ends."""

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
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from kubeio.access.cluster import Cluster, load_cluster
from kubeio.access.credentials import FetchedCredential, FileCredentials, PluginCredentials
from kubeio.access.plugins import PluginFailed, run_child
from kubeio.clock import ManualClock, SystemClock
from kubeio.errors import InputError, Unreachable
from kubeio.http.endpoint import Credential, Credentials, KeyPair
from tests.kubeio.access.conftest import Load, Write
from tests.kubeio.access.kubeconfigs import Ca, b64

V1 = "client.authentication.k8s.io/v1"


# -- files -----------------------------------------------------------------------------------------------


class TokenFile:
    """A file that said `one` when its credentials were made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        path.write_text("one")
        os.utime(path, (1, 1))
        self.credentials = FileCredentials([path], self._read, self.clock)

    def _read(self) -> Credential:
        try:
            return Credential(self.path.read_text())
        except OSError as error:
            raise InputError("tokenFile", str(self.path), "cannot be read", "name a file") from error

    def says(self, text: str, *, after_s: float = 0.0) -> bool:
        self.clock.advance(after_s)
        return self.credentials.current() == Credential(text)


@pytest.fixture
def token(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "token")


def test_changed_file_is_read_within_a_second(token: TokenFile) -> None:
    token.path.write_text("two!")
    assert token.says("one")
    assert token.says("two!", after_s=1)


def test_file_changed_without_a_trace_is_read_within_a_minute(token: TokenFile) -> None:
    token.path.write_text("two")
    os.utime(token.path, (1, 1))
    assert token.says("one", after_s=59)
    assert token.says("two", after_s=1)


def test_refused_file_is_read_at_once(token: TokenFile) -> None:
    token.path.write_text("two")
    token.credentials.reject(Credential("something else"))
    assert token.says("one")
    token.credentials.reject(Credential("one"))
    assert token.says("two")


def test_file_that_is_away_for_a_moment_leaves_the_old_credential(token: TokenFile) -> None:
    token.path.unlink()
    assert token.says("one", after_s=61)
    token.path.write_text("two")
    assert token.says("two", after_s=1)


async def test_token_file_of_a_kubeconfig_is_read_again_when_refused(load: Load, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    credentials = load(user={"tokenFile": "token"}).credentials
    (tmp_path / "token").write_text("two\n")
    credentials.reject(Credential("Bearer one"))
    assert credentials.current() == await credentials.renewed() == Credential("Bearer two")


def test_rotated_client_certificate_files_are_read_again(load: Load, tmp_path: Path, ca: Ca) -> None:
    (tmp_path / "crt").write_bytes(ca.certificate)
    (tmp_path / "key").write_bytes(ca.key)
    user: dict[str, object] = {"client-certificate": "crt", "client-key": "key"}
    credentials = load(user=user).credentials
    old = credentials.current()
    assert old == Credential("", KeyPair(ca.certificate, ca.key))
    (tmp_path / "crt").write_bytes(ca.certificate + b"# new\n")
    credentials.reject(old)
    assert credentials.current() == Credential("", KeyPair(ca.certificate + b"# new\n", ca.key))


# -- renewal, with a plugin that is a function ------------------------------------------------------------


class Plugin:
    """Gives token-1, token-2, ...; may be slow or fail."""

    def __init__(self, life_s: float | None = 100.0) -> None:
        self.life_s = life_s
        self.runs = 0
        self.failure: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self) -> FetchedCredential:
        self.runs += 1
        number = self.runs
        assert self.gate.wait(5)
        if self.failure is not None:
            raise self.failure
        return FetchedCredential(Credential(f"token-{number}"), self.life_s)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what a thread does."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    pytest.fail("did not come to pass within 5 s")


async def test_many_waiters_in_several_event_loops_share_one_run() -> None:
    plugin = Plugin()
    plugin.gate.clear()
    source = PluginCredentials(plugin, ManualClock(), "plugin")
    assert source.current() is None
    elsewhere = [asyncio.to_thread(asyncio.run, source.renewed()) for _ in range(3)]
    waiters = asyncio.gather(*elsewhere, *(source.renewed() for _ in range(20)))
    await asyncio.sleep(0.05)
    plugin.gate.set()
    assert await waiters == [Credential("token-1")] * 23
    assert plugin.runs == 1
    assert source.current() == Credential("token-1")


async def test_cancelled_waiter_leaves_the_run_to_the_others() -> None:
    plugin = Plugin()
    plugin.gate.clear()
    source = PluginCredentials(plugin, ManualClock(), "plugin")
    waiters = [asyncio.ensure_future(source.renewed()) for _ in range(2)]
    await asyncio.sleep(0.02)
    waiters[0].cancel()
    await asyncio.sleep(0.02)
    plugin.gate.set()
    assert await waiters[1] == Credential("token-1")
    assert plugin.runs == 1


async def given(life_s: float | None = 100) -> tuple[Plugin, ManualClock, PluginCredentials]:
    """Credentials that have their first token."""
    plugin, clock = Plugin(life_s), ManualClock()
    source = PluginCredentials(plugin, clock, "exec plugin aws")
    assert await source.renewed() == Credential("token-1")
    return plugin, clock, source


async def test_credential_is_renewed_in_the_background_before_its_life_ends() -> None:
    plugin, clock, source = await given()
    clock.advance(79)
    assert source.current() == Credential("token-1")
    assert plugin.runs == 1
    plugin.gate.clear()
    clock.advance(2)
    assert source.current() == Credential("token-1"), "the old one serves while the new one comes"
    plugin.gate.set()
    await until(lambda: source.current() == Credential("token-2"))
    assert plugin.runs == 2


async def test_credential_at_the_end_of_its_life_is_not_used() -> None:
    _, clock, source = await given()
    clock.advance(96)
    assert source.current() is None
    assert await source.renewed() == Credential("token-2")


async def test_without_an_end_a_credential_lives_until_it_is_refused() -> None:
    _, clock, source = await given(life_s=None)
    clock.advance(10**9)
    assert source.current() == Credential("token-1")


async def test_refused_credential_is_renewed_once() -> None:
    _, clock, source = await given()
    first = await source.renewed()
    clock.advance(2)
    for _ in range(10):
        source.reject(first)
    assert source.current() is None
    second = await source.renewed()
    source.reject(first)  # a late answer to an old request
    assert source.current() == second == Credential("token-2")


async def test_account_that_is_always_refused_does_not_run_the_plugin_in_a_circle() -> None:
    plugin, clock = Plugin(), ManualClock()
    source = PluginCredentials(plugin, clock, "plugin")
    for _ in range(50):
        credential = source.current() or await source.renewed()
        source.reject(credential)
        clock.advance(0.1)
    assert plugin.runs <= 6


async def test_first_failure_is_the_input_error_itself() -> None:
    plugin, clock = Plugin(), ManualClock()
    plugin.failure = InputError("exec", "aws", "failed", "log in")
    source = PluginCredentials(plugin, clock, "plugin")
    with pytest.raises(InputError, match="log in"):
        await source.renewed()
    with pytest.raises(InputError, match="log in"):
        await source.renewed()
    assert plugin.runs == 1, "not again within a second"
    clock.advance(1)
    plugin.failure = None
    assert await source.renewed() == Credential("token-2")


async def test_failure_of_what_once_worked_is_an_outage_and_not_a_mistake() -> None:
    plugin, clock, source = await given()
    plugin.failure = InputError("exec", "aws", "failed", "log in")
    clock.advance(85)
    assert source.current() == Credential("token-1")
    await until(lambda: plugin.runs == 2)
    assert source.current() == Credential("token-1"), "still good"
    clock.advance(20)
    assert source.current() is None
    with pytest.raises(Unreachable, match=r"exec plugin aws: .*log in"):
        await source.renewed()
    plugin.failure = None
    clock.advance(1)
    assert (await source.renewed()).authorization.startswith("token-")


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


async def test_plugin_is_told_what_the_kubeconfig_says(
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


def test_sources_are_all_of_one_kind(write: Write, load: Load, tmp_path: Path, plugin: Exec) -> None:
    (tmp_path / "token").write_text("one")
    sources: list[Credentials] = [
        load(user={"tokenFile": "token"}).credentials,
        load().credentials,
        exec_cluster(write).credentials,
        PluginCredentials(Plugin(), SystemClock(), "x"),
    ]
    for source in sources:
        source.reject(Credential("never given"))
