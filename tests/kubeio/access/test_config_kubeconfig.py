"""Which cluster a kubeconfig, an environment or a pod means."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from kubeio.access.cluster import Cluster, in_cluster, is_in_cluster, load_cluster
from kubeio.clock import ManualClock
from kubeio.errors import InputError
from kubeio.http.endpoint import Credential, KeyPair, Proxy
from tests.kubeio.access.conftest import Load, Write
from tests.kubeio.access.kubeconfigs import Ca, b64


def credential_of(cluster: Cluster) -> Credential:
    credential = cluster.credentials.current()
    assert credential is not None
    return credential


def test_current_context_says_server_namespace_and_user(load: Load) -> None:
    cluster = load(context={"namespace": "team"})
    assert (cluster.server, cluster.namespace) == ("https://10.0.0.1:6443", "team")
    assert cluster.user == "alice"
    assert (cluster.endpoint.host, cluster.endpoint.port, cluster.endpoint.base_path) == (
        "10.0.0.1",
        6443,
        "",
    )
    assert credential_of(cluster) == Credential("Bearer secret")


def test_namespace_is_default_unless_the_context_says_otherwise(load: Load) -> None:
    assert load().namespace == "default"


def test_context_can_be_chosen(write: Write) -> None:
    contexts = [
        {"name": "main", "context": {"cluster": "prod", "user": "alice"}},
        {"name": "other", "context": {"cluster": "prod", "user": "alice", "namespace": "x"}},
    ]
    cluster = load_cluster(kubeconfig=str(write(contexts=contexts)), context="other")
    assert cluster.namespace == "x"


def test_explicit_path_beats_the_environment(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(write("environment", context={"namespace": "environment"})))
    assert load_cluster().namespace == "environment"
    explicit = write("explicit", context={"namespace": "explicit"})
    assert load_cluster(kubeconfig=str(explicit)).namespace == "explicit"


def test_home_is_the_last_resort(write: Write, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="KUBECONFIG is not set") as caught:
        load_cluster()
    assert caught.value.field == "--kubeconfig"
    write("home/.kube/config", context={"namespace": "home"})
    assert load_cluster().namespace == "home"
    assert load_cluster(kubeconfig="~/.kube/config").namespace == "home"


def test_pod_beats_home_but_not_kubeconfig(
    write: Write, tmp_path: Path, ca: Ca, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("home/.kube/config", context={"namespace": "home"})
    pod = service_account(tmp_path, ca)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert load_cluster(service_account=pod).user == "service account of the pod"
    assert load_cluster(service_account=pod, context="main").namespace == "home"
    monkeypatch.setenv("KUBECONFIG", str(write("environment", context={"namespace": "environment"})))
    assert load_cluster(service_account=pod).namespace == "environment"


# -- several files ---------------------------------------------------------------------------------------


def test_several_files_are_one_and_the_first_to_name_something_counts(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    contexts = [{"name": "second", "context": {"cluster": "elsewhere", "user": "alice"}}]
    first = write("a/config", user={"token": "first"}, contexts=contexts, **{"current-context": "second"})
    clusters = [{"name": "elsewhere", "cluster": {"server": "https://elsewhere"}}]
    second = write("b/config", user={"token": "second"}, clusters=clusters)
    missing = tmp_path / "missing"
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, ["", missing, first, second])))
    cluster = load_cluster()
    assert cluster.server == "https://elsewhere"
    assert credential_of(cluster) == Credential("Bearer first")
    assert load_cluster(context="main").server == "https://10.0.0.1:6443"


def test_paths_are_relative_to_the_file_they_stand_in(write: Write, ca: Ca, tmp_path: Path) -> None:
    (tmp_path / "a/pki").mkdir(parents=True)
    (tmp_path / "b/pki").mkdir(parents=True)
    (tmp_path / "a/pki/token").write_text("from-a\n")
    (tmp_path / "b/pki/ca.crt").write_bytes(ca.pem)
    users = {"users": [{"name": "alice", "user": {"tokenFile": "pki/token"}}]}
    first = tmp_path / "a/config"
    first.write_text(yaml.safe_dump(users))
    second = write("b/config", cluster={"certificate-authority": "pki/ca.crt"})
    cluster = load_cluster(kubeconfig=f"{first}{os.pathsep}{second}")
    assert credential_of(cluster) == Credential("Bearer from-a")
    assert cluster.trust.ca == ca.pem


def test_environment_that_names_only_missing_files_is_an_input_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    with pytest.raises(InputError, match="names no file that exists") as caught:
        load_cluster()
    assert caught.value.field == "KUBECONFIG"


# -- never written ---------------------------------------------------------------------------------------


def test_kubeconfig_is_not_written_and_need_not_be_writable(write: Write, tmp_path: Path) -> None:
    path = write(user={"token": "t"})
    before = path.read_bytes()
    os.utime(path, (1, 1))
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        load_cluster(kubeconfig=str(path))
        assert path.read_bytes() == before
        assert path.stat().st_mtime == 1
        assert [entry.name for entry in tmp_path.iterdir()] == ["config"]
    finally:
        path.parent.chmod(0o700)


# -- users -----------------------------------------------------------------------------------------------


def test_client_certificate_as_data_or_as_files(load: Load, ca: Ca, tmp_path: Path) -> None:
    pair = KeyPair(ca.certificate, ca.key)
    data = {"client-certificate-data": b64(ca.certificate), "client-key-data": b64(ca.key)}
    assert credential_of(load(user=data)) == Credential("", pair)
    (tmp_path / "crt").write_bytes(ca.certificate)
    (tmp_path / "key").write_bytes(ca.key)
    files: dict[str, object] = {"client-certificate": "crt", "client-key": "key", "token": "t"}
    assert credential_of(load(user=files)) == Credential("Bearer t", pair)


def test_data_beats_the_file_beside_it(load: Load, ca: Ca) -> None:
    cluster = {"certificate-authority-data": b64(ca.pem), "certificate-authority": "/does/not/exist"}
    assert load(cluster=cluster).trust.ca == ca.pem


def test_username_and_password_are_basic_authentication(load: Load) -> None:
    cluster = load(user={"username": "joe", "password": "p:ä"})
    assert credential_of(cluster).authorization == "Basic " + b64("joe:p:ä".encode())


def test_user_without_anything_is_anonymous(load: Load) -> None:
    assert credential_of(load(user={})) == Credential()


def test_nothing_secret_goes_over_plain_http(load: Load) -> None:
    cluster = load(cluster={"server": "http://127.0.0.1:8001"})
    assert credential_of(cluster) == Credential()


def test_impersonation_becomes_headers(load: Load) -> None:
    user = {
        "token": "t",
        "as": "jane",
        "as-uid": "u-1",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"acme.com/Reason": ["audit", "test"]},
    }
    cluster = load(user=user)
    assert cluster.impersonation == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "u-1"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-acme.com%2FReason", "audit"),
        ("Impersonate-Extra-acme.com%2FReason", "test"),
    )
    assert cluster.user == "alice as jane"


# -- clusters --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "host", "port", "base_path", "authority"),
    [
        ("https://api.example:6443", "api.example", 6443, "", "api.example:6443"),
        ("https://api.example", "api.example", 443, "", "api.example"),
        ("https://API.example/", "api.example", 443, "", "api.example"),
        ("https://[2001:db8::1]:6443", "2001:db8::1", 6443, "", "[2001:db8::1]:6443"),
        ("https://rancher/k8s/clusters/c-1/", "rancher", 443, "/k8s/clusters/c-1", "rancher"),
        ("http://127.0.0.1:8001", "127.0.0.1", 8001, "", "127.0.0.1:8001"),
        ("localhost:8080", "localhost", 8080, "", "localhost:8080"),
    ],
)
def test_server_url_is_taken_apart(
    load: Load, server: str, host: str, port: int, base_path: str, authority: str
) -> None:
    endpoint = load(cluster={"server": server}).endpoint
    assert (endpoint.host, endpoint.port, endpoint.base_path, endpoint.authority) == (
        host,
        port,
        base_path,
        authority,
    )


def test_insecure_and_server_name_are_kept(load: Load) -> None:
    trust = load(cluster={"insecure-skip-tls-verify": True}).trust
    assert trust.is_insecure
    trust = load(cluster={"tls-server-name": "kubernetes"}).trust
    assert (trust.server_name, trust.is_insecure) == ("kubernetes", False)


def test_proxy_url_beats_the_environment_and_no_proxy(
    write: Write, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://environment:3128")
    assert load().proxy == Proxy("environment", 3128)
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
    assert load().proxy is None
    explicit = write(cluster={"proxy-url": "http://explicit:8080"})
    assert load_cluster(kubeconfig=str(explicit)).proxy == Proxy("explicit", 8080)


# -- in a pod --------------------------------------------------------------------------------------------


def service_account(tmp_path: Path, ca: Ca) -> Path:
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    (directory / "token").write_text("pod-token\n")
    (directory / "ca.crt").write_bytes(ca.pem)
    (directory / "namespace").write_text("ringleader-system")
    return directory


@pytest.mark.parametrize(
    ("host", "server"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_pod_uses_its_service_account(tmp_path: Path, ca: Ca, host: str, server: str) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
    directory = service_account(tmp_path, ca)
    assert is_in_cluster(environ, directory)
    assert not is_in_cluster({}, directory)
    assert not is_in_cluster(environ, tmp_path)
    cluster = in_cluster(environ, directory, clock=ManualClock())
    assert (cluster.server, cluster.namespace) == (server, "ringleader-system")
    assert cluster.trust.ca == ca.pem
    assert credential_of(cluster) == Credential("Bearer pod-token")


def test_pod_reads_its_rotated_token_again(tmp_path: Path, ca: Ca) -> None:
    """As the kubelet rotates it: a symbolic link to another directory."""
    directory = service_account(tmp_path, ca)
    environ = {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "443"}
    (directory / "one").mkdir()
    (directory / "token").rename(directory / "one/token")
    (directory / "token").symlink_to("one/token")
    clock = ManualClock()
    cluster = in_cluster(environ, directory, clock=clock)
    (directory / "two").mkdir()
    (directory / "two/token").write_text("rotated")
    (directory / "new").symlink_to("two/token")
    (directory / "new").rename(directory / "token")
    clock.advance(1.5)
    assert credential_of(cluster) == Credential("Bearer rotated")


def test_loading_a_simple_kubeconfig_takes_no_time_and_no_foreign_package(write: Write, ca: Ca) -> None:
    """Nine processes of a fleet start on two cores: none of them may import the `kubernetes` package."""
    path = write(cluster={"certificate-authority-data": b64(ca.pem)})
    code = (
        "import sys; from kubeio.access.cluster import load_cluster; import kubeio.rest.client;"
        f"load_cluster(kubeconfig={str(path)!r}); print('kubernetes' in sys.modules)"
    )
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert time.monotonic() - begun < 10
